"""Outcomes of plans: those of one plan, of a day, and all accounted so far, also in MLflow's cards."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import ServiceError, StaleInputError
from features.common.times import DAY_S, day_label, parse_as_of
from features.common.units import format_bytes
from features.results import WORTH
from features.schema import ACCESSES, OUTCOMES, PLANS, RECEIPTS, arrow_schema
from jobs.ground.caches import steward_days
from jobs.ground.settings.tree import Settings
from jobs.ground.store.keys import MomentKey
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row, percent
from jobs.loop.outcomes import day_verdict
from jobs.loop.outcomes.day_verdict import DayVerdict
from jobs.loop.train.registry import registry
from jobs.loop.trainings import trained_versions
from prefetch.accounting.outcomes import Use, outcomes
from prefetch.actions import Action

_STORED = ("n_hits", "bytes_saved", "bytes_spent", "bytes_wasted")
_SUMS = ("read_items", "pending_items", *_STORED, "bytes_pending")
NO_MODEL = "none"


@dataclasses.dataclass(frozen=True)
class History:
    """Past outcomes of one cache. `days`: rows of the table worth; `steward`: of steward_days, by day.

    `plans`: per plan the items done, those read and those pending, and bytes as in the table outcomes;
    `bytes_pending`: spent on pending items; `models`: the same per model version that the plans followed
    (`none`: prefills).
    """

    plans: list[Row]
    models: list[Row]
    days: list[Row]
    steward: list[Row]


def of_day(settings: Settings, *, cache: str, day_s: int) -> DayVerdict:
    """Account again the plans whose files could be read on a day, or expired by its end; judge the day."""
    tables = Tables(settings.tables.root)
    since = day_label(day_s - settings.plan.horizon)
    if tables.exists(RECEIPTS):
        recent = tables.snapshot(RECEIPTS).select(since=since, until=day_label(day_s), owner=cache)
        for as_of in sorted({key[1] for key in recent} | _expired(tables, settings, cache, day_s + DAY_S)):
            of_plan(settings, cache=cache, as_of_s=parse_as_of(as_of), until_s=day_s + DAY_S)
    return day_verdict.run(tables, settings, cache=cache, day_s=day_s)


def _expired(tables: Tables, settings: Settings, cache: str, until_s: int) -> set[str]:
    """The plans that have items accounted as pending which expired by `until_s`."""
    if not tables.exists(OUTCOMES):
        return set()
    since, until = day_label(until_s - DAY_S - max(settings.features.horizons)), day_label(until_s)
    columns = ["as_of", "use", "expires_at"]
    rows = tables.read_arrow(OUTCOMES, columns=columns, since=since, until=until, owner=cache)
    is_over = pc.less_equal(rows["expires_at"], dt.datetime.fromtimestamp(until_s, dt.UTC))
    return set(rows.filter(pc.and_(pc.equal(rows["use"], Use.PENDING), is_over))["as_of"].to_pylist())


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
    rows = _with_uses(tables.read_arrow(OUTCOMES, columns=["as_of", "use", *_STORED], **where))
    models = arrow_schema(PLANS).append(pa.field("as_of", pa.string())).empty_table()
    if tables.exists(PLANS):
        models = tables.read_arrow(PLANS, columns=["as_of", "model_version"], **where)
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
    """The days of the table worth that have a verdict."""
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
        known = trained_versions(Tables(settings.tables.root), region=settings.region.name)
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
    saved, spent, wasted, pending = (
        format_bytes(row[name]) for name in ("bytes_saved", "bytes_spent", "bytes_wasted", "bytes_pending")
    )
    return (
        f"Plans: {row['read_items']} of {row['items']} items were read, {row['pending_items']} not yet; "
        f"{saved} saved, {spent} spent, {wasted} of it wasted and {pending} pending."
    )


def _of_order(days: Sequence[Row]) -> str:
    return f"Evictions: on {len(days)} days the steward {saved(days)}, by its own count."


_READ_COLUMNS = [
    *("did", "cache", "accessed_at", "closed_at", "known_at"),
    *("bytes_hit", "bytes_missed", "n_reads"),
]


@dataclasses.dataclass(frozen=True)
class OutcomeSummary:
    """One plan's earnings; bytes, and what `read`, `pending` and `unread` mean, as in the outcomes table.

    `bytes_pending`: spent on pending files.
    """

    cache: str
    as_of: str
    prefetched_files: int
    prefetched_files_read: int
    prefetched_files_pending: int
    prefetched_files_unread: int
    pinned_files: int
    pinned_files_read: int
    pinned_files_pending: int
    pinned_files_unread: int
    n_hits: int
    bytes_saved: int
    bytes_spent: int
    bytes_pending: int
    bytes_wasted: int

    @property
    def in_words(self) -> str:
        """What became of the pushed files, in one sentence."""
        parts = []
        for files in ("prefetched_files", "pinned_files"):
            n, read, pending, unread = (
                getattr(self, f"{files}{end}") for end in ("", "_read", "_pending", "_unread")
            )
            what = files.replace("_", " ")
            parts.append(f"{n} {what}: {read} read, {pending} not read yet, {unread} expired or gone unread")
        return "; ".join(parts) + "."


def of_plan(settings: Settings, *, cache: str, as_of_s: int, until_s: int = 0) -> OutcomeSummary:
    """Write the outcomes of the plan of `cache` at `as_of_s`, as far as its reads are known by now.

    An item expires unread when the cache's records reach past its time, or `until_s` is. Raises
    StaleInputError without receipts.
    """
    tables, cache = Tables(settings.tables.root), settings.cache(cache).name
    key = MomentKey.at(as_of_s, cache)
    if not tables.exists(RECEIPTS):
        raise StaleInputError(f"no receipts of cache {cache!r} at {key.as_of}; push first")
    receipts = tables.read_arrow(RECEIPTS, as_of=key.as_of, owner=cache).to_pandas()
    accesses = tables.read_arrow(ACCESSES, since=key.day, columns=_READ_COLUMNS).to_pandas()
    # Records of other sources lack the bytes that the cache served.
    own = accesses[(accesses["cache"] == cache) & accesses["bytes_hit"].notna()]
    until = max(dt.datetime.fromtimestamp(until_s, dt.UTC), *own["known_at"].nlargest(1))
    outcome_rows = outcomes(_with_expiry(tables, receipts, key), own, until=until)
    tables.replace_partition(OUTCOMES, pa.Table.from_pandas(outcome_rows, preserve_index=False), key)
    return _plan_summary(cache, key.as_of, outcome_rows)


def _with_expiry(tables: Tables, receipts: pd.DataFrame, key: MomentKey) -> pd.DataFrame:
    """`receipts` with `expires_at` of their items; an item that was planned no more has the plan's latest.

    Null where there is no plan any more: such an item stays pending until it is read.
    """
    if not tables.exists(PLANS):
        return receipts.assign(expires_at=pd.Series(pd.NaT, receipts.index))
    columns = ["item_id", "expires_at"]
    plan = tables.read_arrow(PLANS, as_of=key.as_of, owner=key.owner, columns=columns).to_pandas()
    rows = receipts.merge(plan, on="item_id", how="left")
    return rows.fillna({"expires_at": plan["expires_at"].max()}) if len(plan) else rows


def _plan_summary(cache: str, as_of: str, rows: pd.DataFrame) -> OutcomeSummary:
    counts: dict[str, int] = {}
    for action, files in ((Action.PREFETCH, "prefetched_files"), (Action.PIN, "pinned_files")):
        uses = rows.loc[rows["action"] == action, "use"]
        counts |= {files: len(uses)} | {f"{files}_{use}": int((uses == use).sum()) for use in Use}
    pending = int(rows.loc[rows["use"] == Use.PENDING, "bytes_spent"].sum())
    sums = {name: int(rows[name].sum()) for name in _STORED}
    return OutcomeSummary(cache=cache, as_of=as_of, bytes_pending=pending, **counts, **sums)
