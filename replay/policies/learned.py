"""Eviction in line by a learned order: of a sample of the files on disk, the least valuable goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from features.arrays import BoolArray
from features.stream.state import Files, new_state
from replay.forest import Ladder
from replay.kernels.inline import (
    Cache,
    Chunk,
    Part,
    Valued,
    empty_cache,
    no_births,
    remember,
    serve_lru,
    serve_valued,
)
from replay.kernels.valued import PEAK, Known, new_rule, no_values
from replay.story import Story, check_fits
from replay.trace import Trace

_NOTHING = np.zeros(0, np.bool_)


class Order(NamedTuple):
    """An order from time `from_s` on: log value = share · log hit rate + (1 - share) · log 1/age."""

    from_s: float
    ladder: Ladder
    share: float


class LearnedCache:
    """A cache for a stream: LRU before the first order begins, then each order until the next one begins.

    `files`, `cache`: of the same files, of `n_datasets` datasets; births write to both.
    """

    def __init__(self, files: Files, n_datasets: int, orders: Sequence[Order], cache: Cache) -> None:
        m = files.dataset.size
        self.cache = cache
        self._known = Known(new_state(m, n_datasets), files, no_values(m))
        self._coming = list(orders)
        self._order: Valued | None = None

    def serve(self, chunk: Chunk, hit: BoolArray) -> None:
        """Serve the accesses that follow those of the chunk before, marking hits."""
        start, n = 0, chunk.item.size
        while self._coming:
            stop = int(np.searchsorted(chunk.time_s, self._coming[0].from_s))
            self._serve(chunk, Part(start, stop), hit)
            if stop == n:
                return
            order, start = self._coming.pop(0), stop
            self._order = Valued(self._known, new_rule(order.ladder, order.share), _NOTHING)
            self._known.values.at_s[:] = np.nan
        self._serve(chunk, Part(start, n), hit)

    def _serve(self, chunk: Chunk, part: Part, hit: BoolArray) -> None:
        if self._order is None:
            serve_lru(self.cache, chunk, part, hit)
            remember(self._known, chunk, part)
        else:
            serve_valued(self.cache, self._order, chunk, part, hit)


class Learned:
    """The policy: `LearnedCache` for a whole trace."""

    def __init__(self, story: Story, orders: Sequence[Order]) -> None:
        self._story, self._orders = story, orders

    def __call__(self, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
        """Replay, marking hits; the peak usage in bytes. Raises InputError."""
        check_fits(self._story, trace)
        cache = empty_cache(trace.size_bytes, capacity_bytes)
        served = LearnedCache(self._story.files, self._story.n_datasets, self._orders, cache)
        served.serve(Chunk(trace.time_s, trace.item, self._story.reader, no_births()), hit)
        return int(cache.disk.sums[PEAK])
