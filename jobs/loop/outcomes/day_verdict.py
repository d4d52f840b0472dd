"""The verdict on one day of a cache's plans: records and receipts in, a row of the worth table out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray
from features.common.errors import NotDueError
from features.common.times import DAY_S, as_of_label, day_label, parse_as_of
from features.results import WORTH
from features.schema import ACCESSES, CONTENTS, PLANS, RECEIPTS
from jobs.ground.caches import steward_days
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.sizes import agreed
from jobs.ground.store.tables import Tables
from prefetch.accounting.day_verdict import (
    CacheContents,
    CacheRecord,
    PushedActions,
    ReplayedDay,
    StewardShadow,
    beginning,
    judge_day,
)
from prefetch.actions import Action, ItemState
from prefetch.plan.rules import is_control
from prefetch.plan.value import OLDEST_S
from replay.config import CacheConfig
from replay.trace import Trace

BLOCK_BYTES = 2**20
"""Block size of the replay: an XCache fetches the blocks of a file that are read, of about this size."""

_READ = [
    *("did", "cache", "source", "event_id", "accessed_at", "closed_at"),
    *("size_bytes", "read_bytes", "bytes_hit", "bytes_missed"),
]
_CODES = {action.value: action.code for action in Action}


@dataclasses.dataclass(frozen=True)
class DayVerdict(ReplayedDay):
    """The verdict on one day of one cache, with the bytes pushed; see `features.results.WORTH`."""

    day: str = ""
    cache: str = ""
    model_versions: str = ""
    prefetched_bytes: int = 0


def run(tables: Tables, settings: Settings, *, cache: str, day_s: int) -> DayVerdict:
    """Judge the plans of `cache` on the day that starts at `day_s`, and write the verdict.

    Raises NotDueError without the cache's own records: the alarm `incomplete` names the source that is late.
    """
    chosen = settings.cache(cache)
    reads, pushed = _own_reads(tables, chosen, day_s), _pushed(tables, cache, day_s)
    low, high = chosen.watermarks
    begin_s, n_turns = beginning(
        *_bytes_brought_in(reads, pushed), age_bytes=int(low * chosen.capacity), day_s=day_s
    )
    held, held_s = _latest_inventory(tables, cache, begin_s)
    record = _record(tables, reads, pushed, held, settings.plan.control_share)
    begin = None if held_s is None else _inventory(record, held, held_s)
    record = dataclasses.replace(record, begin=begin, n_turns=n_turns)
    config = CacheConfig(chosen.capacity, low, high, chosen.purge_interval, block_bytes=BLOCK_BYTES)
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
    """What the cache's steward counted on the day; None if it had none."""
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
    """Items that pushes completed in that cache up to the end of the day, in order of time."""
    items, receipts = _EMPTY_ITEMS, _EMPTY_RECEIPTS
    since, until = day_label(day_s - OLDEST_S), day_label(day_s)
    if tables.exists(PLANS) and tables.exists(RECEIPTS):
        where = {"since": since, "until": until, "owner": cache}
        items = tables.read_arrow(PLANS, columns=_EMPTY_ITEMS.column_names, **where)
        receipts = tables.read_arrow(RECEIPTS, columns=_EMPTY_RECEIPTS.column_names, **where)
    receipts = receipts.filter(pc.equal(receipts["state"], ItemState.DONE))
    rows = receipts.join(items, "item_id", join_type="inner")
    rows = rows.append_column("done_s", _seconds(rows["updated_at"]))
    return rows.filter(pc.less(rows["done_s"], day_s + DAY_S)).sort_by(
        [("done_s", "ascending"), ("item_id", "ascending")]
    )


_UTC = pa.timestamp("us", tz="UTC")
_EMPTY_ITEMS = pa.schema(
    [
        ("item_id", pa.string()),
        ("size_bytes", pa.int64()),
        ("model_version", pa.string()),
    ]
).empty_table()
_EMPTY_HELD = pa.schema(
    [("did", pa.string()), ("size_bytes", pa.int64()), ("bytes_on_disk", pa.int64()), ("last_detach", _UTC)]
).empty_table()
_EMPTY_RECEIPTS = pa.schema(
    [(name, pa.string()) for name in ("item_id", "did", "action", "state")]
    + [("bytes", pa.int64()), ("updated_at", _UTC)]
).empty_table()


def _bytes_brought_in(reads: pa.Table, pushed: pa.Table) -> tuple[IntArray, IntArray]:
    """Times and sizes of what came into the cache: bytes missed by reads, and prefetched bytes."""
    fetched = pushed.filter(pc.equal(pushed["action"], Action.PREFETCH))
    time_s = np.concatenate([_ints(_seconds(reads["accessed_at"])), _ints(fetched["done_s"])])
    return time_s, np.concatenate([_ints(pc.fill_null(reads["bytes_missed"], 0)), _ints(fetched["bytes"])])


def _latest_inventory(tables: Tables, cache: str, begin_s: int | None) -> tuple[pa.Table, int | None]:
    """The cache's latest inventory at or before `begin_s`, and its time; an empty cache if there is none."""
    if begin_s is None or not tables.exists(CONTENTS):
        return _EMPTY_HELD, begin_s
    since, until = day_label(begin_s - OLDEST_S), day_label(begin_s)
    taken = tables.snapshot(CONTENTS).select(since=since, until=until, owner=cache)
    times_s = [at_s for key in taken if (at_s := parse_as_of(key[1])) <= begin_s]
    if not times_s:
        return _EMPTY_HELD, begin_s
    rows = tables.read_arrow(
        CONTENTS, as_of=as_of_label(times_s[-1]), owner=cache, columns=_EMPTY_HELD.column_names
    )
    return rows, times_s[-1]


def _record(
    tables: Tables, reads: pa.Table, pushed: pa.Table, held: pa.Table, control_share: float
) -> CacheRecord:
    """What happened; a read of a file whose size nothing states cannot be replayed."""
    stated = pa.concat_tables(rows.select(["did", "size_bytes"]) for rows in (reads, pushed, held))
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


def _inventory(record: CacheRecord, held: pa.Table, at_s: int) -> CacheContents:
    last_use_s = _ints(pc.fill_null(_seconds(held["last_detach"]), at_s))
    item = _ints(pc.index_in(held["did"], value_set=record.trace.names))
    return CacheContents(at_s, item, _ints(held["bytes_on_disk"]), last_use_s)


def _seconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(times.cast(_UTC).cast(pa.int64()), 1_000_000)


def _ints(column: pa.ChunkedArray) -> IntArray:
    numbers: IntArray = column.to_numpy().astype(np.int64)
    return numbers
