"""Outcomes of plans: those of one plan, of a day, and all accounted so far as page and in MLflow's cards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.common import files
from features.common.errors import ServiceError, StaleInputError
from features.common.times import day_label, parse_as_of
from features.common.units import format_bytes
from features.results import WORTH
from features.schema import ACCESSES, OUTCOMES, PLANS, RECEIPTS
from jobs.caches import steward_days
from jobs.outcomes import day_verdict
from jobs.outcomes.day_verdict import DayVerdict
from jobs.report.page import Figure, Section, page
from jobs.report.plots import saved_by_day
from jobs.settings.tree import Settings
from jobs.store.keys import MomentKey
from jobs.store.tables import Tables
from jobs.store.trainings import trained
from jobs.text import Row, percent
from jobs.train.registry import registry
from prefetch.accounting.outcomes import outcomes
from prefetch.actions import Action

_SUMS = ("n_hits", "bytes_saved", "bytes_spent", "bytes_wasted")
NO_MODEL = "none"


@dataclasses.dataclass(frozen=True)
class History:
    """Past outcomes of one cache. `days`: rows of the table worth; `steward`: of steward_days, by day.

    `plans`: per plan the items done, the items read, and bytes as in the table outcomes; `models`: the same
    per model version that the plans followed (`none`: prefills).
    """

    plans: list[Row]
    models: list[Row]
    days: list[Row]
    steward: list[Row]


def of_day(settings: Settings, *, cache: str, day_s: int) -> DayVerdict:
    """Account again the plans whose files could be read on a day, and judge the day."""
    tables = Tables(settings.tables.root)
    since = day_label(day_s - settings.plan.horizon)
    if tables.exists(RECEIPTS):
        for key in tables.snapshot(RECEIPTS).select(since=since, until=day_label(day_s), owner=cache):
            of_plan(settings, cache=cache, as_of_s=parse_as_of(key[1]))
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
    return (
        f"{len(judged)} of {len(past.days)} days could be judged: on them plans and steward {_saved(judged)}."
    )


def _steward_answers(past: History) -> list[str]:
    if not past.steward:
        return []
    return [f"By its own count the steward {_saved(past.steward)} on {len(past.steward)} days."]


def _saved(days: Sequence[Row]) -> str:
    """For example `saved 12 GB of WAN traffic against plain LRU (4.2 %)`, of all `days` together."""
    saved, lru = (sum(row[name] for row in days) for name in ("saved_wan_bytes", "lru_wan_bytes"))
    share = f" ({percent(abs(saved) / lru, 1)})" if lru else ""
    verb = "saved" if saved >= 0 else "cost"
    return f"{verb} {format_bytes(abs(saved))} of WAN traffic against plain LRU{share}"


def _judged(past: History) -> list[Row]:
    return [row for row in past.days if row["withheld"] is None]


def _shown(row: Row) -> Row:
    columns = (
        *("day", "hit_bytes", "missed_bytes", "prefetched_bytes", "lru_wan_bytes", "saved_wan_bytes"),
        *("planned_hit_share", "planned_lru_hit_share", "control_hit_share", "control_lru_hit_share"),
    )
    return {name: row[name] for name in columns} | {"reason": row["withheld"] or ""}


def _grouped(rows: pa.Table, by: Sequence[str]) -> list[Row]:
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


def tell(settings: Settings, *, cache: str) -> str | None:
    """Write what versions earned in `cache` so far as their tag `earned.CACHE`, and into their cards.

    Versions that the table trainings lacks are left out. Returns why MLflow could not be updated; None: it
    was, or nothing is known yet.
    """
    try:
        past = history(settings, cache=cache, since=None, until=None)
        known = trained(Tables(settings.tables.root), region=settings.region.name)
        told = {version: text for version, text in earned(past).items() if version in known}
        if told:
            at = registry(settings.mlflow)
            for version, text in told.items():
                at.tag(version, {f"earned.{cache}": text})
                at.describe(version, f"Earned in {cache}", text)
    except StaleInputError:
        return None
    except ServiceError as error:
        return f"the outcomes are in the tables, but not in MLflow: {error}"
    return None


def earned(past: History) -> dict[str, str]:
    """In words, by version: the bytes of its plans, and of the days on which a steward followed its order."""
    found = {str(row["model_version"]): _of_plans(row) for row in past.models}
    days: dict[str, list[Row]] = {}
    for row in past.steward:
        days.setdefault(str(row["model_version"]), []).append(row)
    for version, rows in days.items():
        found[version] = " ".join(filter(None, (found.get(version), _of_order(rows))))
    return found


def _of_plans(row: Row) -> str:
    saved, spent, wasted = (
        format_bytes(row[name]) for name in ("bytes_saved", "bytes_spent", "bytes_wasted")
    )
    return (
        f"Plans: {row['read_items']} of {row['items']} items were read; {saved} saved, {spent} spent, "
        f"{wasted} wasted."
    )


def _of_order(days: Sequence[Row]) -> str:
    return f"Evictions: on {len(days)} days the steward {_saved(days)}, by its own count."


_READ_COLUMNS = ["did", "cache", "accessed_at", "bytes_hit", "bytes_missed", "n_reads"]


@dataclasses.dataclass(frozen=True)
class OutcomeSummary:
    """One plan's earnings; bytes as in the outcomes table."""

    cache: str
    as_of: str
    prefetched_files: int
    prefetched_files_read: int
    pinned_files: int
    pinned_files_read: int
    n_hits: int
    bytes_saved: int
    bytes_spent: int
    bytes_wasted: int


def of_plan(settings: Settings, *, cache: str, as_of_s: int) -> OutcomeSummary:
    """Write the outcomes of the plan of `cache` at `as_of_s`, as far as its reads are known by now.

    Raises StaleInputError without receipts.
    """
    tables, cache = Tables(settings.tables.root), settings.cache(cache).name
    key = MomentKey.at(as_of_s, cache)
    if not tables.exists(RECEIPTS):
        raise StaleInputError(f"no receipts of cache {cache!r} at {key.as_of}; push first")
    receipts = tables.read_arrow(RECEIPTS, as_of=key.as_of, owner=cache).to_pandas()
    accesses = tables.read_arrow(ACCESSES, since=key.day, columns=_READ_COLUMNS).to_pandas()
    # Records of other sources lack the bytes that the cache served.
    own = (accesses["cache"] == cache) & accesses["bytes_hit"].notna()
    outcome_rows = outcomes(receipts, accesses[own])
    tables.replace_partition(OUTCOMES, pa.Table.from_pandas(outcome_rows, preserve_index=False), key)
    return _plan_summary(cache, key.as_of, outcome_rows)


def _plan_summary(cache: str, as_of: str, outcome_rows: pd.DataFrame) -> OutcomeSummary:
    prefetched, pinned = outcome_rows["action"] == Action.PREFETCH, outcome_rows["action"] == Action.PIN
    was_read = outcome_rows["n_hits"] > 0
    return OutcomeSummary(
        cache=cache,
        as_of=as_of,
        prefetched_files=int(prefetched.sum()),
        prefetched_files_read=int((prefetched & was_read).sum()),
        pinned_files=int(pinned.sum()),
        pinned_files_read=int((pinned & was_read).sum()),
        **{
            name: int(outcome_rows[name].sum())
            for name in ("n_hits", "bytes_saved", "bytes_spent", "bytes_wasted")
        },
    )
