"""Eviction in line by a learned order: of a sample of the files on disk, the least valuable goes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray
from features.stream.state import new_state
from replay.access_context import AccessContext, check_fits
from replay.kernels.inline import Accesses, Part, ScoredFiles, empty_cache, remember, serve_lru, serve_valued
from replay.kernels.scored_files import PEAK, Known, new_rule, no_values
from replay.trace import Trace
from replay.trees.forest import HorizonModels

_NOTHING = np.zeros(0, np.bool_)


class Order(NamedTuple):
    """An order from time `from_s` on: log value = share · log hit rate + (1 - share) · log 1/age."""

    from_s: float
    ladder: HorizonModels
    share: float


class Learned:
    """The policy: LRU before the first order begins, then each order until the next one begins.

    `orders`: by the time at which each begins.
    """

    def __init__(self, story: AccessContext, orders: Sequence[Order]) -> None:
        self._story, self._orders = story, orders

    def __call__(self, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
        """Replay, marking hits; the peak usage in bytes. Raises InputError."""
        check_fits(self._story, trace)
        cache = empty_cache(trace.size_bytes, capacity_bytes)
        state = new_state(trace.n_items, self._story.n_datasets)
        known = Known(state, self._story.files, no_values(trace.n_items))
        accesses = Accesses(trace.time_s, trace.item, self._story.reader)
        begins = np.searchsorted(trace.time_s, [order.from_s for order in self._orders]).tolist()
        edges = [*begins, trace.n_accesses]
        serve_lru(cache, accesses, Part(0, edges[0]), hit)
        remember(known, accesses, Part(0, edges[0]))
        for order, (start, stop) in zip(self._orders, pairwise(edges), strict=True):
            known.values.at_s[:] = np.nan
            valued = ScoredFiles(known, new_rule(order.ladder, order.share), _NOTHING)
            serve_valued(cache, valued, accesses, Part(start, stop), hit)
        return int(cache.disk.sums[PEAK])
