"""The Planner protocol: the state of a cache that a planner gets, and the actions it returns.

`prefetch.plan` implements it. Production and `replay.engine` use the same object.
"""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.common.errors import InputError
from features.common.times import DAY_S


@dataclasses.dataclass(frozen=True)
class CacheState:
    """A cache at a plan boundary; the arrays have one entry per file on disk, in no particular order.

    `item`: dense file id; `last_access_s`: when a job last used the file, or a plan brought it, s since 1970
    (not before `as_of_s` if the file is open); touches are no uses. `is_open`: a job reads it now; `pinned`:
    pinned by an earlier plan.
    `inflow_bytes`: bytes that came in during the last cycle; `peak_inflow_bytes`: see `peak_inflow`;
    `sure_inflow_bytes`: see `sure_inflow`.
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
    sure_inflow_bytes: int = 0


def peak_inflow(inflows: Sequence[int], cycle_s: int) -> int:
    """The inflow that about one cycle per day exceeds; with hourly cycles, the 95th percentile.

    `inflows`: bytes that came in during each of the latest cycles, at most of one day. 0 if there are none.
    """
    if not len(inflows):
        return 0
    return int(np.quantile(np.asarray(inflows), max(0.5, 1 - cycle_s / DAY_S)))


def sure_inflow(inflows: Sequence[int], cycle_s: int) -> int:
    """A low estimate of the bytes that come in during the coming cycle.

    It is the smaller inflow of the last cycle and of the same hours a day ago. `inflows`: as in
    `peak_inflow`, oldest first. 0 before a whole day is known, and where a day has but one cycle.
    """
    n_cycles = DAY_S // cycle_s
    return min(inflows[-n_cycles], inflows[-1]) if 2 <= n_cycles <= len(inflows) else 0


@dataclasses.dataclass(frozen=True)
class Actions:
    """What to do at the boundary: dense file ids per action, best first.

    Prefetched files come in at once and are charged. Pinned files are touched now and at every boundary until
    they are unpinned, so that a purge takes them last. Evicted files leave at once. Pin and evict ignore
    files that are not on disk.
    """

    prefetch: IntArray
    pin: IntArray
    unpin: IntArray
    evict: IntArray


def checked(actions: Actions, n_items: int) -> Actions:
    """The same lists, as int64. Raises InputError if one names a file that is none of `n_items`."""
    lists = dict[str, IntArray]()
    for action in ("prefetch", "pin", "unpin", "evict"):
        lists[action] = ids = np.asarray(getattr(actions, action), np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= n_items):
            raise InputError(
                f"the planner's {action} list names item {ids.min()} or {ids.max()}; "
                f"items are 0 … {n_items - 1}"
            )
    return Actions(**lists)


class Planner(Protocol):
    """Decides at each boundary. It is pure: the same state gives the same actions.

    For example, a planner that evicts what nobody has read for a day:

    >>> class DayOld:
    ...     def actions(self, state):
    ...         none = np.zeros(0, np.int64)
    ...         old = state.item[state.last_access_s < state.as_of_s - DAY_S]
    ...         return Actions(prefetch=none, pin=none, unpin=none, evict=old)
    >>> from replay.config import CacheConfig
    >>> from replay.engine import simulate
    >>> from replay.trace import Trace
    >>> trace = Trace(np.array([0, 2, 4]) * DAY_S, np.zeros(3), np.array([10]))
    >>> [simulate(trace, CacheConfig(100), planner=planner).hits for planner in (None, DayOld())]
    [2, 0]
    """

    def actions(self, state: CacheState) -> Actions:
        """The actions for a cache in `state`."""
