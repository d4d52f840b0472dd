"""The Planner protocol: what a replayed cache tells a planner, and what it gets back.

Production uses the same object: `prefetch.plan` implements it, the engine of this room drives it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from features.times import DAY_S

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class CacheState:
    """A cache at a plan boundary; the arrays have one entry per file on disk, in no order.

    `item`: dense file id; `bytes_on_disk`; `last_access_s`: its last use, s since 1970 (of an open
    file no earlier than `as_of_s`); `is_open`: a job reads it now; `pinned`: held by an earlier plan.
    `inflow_bytes`: bytes that came in during the last cycle; `peak_inflow_bytes`: see `peak_inflow`.
    `lru_age_s`: age at which unpinned files were last purged, or None before the first purge.
    """

    as_of_s: int
    capacity_bytes: int
    low_watermark: float
    high_watermark: float
    item: IntArray
    bytes_on_disk: IntArray
    last_access_s: IntArray
    pinned: BoolArray
    is_open: BoolArray
    inflow_bytes: int
    peak_inflow_bytes: int
    lru_age_s: int | None


def peak_inflow(inflows: Sequence[int], cycle_s: int) -> int:
    """Bytes of a cycle that about one cycle a day exceeds (of hourly ones the 95th percentile).

    `inflows`: bytes that came in during the latest cycles, the last day of them at most; 0 if there are none.
    """
    if not len(inflows):
        return 0
    return int(np.quantile(np.asarray(inflows), max(0.5, 1 - cycle_s / DAY_S)))


@dataclasses.dataclass(frozen=True)
class Actions:
    """What to do at the boundary, best first: dense file ids per action.

    Prefetched files come in at once and are charged; pinned ones are touched now and at every boundary until
    unpinned, which makes them the last that a purge takes; evicted ones leave at once. Ids that are not on
    disk are ignored by pin and evict.
    """

    prefetch: IntArray
    pin: IntArray
    unpin: IntArray
    evict: IntArray


class Planner(Protocol):
    """Decides at each boundary; pure: the same state gives the same actions."""

    def actions(self, state: CacheState) -> Actions:
        """What to do with a cache in `state`."""
        ...
