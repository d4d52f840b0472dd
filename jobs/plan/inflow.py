"""The recent inflow of a cache, by its own records."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.times import DAY_S, day_label
from features.common.units import duration_label, format_bytes
from features.schema import ACCESSES
from jobs.settings.tree import CacheSettings
from jobs.store.tables import Tables

MOST_BYTES_PER_S = 125 * 10**9
"""No cache's network brings more, 1 Tbit/s; records may claim anything."""


class Inflows(NamedTuple):
    """Bytes that came in `by_cycle`, oldest first; `fault`: what was claimed and cannot be, None: nothing."""

    by_cycle: list[int]
    fault: str | None = None


def inflows(tables: Tables, cache: CacheSettings, *, as_of_s: int, cycle_s: int, assumed: float) -> Inflows:
    """What came in during each cycle of the day before `as_of_s`.

    Without a record of that day, or if what they claim is implausible: one cycle of the `assumed` share of
    the capacity.
    """
    unknown = Inflows([int(assumed * cache.capacity)])
    if not tables.exists(ACCESSES):
        return unknown
    day_s = max(DAY_S, cycle_s)
    rows = tables.read_arrow(
        ACCESSES,
        since=day_label(as_of_s - day_s),
        until=day_label(as_of_s),
        columns=["cache", "accessed_at", "known_at", "bytes_missed"],
    )
    kind = rows.schema.field("known_at").type
    since, until = (pa.scalar(dt.datetime.fromtimestamp(t, dt.UTC), kind) for t in (as_of_s - day_s, as_of_s))
    of_cache = pc.and_(pc.equal(rows["cache"], cache.name), pc.less(rows["known_at"], until))
    recent = pc.and_(pc.greater_equal(rows["accessed_at"], since), pc.less(rows["accessed_at"], until))
    rows = rows.filter(pc.and_(pc.and_(of_cache, recent), pc.is_valid(rows["bytes_missed"])))
    if not rows.num_rows:
        return unknown
    ago_s = as_of_s - rows["accessed_at"].cast(pa.int64()).to_numpy() / 1e6
    cycle = (ago_s / cycle_s).astype(np.int64)
    bytes_missed = np.maximum(rows["bytes_missed"].to_numpy(), 0)
    missed = np.bincount(cycle, weights=bytes_missed, minlength=day_s // cycle_s)
    if (most := int(missed.max())) > MOST_BYTES_PER_S * cycle_s:
        return unknown._replace(fault=_fault(most, cycle_s))
    return Inflows(missed[::-1].astype(np.int64).tolist())


def _fault(most: int, cycle_s: int) -> str:
    return (
        f"implausible-inflow: by its records {format_bytes(most)} came in within {duration_label(cycle_s)}, "
        "more than any network brings; the plan goes by [plan] assumed_inflow instead"
    )
