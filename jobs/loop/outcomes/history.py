"""Outcomes of plans: those of one plan, of a day, and all accounted so far, also in MLflow's cards."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from features.common import files
from features.common.errors import ServiceError, StaleInputError
from features.common.units import format_bytes
from features.results import WORTH
from features.schema import OUTCOMES, PLANS
from jobs.ground.caches import steward_days
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.ground.text import OUTCOME_NOTE, Row, percent
from jobs.loop.trainings import registry, trained_versions
from jobs.pages.page import Figure, Section, page
from jobs.pages.plots import saved_by_day
from prefetch.outcomes import Use

STORED = ("n_hits", "bytes_saved", "bytes_spent", "bytes_wasted")
_SUMS = ("read_items", "pending_items", *STORED, "bytes_pending")
NO_MODEL = "none"
_OF_DAYS = (
    *("day", "hit_bytes", "missed_bytes", "prefetched_bytes", "lru_wan_bytes", "saved_wan_bytes"),
    *("planned_hit_share", "planned_lru_hit_share", "control_hit_share", "control_lru_hit_share"),
)
"""Columns of the table worth that the page shows."""


@dataclasses.dataclass(frozen=True)
class History:
    """Past outcomes of one cache. `days`: rows of the table worth; `steward`: of steward_days, by day.

    `plans`: items done, read and pending, and bytes as in outcomes (`bytes_pending`: on pending items);
    `models`: the same per version that plans followed (`none`: prefills).
    """

    plans: list[Row]
    models: list[Row]
    days: list[Row]
    steward: list[Row]


def history(settings: Settings, *, cache: str, since: str | None, until: str | None) -> History:
    """Outcomes of plans and of the steward, `since` … `until`. Raises StaleInputError if there is none."""
    cache, tables = settings.cache(cache).name, Tables.of(settings)
    where = {"since": since, "until": until, "owner": cache}
    watched = steward_days.by_day(tables, cache=cache, since=since, until=until)
    has_plans = bool(tables.head(OUTCOMES).select(**where))
    if not has_plans and not watched:
        raise StaleInputError(
            f"no plan of cache {cache!r} was accounted yet; run `cachecast outcomes --day` or `--as-of`"
        )
    days = tables.head(WORTH).rows(["day", *WORTH.column_names], **where).sort_by("day").to_pylist()
    if not has_plans:
        return History([], [], days, watched)
    rows = _with_uses(tables.read_arrow(OUTCOMES, columns=["as_of", "use", *STORED], **where))
    models = tables.head(PLANS).rows(["as_of", "model_version"], **where)
    by_plan = models.group_by("as_of").aggregate([("model_version", "max")])
    names = dict(zip(by_plan["as_of"].to_pylist(), by_plan["model_version_max"].to_pylist(), strict=True))
    followed = pa.array([names.get(as_of) or NO_MODEL for as_of in rows["as_of"].to_pylist()], pa.string())
    rows = rows.append_column("model_version", followed)
    return History(
        _grouped(rows, ["as_of", "model_version"]), _grouped(rows, ["model_version"]), days, watched
    )


def saved(days: Sequence[Row]) -> str:
    """For example `saved 12 GB of WAN traffic against plain LRU (4.2 %)`, of all `days` together."""
    saved, lru = (sum(row[name] for row in days) for name in ("saved_wan_bytes", "lru_wan_bytes"))
    share = f" ({percent(abs(saved) / lru, 1)})" if lru else ""
    verb = "saved" if saved >= 0 else "cost"
    return f"{verb} {format_bytes(abs(saved))} of WAN traffic against plain LRU{share}"


def judged(past: History) -> list[Row]:
    return [row for row in past.days if row["withheld"] is None]


def _with_uses(rows: pa.Table) -> pa.Table:
    """`rows` of outcomes, with what `_SUMS` has beside the stored counts; without `use` the hits say it."""
    is_pending = pc.fill_null(pc.equal(rows["use"], Use.PENDING), False)
    was_read = pc.coalesce(pc.equal(rows["use"], Use.READ), pc.greater(rows["n_hits"], 0))
    counts = {
        "read_items": was_read.cast(pa.int64()),
        "pending_items": is_pending.cast(pa.int64()),
        "bytes_pending": pc.if_else(is_pending, rows["bytes_spent"], 0),
    }
    return pa.table({name: rows[name] for name in rows.column_names} | counts)


def _grouped(rows: pa.Table, by: Sequence[str]) -> list[Row]:
    sums = rows.group_by(list(by)).aggregate([([], "count_all"), *((name, "sum") for name in _SUMS)])
    listed = sums.sort_by([(name, "ascending") for name in by]).to_pylist()
    return [
        {name: row[name] for name in by}
        | {"items": row["count_all"]}
        | {name: row[f"{name}_sum"] for name in _SUMS}
        for row in listed
    ]


def annotate_models(settings: Settings, *, cache: str) -> str | None:
    """Write what versions earned in `cache` so far as their tag `earned.CACHE`, and into their cards.

    Versions that the table trainings lacks are left out. Returns why MLflow could not be updated; None: it
    was, or nothing is known yet.
    """
    try:
        past = history(settings, cache=cache, since=None, until=None)
        known = trained_versions(Tables.of(settings), region=settings.region.name)
        texts = {version: text for version, text in earned(past).items() if version in known}
        if texts:
            at = registry(settings.mlflow)
            for version, text in texts.items():
                at.tag(version, {f"earned.{cache}": text})
                at.describe(version, f"Earned in {cache}", text)
    except StaleInputError:
        return None
    except ServiceError as error:
        return f"the outcomes are in the tables, but not in MLflow: {error}"
    return None


def earned(past: History) -> dict[str, str]:
    """In words, by version: the bytes of its plans, and of the days on which a steward followed its order."""
    words = {str(row["model_version"]): _of_plans(row) for row in past.models}
    days: dict[str, list[Row]] = {}
    for row in past.steward:
        days.setdefault(str(row["model_version"]), []).append(row)
    for version, rows in days.items():
        evictions = f"Evictions: on {len(rows)} days the steward {saved(rows)}, by its own count."
        words[version] = " ".join(filter(None, (words.get(version), evictions)))
    return words


def _of_plans(row: Row) -> str:
    saved, spent, wasted, pending = (
        format_bytes(row[name]) for name in ("bytes_saved", "bytes_spent", "bytes_wasted", "bytes_pending")
    )
    return (
        f"Plans: {row['read_items']} of {row['items']} items were read, {row['pending_items']} not yet; "
        f"{saved} saved, {spent} spent, {wasted} of it wasted and {pending} pending."
    )


def write_page(past: History, *, cache: str, out: Path) -> None:
    sections = [
        Section(
            "Days against plain LRU",
            "LRU is replayed on the same reads. A day is withheld if the replay of the pushes differs by "
            "more than 2 % from the hit bytes that the cache reports, or if its records are too short. "
            "Shares: of the bytes read, by reads that fetched nothing.",
            _plots(judged(past)),
            [{name: row[name] for name in _OF_DAYS} | {"reason": row["withheld"] or ""} for row in past.days],
        ),
        Section(
            "Days of the steward",
            "By its own count: bytes of the files that were read while not on disk, and of those that plain "
            "LRU would not have had on disk.",
            _plots(past.steward, " by the steward"),
            past.steward,
        ),
        Section("Model versions", f"All items done by pushes for its plans. {OUTCOME_NOTE}", (), past.models),
        Section("Plans", OUTCOME_NOTE, (), past.plans),
    ]
    answers = [verdict(past)] if past.plans or past.days else []
    if past.steward:
        answers.append(f"By its own count the steward {saved(past.steward)} on {len(past.steward)} days.")
    html = page(
        title=f"Outcomes of {cache}",
        subtitle="cachecast outcomes",
        answers=answers,
        sections=[section for section in sections if section.rows],
    )
    files.write(out, html)


def _plots(days: list[Row], by: str = "") -> list[Figure]:
    return [Figure(saved_by_day(days), f"WAN bytes saved{by} against LRU, per day")] if days else []


def verdict(past: History) -> str:
    days = judged(past)
    if not days:
        return f"No day of {len(past.days)} could be judged."
    return f"{len(days)} of {len(past.days)} days could be judged: on them plans and steward {saved(days)}."
