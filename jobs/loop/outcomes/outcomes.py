"""The verdict on one day of a cache's plans: records and receipts in, a row of the worth table out."""

import dataclasses
import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray
from features.common.errors import NotDueError, StaleInputError
from features.common.times import DAY_S, day_label, parse_as_of
from features.results import WORTH
from features.schema import ACCESSES, CONTENTS, OUTCOMES, PLANS, RECEIPTS
from jobs.ground.caches import steward_days
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.commits import Key, MomentKey
from jobs.ground.store.sizes import agreed
from jobs.ground.store.tables import Tables
from jobs.loop.outcomes.history import STORED
from jobs.loop.plan.file_facts import files_and_hours
from prefetch.actions import Action, ItemState
from prefetch.day_verdict import (
    CacheContents,
    CacheRecord,
    PushedActions,
    ReplayedDay,
    StewardShadow,
    beginning,
    judge_day,
)
from prefetch.outcomes import Use, outcomes
from prefetch.plan.rules import is_control
from prefetch.plan.value import OLDEST_S
from replay.config import CacheConfig
from replay.trace import Trace

BLOCK_BYTES = 2**20  # of the replay: an XCache fetches the blocks that are read, of about this size
_READ = [
    *("did", "cache", "source", "event_id", "accessed_at", "closed_at"),
    *("size_bytes", "read_bytes", "bytes_hit", "bytes_missed"),
]
_CODES = {action.value: action.code for action in Action}
_UTC = pa.timestamp("us", tz="UTC")
_READ_COLUMNS = [
    *("did", "cache", "accessed_at", "closed_at", "known_at"),
    *("bytes_hit", "bytes_missed", "n_reads"),
]


@dataclasses.dataclass(frozen=True)
class DayVerdict(ReplayedDay):
    """The verdict on one day of one cache, with the bytes pushed; see `features.results.WORTH`."""

    day: str = ""
    cache: str = ""
    model_versions: str = ""
    prefetched_bytes: int = 0


def _verdict_of(tables: Tables, settings: Settings, *, cache: str, day_s: int) -> DayVerdict:
    """Judge a day's plans, and write the verdict. Raises NotDueError without the cache's own records."""
    configured = settings.cache(cache)
    reads, pushed = _own_reads(tables, configured, day_s), _pushed(tables, cache, day_s)
    low, high = configured.watermarks
    # What came into the cache: bytes missed by reads, and prefetched bytes.
    brought = pushed.filter(pc.equal(pushed["action"], Action.PREFETCH))
    time_s = np.concatenate([_ints(_seconds(reads["accessed_at"])), _ints(brought["done_s"])])
    n_bytes = np.concatenate([_ints(pc.fill_null(reads["bytes_missed"], 0)), _ints(brought["bytes"])])
    age_bytes = int(low * configured.capacity)
    begin_s, n_turns = beginning(time_s, n_bytes, age_bytes=age_bytes, day_s=day_s)
    head, keys = tables.head(CONTENTS), list[Key]()
    if begin_s is not None:
        since, until = day_label(begin_s - OLDEST_S), day_label(begin_s)
        inventories = head.select(since=since, until=until, owner=cache)
        keys = [key for key in inventories if parse_as_of(key[1]) <= begin_s][-1:]
    columns = ["did", "size_bytes", "bytes_on_disk", "last_detach"]
    held = head.rows_of(keys, columns)
    held_s = parse_as_of(keys[0][1]) if keys else begin_s
    record = _record(tables, reads, pushed, held, settings.plan.control_share)
    begin = None
    if held_s is not None:
        last_use_s = _ints(pc.fill_null(_seconds(held["last_detach"]), held_s))
        item = _ints(pc.index_in(held["did"], value_set=record.trace.names))
        begin = CacheContents(held_s, item, _ints(held["bytes_on_disk"]), last_use_s)
    record = dataclasses.replace(record, begin=begin, n_turns=n_turns)
    config = CacheConfig(configured.capacity, low, high, configured.purge_interval, block_bytes=BLOCK_BYTES)
    pushed_that_day = pushed.filter(pc.greater_equal(pushed["done_s"], day_s))
    fetched = pushed_that_day.filter(pc.equal(pushed_that_day["action"], Action.PREFETCH))
    prefetched_bytes = pc.sum(fetched["bytes"]).as_py() or 0
    judged = judge_day(record, config, day_s=day_s, shadow=_shadow(tables, cache, day_s, prefetched_bytes))
    versions = sorted(pc.unique(pushed_that_day["model_version"].drop_null()).to_pylist())
    verdict = DayVerdict(
        **dataclasses.asdict(judged),
        day=day_label(day_s),
        cache=cache,
        model_versions=", ".join(versions),
        prefetched_bytes=prefetched_bytes,
    )
    row = dataclasses.asdict(verdict)
    tables.replace_rows(WORTH, [{n: row[n] for n in WORTH.column_names}], (verdict.day, cache))
    return verdict


def _shadow(tables: Tables, cache: str, day_s: int, prefetched_bytes: int) -> StewardShadow | None:
    runs = steward_days.of_day(tables, cache=cache, day=day_label(day_s))
    if not runs:
        return None
    watched_s, lru_wan_bytes = (sum(run[name] for run in runs) for name in ("watched_s", "lru_wan_bytes"))
    return StewardShadow(watched_s, lru_wan_bytes, prefetched_bytes)


def _own_reads(tables: Tables, cache: CacheSettings, day_s: int) -> pa.Table:
    """The reads up to the end of the day in the cache's own records, in order of time."""
    if not tables.exists(ACCESSES):
        raise NotDueError("no access was pulled yet; pull the cache's own records (xcache_gstream)")
    since, until = day_label(day_s - OLDEST_S), day_label(day_s)
    rows = tables.read_arrow(ACCESSES, since=since, until=until, columns=_READ)
    rows = rows.filter(pc.and_(pc.equal(rows["cache"], cache.name), pc.is_valid(rows["bytes_hit"])))
    if not rows.num_rows:
        raise NotDueError(
            f"there is no record of cache {cache.name!r} itself from {since} to {until}; pull its own "
            "records (xcache_gstream)"
        )
    sources = rows.group_by("source").aggregate([([], "count_all")]).sort_by("count_all").to_pylist()
    # A read that a second source reports too would count twice.
    rows = rows.filter(pc.equal(rows["source"], sources[-1]["source"]))
    return rows.sort_by([("accessed_at", "ascending"), ("event_id", "ascending")])


def _pushed(tables: Tables, cache: str, day_s: int) -> pa.Table:
    where = {"since": day_label(day_s - OLDEST_S), "until": day_label(day_s), "owner": cache}
    items = tables.head(PLANS).rows(["item_id", "size_bytes", "model_version"], **where)
    columns = ["item_id", "did", "action", "state", "bytes", "updated_at"]
    receipts = tables.head(RECEIPTS).rows(columns, **where)
    receipts = receipts.filter(pc.equal(receipts["state"], ItemState.DONE))
    rows = receipts.join(items, "item_id", join_type="inner")
    rows = rows.append_column("done_s", _seconds(rows["updated_at"]))
    return rows.filter(pc.less(rows["done_s"], day_s + DAY_S)).sort_by(
        [("done_s", "ascending"), ("item_id", "ascending")]
    )


def _record(
    tables: Tables, reads: pa.Table, pushed: pa.Table, held: pa.Table, control_share: float
) -> CacheRecord:
    """What happened; a read of a file whose size nothing states cannot be replayed."""
    sizes = [rows.select(["did", "size_bytes"]) for rows in (reads, pushed, held)]
    stated = pa.concat_tables(sizes, promote_options="default")
    dids = pc.unique(stated["did"])
    size = np.maximum(0, agreed(tables, dids, stated))
    reads = reads.filter(pa.array(size > 0).take(pc.index_in(reads["did"], value_set=dids)))
    if not reads.num_rows:
        raise NotDueError("no read of the cache's own records has a size; pull the catalogue")
    item, placed = (_ints(pc.index_in(rows["did"], value_set=dids)) for rows in (reads, pushed))
    hit, fetched = _ints(reads["bytes_hit"]), _ints(pc.fill_null(reads["bytes_missed"], 0))
    # The replay knows reads of so many bytes, not which blocks of a file they touch, nor what was read ahead.
    read = _ints(pc.fill_null(reads["read_bytes"], 2**62))
    missed = np.minimum(fetched, np.maximum(0, read - hit))
    time_s = _ints(_seconds(reads["accessed_at"]))
    closed_s = _ints(_seconds(pc.coalesce(reads["closed_at"], reads["accessed_at"])))
    trace = Trace(
        time_s,
        item.astype(np.int32),
        size,
        dids,
        np.maximum(time_s, closed_s),
        np.minimum(hit + missed, size[item]),
    )
    action = np.array([_CODES[name] for name in pushed["action"].to_pylist()], np.int64)
    done = PushedActions(_ints(pushed["done_s"]), placed, action)
    return CacheRecord(trace, hit, missed, done, is_control(dids.to_pylist(), control_share), None, 0.0)


def _seconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(times.cast(_UTC).cast(pa.int64()), 1_000_000)


def _ints(column: pa.ChunkedArray) -> IntArray:
    numbers: IntArray = column.to_numpy().astype(np.int64)
    return numbers


def of_day(settings: Settings, *, cache: str, day_s: int) -> DayVerdict:
    """Account again the plans whose files could be read on a day, or expired by its end; judge the day."""
    tables = Tables.of(settings)
    since = day_label(day_s - settings.plan.horizon)
    if tables.exists(RECEIPTS):
        recent = tables.snapshot(RECEIPTS).select(since=since, until=day_label(day_s), owner=cache)
        for as_of in sorted({key[1] for key in recent} | _expired(tables, settings, cache, day_s + DAY_S)):
            of_plan(settings, cache=cache, as_of_s=parse_as_of(as_of), until_s=day_s + DAY_S)
    return _verdict_of(tables, settings, cache=cache, day_s=day_s)


def _expired(tables: Tables, settings: Settings, cache: str, until_s: int) -> set[str]:
    """The plans that have items accounted as pending which expired by `until_s`."""
    since, until = day_label(until_s - DAY_S - max(settings.features.horizons)), day_label(until_s)
    columns = ["as_of", "use", "expires_at"]
    rows = tables.head(OUTCOMES).rows(columns, since=since, until=until, owner=cache)
    is_over = pc.less_equal(rows["expires_at"], dt.datetime.fromtimestamp(until_s, dt.UTC))
    return set(rows.filter(pc.and_(pc.equal(rows["use"], Use.PENDING), is_over))["as_of"].to_pylist())


@dataclasses.dataclass(frozen=True)
class QueueOutcome:
    """Of the files that `queue` announced: those pushed, those read, and what their hits saved.

    `waiting_hours`: core hours of waiting for their origins, by the benefit model.
    """

    queue: str
    files: int
    files_read: int
    bytes_saved: int
    waiting_hours: float


@dataclasses.dataclass(frozen=True)
class OutcomeSummary:
    """One plan's earnings; bytes, and what `read`, `pending` and `unread` mean, as in the outcomes table.

    `bytes_pending`: spent on pending files; `queues`: what of this is of files that a queue announced.
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
    queues: tuple[QueueOutcome, ...] = ()

    @property
    def in_words(self) -> str:
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

    An item expires unread when the records, or `until_s`, reach past its time. Raises StaleInputError.
    """
    tables, cache = Tables.of(settings), settings.cache(cache).name
    key = MomentKey.at(as_of_s, cache)
    if not tables.exists(RECEIPTS):
        raise StaleInputError(f"no receipts of cache {cache!r} at {key.as_of}; push first")
    receipts = tables.read_arrow(RECEIPTS, as_of=key.as_of, owner=cache).to_pandas()
    reads = tables.read_arrow(ACCESSES, since=key.day, columns=_READ_COLUMNS)
    # Records of other sources lack the bytes that the cache served.
    is_own = pc.and_(pc.equal(reads["cache"], cache), pc.is_valid(reads["bytes_hit"]))
    own: pd.DataFrame = reads.filter(is_own).to_pandas()
    until = max([dt.datetime.fromtimestamp(until_s, dt.UTC), *own["known_at"].nlargest(1)])
    columns = ["item_id", "expires_at", "queues"]
    items: pd.DataFrame = tables.head(PLANS).rows(columns, as_of=key.as_of, owner=key.owner).to_pandas()
    receipts = receipts.merge(items[["item_id", "expires_at"]], on="item_id", how="left")
    if len(items):  # else the plan is gone
        receipts = receipts.fillna({"expires_at": items["expires_at"].max()})
    outcome_rows = outcomes(receipts, own, until=until)
    tables.replace_partition(OUTCOMES, pa.Table.from_pandas(outcome_rows, preserve_index=False), key)
    announced = outcome_rows.merge(items[["item_id", "queues"]].dropna(), on="item_id")
    queues = _of_queues(settings, tables, announced) if len(announced) else ()
    counts: dict[str, int] = {}
    for action, files in ((Action.PREFETCH, "prefetched_files"), (Action.PIN, "pinned_files")):
        uses = outcome_rows.loc[outcome_rows["action"] == action, "use"]
        counts |= {files: len(uses)} | {f"{files}_{use}": int((uses == use).sum()) for use in Use}
    counts |= {name: int(outcome_rows[name].sum()) for name in STORED}
    pending = int(outcome_rows.loc[outcome_rows["use"] == Use.PENDING, "bytes_spent"].sum())
    return OutcomeSummary(cache=cache, as_of=key.as_of, bytes_pending=pending, queues=queues, **counts)


def _of_queues(settings: Settings, tables: Tables, rows: pd.DataFrame) -> tuple[QueueOutcome, ...]:
    """The outcomes `rows` by queue that announced them; one that several announced counts for each."""
    _, hours = files_and_hours(settings, tables, pa.array(rows["did"], pa.string()))
    waiting = rows["bytes_saved"] * np.maximum(0.0, hours.missed - hours.hit)
    was_read = rows["use"] == Use.READ
    each = rows.assign(queue=rows["queues"].str.split(", "), waiting=waiting, was_read=was_read)
    sums = each.explode("queue").groupby("queue")
    of = sums.agg(files=("did", "size"), **{n: (n, "sum") for n in ("was_read", "bytes_saved", "waiting")})
    return tuple(QueueOutcome(str(queue), *row) for queue, *row in of.reset_index().to_numpy().tolist())
