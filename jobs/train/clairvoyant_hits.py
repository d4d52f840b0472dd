"""The hits of the clairvoyant on the accesses of a training window."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from features.common.errors import SchemaError
from jobs.store.tables import Tables
from jobs.store.traces import from_tables
from replay.policies.clairvoyant import clairvoyant_bypass


def clairvoyant_hits(
    tables: Tables, *, since_s: int, until_s: int, share: float, demand_sources: Mapping[str, str]
) -> pa.Table:
    """Columns did, at (seconds; unique together): the seconds in which the first read of a file was a hit.

    The cache starts empty at `since_s` and holds `share` of the bytes of all files read. The clairvoyant
    knows the reads that were known before `until_s`; after the last of them, a file counts as never read
    again. Raises StaleInputError without accesses.
    """
    loaded = from_tables(
        tables,
        since_s=since_s,
        until_s=until_s - 1,
        demand_sources=demand_sources,
        known_before_s=until_s,
    )
    trace = loaded.trace
    if trace.names is None:
        raise SchemaError("table accesses: the replay has no names for its files")
    hit = np.zeros(trace.n_accesses, np.bool_)
    clairvoyant_bypass(trace, max(1, int(share * trace.footprint_bytes)), hit)
    # A stable sort by file keeps the accesses of a file in time order: a new second is a change.
    order = np.argsort(trace.item, kind="stable")
    item, at = trace.item[order], trace.time_s[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (item[1:] != item[:-1]) | (at[1:] != at[:-1])
    chosen = is_first & hit[order]
    names = trace.names.take(pa.array(item[chosen]))
    return pa.table({"did": names, "at": pa.array(at[chosen], pa.int64())})
