"""The outcomes accounted so far: by plan, by the model it followed, and by day against plain LRU."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from features.common import files
from features.common.errors import StaleInputError
from features.common.times import day_label, parse_as_of
from features.common.units import format_bytes
from features.results import WORTH
from features.schema import OUTCOMES, PLANS, RECEIPTS
from jobs.caches import steward_days
from jobs.outcomes import day_verdict
from jobs.outcomes import items as plan_items
from jobs.outcomes.day_verdict import DayVerdict
from jobs.report.outcome_plots import saved_by_day
from jobs.report.page import Figure, Section, page
from jobs.settings.tree import Settings
from jobs.store.tables import Tables
from jobs.text import percent

_SUMS = ("n_hits", "bytes_saved", "bytes_spent", "bytes_wasted")
_LRU = "lru_wan_bytes"
NO_MODEL = "none"


@dataclasses.dataclass(frozen=True)
class History:
    """Past outcomes of one cache. `days`: rows of the table worth; `steward`: of steward_days, by day.

    `plans`: per plan the items done, the items read, and bytes as in the table outcomes; `models`: the same
    per model version that the plans followed (`none`: prefills).
    """

    plans: list[dict[str, object]]
    models: list[dict[str, object]]
    days: list[dict[str, object]]
    steward: list[dict[str, object]]


def of_day(settings: Settings, *, cache: str, day_s: int) -> DayVerdict:
    """Account again the plans whose files could be read on a day, and judge the day."""
    tables = Tables(settings.tables.root)
    since = day_label(day_s - settings.plan.horizon)
    if tables.exists(RECEIPTS):
        for key in tables.snapshot(RECEIPTS).select(since=since, until=day_label(day_s), owner=cache):
            plan_items.run(settings, cache=cache, as_of_s=parse_as_of(key[1]))
    return day_verdict.run(tables, settings, cache=cache, day_s=day_s)


def history(settings: Settings, *, cache: str, since: str | None, until: str | None) -> History:
    """The outcomes of the days `since` … `until`, of plans and of the steward.

    Raises StaleInputError if there is none.
    """
    cache, tables = settings.cache(cache).name, Tables(settings.tables.root)
    where = {"since": since, "until": until, "owner": cache}
    watched = steward_days.by_day(tables, cache=cache, since=since, until=until)
    has_plans = tables.exists(OUTCOMES) and bool(tables.snapshot(OUTCOMES).select(**where))
    if not has_plans and not watched:
        raise StaleInputError(
            f"no plan of cache {cache!r} was accounted yet; run `cachecast outcomes --day` or `--as-of`"
        )
    days = []
    if tables.exists(WORTH):
        columns = ["day", *WORTH.column_names]
        days = tables.read_arrow(WORTH, columns=columns, **where).sort_by("day").to_pylist()
    if not has_plans:
        return History([], [], days, watched)
    rows = tables.read_arrow(OUTCOMES, columns=["as_of", *_SUMS], **where)
    rows = rows.append_column("read_items", pc.greater(rows["n_hits"], 0).cast(pa.int64()))
    models = tables.read_arrow(PLANS, columns=["as_of", "model_version"], **where)
    by_plan = models.group_by("as_of").aggregate([("model_version", "max")])
    names = dict(zip(by_plan["as_of"].to_pylist(), by_plan["model_version_max"].to_pylist(), strict=True))
    followed = pa.array([names.get(as_of) or NO_MODEL for as_of in rows["as_of"].to_pylist()], pa.string())
    rows = rows.append_column("model_version", followed)
    return History(
        _grouped(rows, ["as_of", "model_version"]), _grouped(rows, ["model_version"]), days, watched
    )


def write_page(past: History, *, cache: str, out: Path) -> None:
    """Write the history of a cache as one HTML file."""
    sections = [
        Section(
            "Days against plain LRU",
            "LRU is replayed on the same reads. A day is withheld if the replay of the pushes differs by "
            "more than 2 % from the hit bytes that the cache reports, or if its records are too short. "
            "Shares: of the bytes read, by reads that fetched nothing.",
            _plots(past),
            [_shown(row) for row in past.days],
        ),
        Section(
            "Days of the steward",
            "By its own count: bytes of the files that were read while not on disk, and of those that plain "
            "LRU would not have had on disk.",
            _steward_plots(past),
            past.steward,
        ),
        Section("Model versions", "All items done by pushes for plans of that version.", (), past.models),
        Section("Plans", "", (), past.plans),
    ]
    html = page(
        title=f"Outcomes of {cache}",
        subtitle="cachecast outcomes",
        answers=[*([verdict(past)] if past.plans or past.days else []), *_steward_answers(past)],
        sections=[section for section in sections if section.rows],
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    files.write(out, html)


def _plots(past: History) -> list[Figure]:
    if not _judged(past):
        return []
    return [Figure(saved_by_day(_judged(past)), "WAN bytes saved against LRU, per day")]


def _steward_plots(past: History) -> list[Figure]:
    if not past.steward:
        return []
    return [Figure(saved_by_day(past.steward), "WAN bytes saved by the steward against LRU, per day")]


def verdict(past: History) -> str:
    """The verdict on all days in one sentence."""
    judged = _judged(past)
    if not judged:
        return f"No day of {len(past.days)} could be judged."
    saved = sum(int(str(row["saved_wan_bytes"])) for row in judged)
    lru = sum(int(str(row["lru_wan_bytes"])) for row in judged)
    verb = "saved" if saved >= 0 else "cost"
    share = f" ({percent(abs(saved) / lru, 1)})" if lru else ""
    return (
        f"{len(judged)} of {len(past.days)} days could be judged: on them plans and steward {verb} "
        f"{format_bytes(abs(saved))} of WAN traffic against plain LRU{share}."
    )


def _steward_answers(past: History) -> list[str]:
    if not past.steward:
        return []
    saved, lru = (sum(int(str(row[name])) for row in past.steward) for name in ("saved_wan_bytes", _LRU))
    verb = "saved" if saved >= 0 else "cost"
    share = f" ({percent(abs(saved) / lru, 1)})" if lru else ""
    return [
        f"By its own count the steward {verb} {format_bytes(abs(saved))} of WAN traffic against plain "
        f"LRU{share} on {len(past.steward)} days."
    ]


def _judged(past: History) -> list[dict[str, object]]:
    return [row for row in past.days if row["withheld"] is None]


def _shown(row: Mapping[str, object]) -> dict[str, object]:
    columns = (
        *("day", "hit_bytes", "missed_bytes", "prefetched_bytes", "lru_wan_bytes", "saved_wan_bytes"),
        *("planned_hit_share", "planned_lru_hit_share", "control_hit_share", "control_lru_hit_share"),
    )
    return {name: row[name] for name in columns} | {"reason": row["withheld"] or ""}


def _grouped(rows: pa.Table, by: Sequence[str]) -> list[dict[str, object]]:
    sums = rows.group_by(list(by)).aggregate(
        [([], "count_all"), *((n, "sum") for n in ("read_items", *_SUMS))]
    )
    listed = sums.sort_by([(name, "ascending") for name in by]).to_pylist()
    return [
        {name: row[name] for name in by}
        | {"items": row["count_all"]}
        | {name: row[f"{name}_sum"] for name in ("read_items", *_SUMS)}
        for row in listed
    ]
