"""Hits and misses as caches recorded them, counted by hour and cache."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from features.common.times import HOUR_S
from features.schema import ACCESSES
from jobs.ground.store.tables import Tables, read_partitions
from jobs.loop.ingest import sources

COUNTED = ("hits", "misses", "unknown_reads", "read_bytes", "hit_bytes", "missed_bytes")
_COLUMNS = [
    *("source", "cache", "did", "origin", "accessed_at", "n_reads"),
    *("read_bytes", "bytes_hit", "bytes_missed"),
]


def counts_of_day(tables: Tables, day: str) -> pa.Table:
    """Reads and bytes of one day by hour (since 1970) and cache.

    `unknown_reads`: of which the cache does not say what it fetched; they are in none of the others.
    `missed_bytes` were fetched, read or not.
    """
    return sums_by(recorded_reads(tables, day), "hour", "cache")


def sums_by(counts: pa.Table, *by: str) -> pa.Table:
    """The counts summed by columns."""
    sums = counts.group_by(list(by)).aggregate([(name, "sum") for name in COUNTED])
    return sums.rename_columns({f"{name}_sum": name for name in COUNTED}).select([*by, *COUNTED])


def recorded_reads(tables: Tables, day: str) -> pa.Table:
    """The reads in caches' own records of one day; those of a second source do not count again."""
    head = tables.head(ACCESSES)
    rows = read_partitions(head, head.select(since=day, until=day), _COLUMNS)
    of_caches = sources.those(rows["source"].unique().to_pylist(), lambda source: source.of_caches)
    is_recorded = pc.is_in(rows["source"], pa.array(of_caches, pa.string()))
    rows = rows.filter(pc.and_(pc.is_valid(rows["cache"]), is_recorded))
    streamed = rows.filter(pc.equal(rows["source"], "xcache_gstream"))["cache"].unique()
    is_again = pc.and_(pc.not_equal(rows["source"], "xcache_gstream"), pc.is_in(rows["cache"], streamed))
    rows = rows.filter(pc.invert(is_again))
    # As whole numbers the sums of absurd records would not fit into 64 bits.
    hit, missed, read = (
        rows[name].cast(pa.float64(), safe=False) for name in ("bytes_hit", "bytes_missed", "read_bytes")
    )
    is_known = pc.and_(pc.is_valid(hit), pc.is_valid(missed))
    is_hit = pc.greater(hit, missed)
    read = pc.coalesce(read, pc.add(hit, missed))
    counts = {
        "hits": pc.if_else(is_hit, rows["n_reads"], 0),
        "misses": pc.if_else(is_hit, 0, rows["n_reads"]),
        "read_bytes": read,
        "hit_bytes": hit,
        "missed_bytes": missed,
    }
    table = pa.table(
        {
            "hour": pc.divide(rows["accessed_at"].cast(pa.int64()), HOUR_S * 1_000_000),
            **{name: rows[name] for name in ("cache", "did", "origin", "accessed_at")},
            **{name: pc.if_else(is_known, column, 0) for name, column in counts.items()},
            "unknown_reads": pc.if_else(is_known, 0, rows["n_reads"]),
        }
    )
    return table.filter(pc.or_kleene(pc.invert(is_known), pc.greater(pc.add(read, missed), 0)))
