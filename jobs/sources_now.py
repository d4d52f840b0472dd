"""What each origin may deliver in a cycle: the operator's limits, and nothing where it failed lately."""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.schema import RECEIPTS
from features.times import day_label
from jobs.plan_settings import PlanSettings
from jobs.tables import Tables
from replay.planner import IntArray

NO_LIMIT = 2**62
FEW = 5
"""So many prefetches from an origin say nothing about it yet."""
_HOUR_S = 3600


def origin_bytes(
    tables: Tables,
    origins: Sequence[str],
    *,
    dids: pa.Array,
    origin: IntArray,
    plan: PlanSettings,
    as_of_s: int,
    cycle_s: int,
) -> IntArray | None:
    """Bytes that each of `origins` may deliver in the cycle from `as_of_s`; None: nothing limits any.

    `origin`: code of each of `dids`. An origin is left alone if more than `source_failures` of its last
    prefetches failed; `reconsider_source` later they are forgotten, and it is tried again.
    """
    limits = np.array([_configured(name, plan, cycle_s) for name in origins], np.int64)
    failed = _failing(tables, dids=dids, origin=origin, n=len(origins), plan=plan, as_of_s=as_of_s)
    limits[failed] = 0
    return limits if limits.size and (limits < NO_LIMIT).any() else None


def _configured(origin: str, plan: PlanSettings, cycle_s: int) -> int:
    host = origin.rpartition(":")[0] or origin
    fits = (one.per_hour for one in plan.sources if any(fnmatch.fnmatch(host, p) for p in one.hosts))
    per_hour = next(fits, None)
    return NO_LIMIT if per_hour is None else per_hour * cycle_s // _HOUR_S


def _failing(
    tables: Tables, *, dids: pa.Array, origin: IntArray, n: int, plan: PlanSettings, as_of_s: int
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if not (n and tables.exists(RECEIPTS)):
        return np.zeros(n, np.bool_)
    since_s = as_of_s - plan.reconsider_source
    rows = tables.read_arrow(
        RECEIPTS,
        since=day_label(since_s - 86400),
        until=day_label(as_of_s),
        columns=["did", "action", "state", "updated_at"],
    )
    kind = rows.schema.field("updated_at").type
    begin, end = (pa.scalar(dt.datetime.fromtimestamp(t, dt.UTC), kind) for t in (since_s, as_of_s))
    recent = pc.and_(pc.greater_equal(rows["updated_at"], begin), pc.less(rows["updated_at"], end))
    ended = pc.is_in(rows["state"], value_set=pa.array(["done", "failed"]))
    rows = rows.filter(pc.and_(pc.and_(recent, ended), pc.equal(rows["action"], "prefetch")))
    at = pc.index_in(rows["did"], value_set=dids).fill_null(-1).to_numpy().astype(np.int64)
    code = np.append(origin, -1)[at]
    bad = pc.equal(rows["state"], "failed").to_numpy().astype(np.float64)
    tried = np.bincount(code[code >= 0], minlength=n)
    wrong = np.bincount(code[code >= 0], weights=bad[code >= 0], minlength=n)
    failing: np.ndarray[tuple[int], np.dtype[np.bool_]] = (tried >= FEW) & (
        wrong > plan.source_failures * tried
    )
    return failing
