"""The policies that drive a steward through a trace, by name; a kernel and a loop give the same hits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.results import STEWARD
from replay.access_context import AccessContext, check_fits
from replay.kernels import heuristics as kinds
from replay.policies.learned import Learned, Order
from replay.policies.one_queue import lru
from replay.policies.policy import PartPolicy, Policy, Served, ServedWithPrefetch
from replay.steward import ORDERS, EvictionOrder, new_order
from replay.steward.delayed_cache import NO_DELAY, DelayedCache, Delays, PlannedCache, Plans
from replay.steward.serving import serve_auto, serve_by
from replay.steward.steward import Steward
from replay.trace import Trace


class Replayed:
    """The policy: `order` makes the order for a capacity. When it is late, the cache's own LRU makes room.

    Files are fetched whole, as a `Policy`; `InBlocks` fetches what is read of them. `plans`: what
    acts on the same cache, None: nothing.
    """

    def __init__(
        self,
        context: AccessContext,
        order: Callable[[int], EvictionOrder],
        delays: Delays = NO_DELAY,
        plans: Plans | None = None,
    ) -> None:
        self._context, self._order, self._delays, self._plans = context, order, delays, plans

    def __call__(self, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int | ServedWithPrefetch:
        """Replay, marking hits; the peak usage in bytes. Raises InputError."""
        cache = self._cache(trace, capacity_bytes)
        reader, sizes = self._context.reader.tolist(), trace.size_bytes.tolist()
        queued = deque(zip(*(column.tolist() for column in self._context.queued), strict=True))
        for i, (file, now_s) in enumerate(zip(trace.item.tolist(), trace.time_s.tolist(), strict=True)):
            while queued and queued[0][0] <= now_s:
                cache.expect(*queued.popleft()[1:])
            hit[i] = cache.read(file, reader[i], now_s, sizes[file]) >= sizes[file]
        if self._plans is None:
            return cache.peak_bytes
        return ServedWithPrefetch(cache.peak_bytes, cache.came.prefetched())

    def _cache(self, trace: Trace, capacity_bytes: int) -> DelayedCache:
        """An empty cache for the files of `trace`, with its steward. Raises InputError."""
        check_fits(self._context, trace)
        steward = Steward(self._order(capacity_bytes), capacity_bytes=capacity_bytes)
        files = self._context.files
        sizes: list[int] = trace.size_bytes.tolist()
        steward.add(files.dataset, files.tier, trace.size_bytes)
        if self._plans is None:
            return DelayedCache(steward, sizes, capacity_bytes, self._delays)
        start_s = int(trace.time_s[0])
        return PlannedCache(steward, sizes, capacity_bytes, self._delays, self._plans, start_s=start_s)


class InBlocks(Replayed):
    """The policy for files that are fetched by `block_bytes`, as far as they are read, from the beginning."""

    def __init__(
        self,
        context: AccessContext,
        order: Callable[[int], EvictionOrder],
        delays: Delays = NO_DELAY,
        *,
        block_bytes: int,
    ) -> None:
        super().__init__(context, order, delays)
        self._block_bytes = block_bytes

    def serve(self, trace: Trace, capacity_bytes: int) -> Served:
        """Replay, by the bytes that each access reads. Raises InputError."""
        cache = self._cache(trace, capacity_bytes)
        asked, needed = _requests(trace, self._block_bytes)
        had, fetched = np.empty_like(asked), np.empty_like(asked)
        rows = (column.tolist() for column in (trace.item, trace.time_s, self._context.reader, needed))
        for i, (file, now_s, reader, n_bytes) in enumerate(zip(*rows, strict=False)):
            had[i] = cache.read(file, reader, now_s, n_bytes)
            fetched[i] = cache.fetched_bytes
        on_disk = np.maximum(had, 0)
        served = np.minimum(asked, on_disk)
        is_kept = fetched >= 0
        missing = np.where(is_kept, fetched, asked - served)
        return Served(cache.peak_bytes, asked, served, missing, had >= needed)


def _requests(trace: Trace, block_bytes: int) -> tuple[IntArray, IntArray]:
    """Bytes that each access asks for, and those of the blocks that serve it, int64[n] each."""
    sizes = trace.size_bytes[trace.item]
    asked = sizes if trace.read_bytes is None else trace.read_bytes
    return asked, np.minimum(sizes, -(-asked // block_bytes) * block_bytes)


LEARNED, AUTO, DATASET_LRU = "learned", f"{STEWARD}-auto", f"{STEWARD}-dataset-lru"
STEWARDS: Mapping[str, str] = MappingProxyType(
    {STEWARD: LEARNED, **{f"{STEWARD}-{name}": name for name in ORDERS if name != LEARNED}}
)
"""Orders of eviction by the name of the policy that follows them."""


def steward_policy(
    name: str,
    context: AccessContext,
    learned: Sequence[Order] = (),
    *,
    delays: Delays = NO_DELAY,
    block_bytes: int | None = None,
    plans: Plans | None = None,
) -> Policy | PartPolicy:
    """The policy `name` of `STEWARDS` on the accesses of `context`.

    `learned`: the orders it may follow, by the time at which each begins; without any, `steward` is LRU in
    the kernel and an error in the loop. Without delays and plans, a kernel replays. A loop replays all else,
    access by access; where both can, their hits are equal. `block_bytes`: files are
    fetched by it as far as they are read; what queues say is not heeded then.
    Calls raise ConfigError, InputError.
    """
    if block_bytes is not None:
        return InBlocks(context, _order(name, context, learned), delays, block_bytes=block_bytes)
    if delays == NO_DELAY and plans is None and name in _KERNELS:
        return _KERNELS[name](context, learned)
    return Replayed(context, _order(name, context, learned), delays, plans)


_KERNELS: Mapping[str, Callable[[AccessContext, Sequence[Order]], Policy]] = MappingProxyType(
    {
        STEWARD: Learned,
        f"{STEWARD}-lru": lambda *_: lru,
        f"{STEWARD}-s3fifo": lambda context, _: partial(serve_by, kinds.S3FIFO, context),
        DATASET_LRU: lambda context, _: partial(serve_by, kinds.DATASET_LRU, context),
        AUTO: lambda context, learned: partial(serve_auto, learned, context),
    }
)


def _order(name: str, context: AccessContext, learned: Sequence[Order]) -> Callable[[int], EvictionOrder]:
    n_files = context.files.dataset.size
    return lambda capacity_bytes: new_order(STEWARDS[name], capacity_bytes, learned, n_files=n_files)
