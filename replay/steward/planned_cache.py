"""A cache on which plans act beside its steward."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from features.common.times import DAY_S
from replay.planner import CacheState, Planner, peak_inflow, sure_inflow
from replay.steward.delayed_cache import DelayedCache, Delays
from replay.steward.steward import Steward


class Plans(NamedTuple):
    """Plans for the cache, of `capacity_bytes` and watermarks `low` and `high` as the planner is told.

    `planner` is asked at each multiple of `cycle_s` (s since 1970) from `from_s` on. Its pins are no victims,
    its evictions are the first victims, and its prefetches begin at once.
    """

    planner: Planner
    capacity_bytes: int
    low: float
    high: float
    cycle_s: int
    from_s: int


class PlannedCache(DelayedCache):
    """Plans from the first boundary after `start_s` on, the time of the first read."""

    def __init__(
        self,
        steward: Steward,
        sizes: list[int],
        capacity_bytes: int,
        delays: Delays,
        plans: Plans,
        *,
        start_s: int,
    ) -> None:
        super().__init__(steward, sizes, capacity_bytes, delays)
        self._plans = plans
        self._inflows: list[int] = []
        first_s = -(-max(start_s, plans.from_s) // plans.cycle_s) * plans.cycle_s
        self._at(first_s - plans.cycle_s, lambda _: self._start_cycle())
        self._at(first_s, self._plan)

    def _start_cycle(self) -> None:
        self._inflow_bytes = 0

    def _plan(self, now_s: int) -> None:
        """A boundary: ask for the plan, and begin to carry it out."""
        self._inflows = [*self._inflows, self._inflow_bytes][-max(1, DAY_S // self._plans.cycle_s) :]
        actions = self._plans.planner.actions(self._state(now_s))
        self._start_cycle()
        self._steward.evict_first(actions.evict.tolist())
        self._pinned.difference_update(actions.unpin.tolist())
        self._pinned.update(file for file in actions.pin.tolist() if self._holds(file))
        self._steward.pin(self._pinned)
        coming = [file for file in actions.prefetch.tolist() if not self._holds(file)]
        if self._delays.look_s:
            self._look(now_s, sum(self._sizes[file] for file in coming))
        for file in coming:
            self._later(now_s, self._delays.fetch_s, partial(self._come, file))
        self._at(now_s + self._plans.cycle_s, self._plan)

    def _state(self, now_s: int) -> CacheState:
        """What the planner is told; nobody knows at which age a file would be purged."""
        held = np.array(self._held, np.int64)
        item = np.flatnonzero(held >= 0)
        last_use_s = np.array(self._last_use_s, np.int64)[item]
        is_pinned = np.zeros(held.size, np.bool_)
        is_pinned[np.array([*self._pinned], np.int64)] = True
        return CacheState(
            as_of_s=now_s,
            capacity_bytes=self._plans.capacity_bytes,
            low_watermark=self._plans.low,
            high_watermark=self._plans.high,
            item=item,
            bytes_on_disk=held[item],
            last_access_s=last_use_s,
            pinned=is_pinned[item],
            is_open=last_use_s > now_s,
            inflow_bytes=self._inflow_bytes,
            peak_inflow_bytes=peak_inflow(self._inflows, self._plans.cycle_s),
            lru_age_s=None,
            sure_inflow_bytes=sure_inflow(self._inflows, self._plans.cycle_s),
        )
