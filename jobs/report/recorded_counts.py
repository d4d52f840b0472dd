"""Hits and misses as caches recorded them, counted by hour, cache and origin."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.common.times import HOUR_S
from features.schema import ACCESSES
from jobs.ingest import sources
from jobs.store.tables import Tables, read_partitions
from replay.study.benefit import Region
from replay.study.origins import regions_of

COUNTED = ("hits", "misses", "hit_bytes", "missed_bytes")


def counts_of_day(tables: Tables, day: str, regions: Sequence[Region]) -> pa.Table:
    """Reads and bytes of one day by hour (since 1970), cache and origin's region."""
    head = tables.head(ACCESSES)
    columns = ["source", "cache", "origin", "accessed_at", "n_reads", "bytes_hit", "bytes_missed"]
    rows = read_partitions(head, head.select(since=day, until=day), columns)
    of_caches = sources.those(rows["source"].unique().to_pylist(), lambda source: source.of_caches)
    is_told = pc.and_(pc.is_valid(rows["bytes_hit"]), pc.is_valid(rows["cache"]))
    rows = rows.filter(pc.and_(is_told, pc.is_in(rows["source"], pa.array(of_caches, pa.string()))))
    streamed = rows.filter(pc.equal(rows["source"], "xcache_gstream"))["cache"].unique()
    is_again = pc.and_(pc.not_equal(rows["source"], "xcache_gstream"), pc.is_in(rows["cache"], streamed))
    rows = rows.filter(pc.invert(is_again))
    rows = rows.filter(pc.greater(pc.add(rows["bytes_hit"], pc.fill_null(rows["bytes_missed"], 0)), 0))
    code, names = regions_of(rows["origin"], regions)
    # As whole numbers the sums of absurd records would not fit into 64 bits.
    hit, missed = (
        pc.fill_null(rows[name], 0).cast(pa.float64(), safe=False) for name in ("bytes_hit", "bytes_missed")
    )
    reads, is_hit = rows["n_reads"], pc.greater(hit, missed)
    hour = pc.divide(rows["accessed_at"].cast(pa.int64()), HOUR_S * 1_000_000)
    table = pa.table(
        {
            "hour": hour,
            "cache": rows["cache"],
            "origin": pa.array(names, pa.string()).take(pa.array(code)),
            "hits": pc.if_else(is_hit, reads, 0),
            "misses": pc.if_else(is_hit, 0, reads),
            "hit_bytes": hit,
            "missed_bytes": missed,
        }
    )
    return sums_by(table, "hour", "cache", "origin")


def sums_by(counts: pa.Table, *by: str) -> pa.Table:
    """The counts summed by columns."""
    sums = counts.group_by(list(by)).aggregate([(name, "sum") for name in COUNTED])
    return sums.rename_columns({f"{name}_sum": name for name in COUNTED}).select([*by, *COUNTED])
