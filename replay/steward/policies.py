"""The policies that drive a steward through a trace, by name."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.common.jit import bare, wide
from features.results import STEWARD
from replay.access_context import NO_QUEUE, AccessContext, check_fits
from replay.kernels import heuristics as kinds
from replay.kernels.delayed import Delays
from replay.kernels.heuristics import new_heuristic
from replay.kernels.shadow import Shadow, new_shadow, serve
from replay.policies.learned import Order
from replay.policies.policy import PartPolicy, Policy, Served, ServedWithPrefetch
from replay.policies.queues import lru
from replay.steward import ORDERS, ArrayOrder, new_order
from replay.steward.delayed_cache import NO_DELAY, DelayedCache, Plans
from replay.trace import ItemArray, Trace


@dataclasses.dataclass(frozen=True, eq=False)
class Replayed:
    """The policy: `order` makes the order for a capacity. When it is late, the cache's own LRU makes room.

    Files are fetched whole, as a `Policy`; `InBlocks` fetches what is read of them. `plans`: what
    acts on the same cache, None: nothing.
    """

    context: AccessContext
    order: Callable[[int], ArrayOrder]
    delays: Delays = NO_DELAY
    plans: Plans | None = None

    def __call__(self, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int | ServedWithPrefetch:
        """Replay, marking hits; the peak usage in bytes. Raises InputError."""
        cache = self._cache(trace, capacity_bytes)
        reads = cache.serve(trace.size_bytes[trace.item], self.context.queued)
        np.greater_equal(reads.had, reads.needed, out=hit)
        if self.plans is None:
            return cache.peak_bytes
        return ServedWithPrefetch(cache.peak_bytes, cache.prefetched(reads))

    def _cache(self, trace: Trace, capacity_bytes: int) -> DelayedCache:
        """An empty cache for the files of `trace`, with its steward. Raises InputError."""
        check_fits(self.context, trace)
        order = self.order(capacity_bytes)
        return DelayedCache(order, self.context, trace, capacity_bytes, self.delays, plans=self.plans)


@dataclasses.dataclass(frozen=True, eq=False)
class InBlocks(Replayed):
    """The policy for files that are fetched by `block_bytes`, as far as they are read, from the beginning."""

    block_bytes: int = dataclasses.field(kw_only=True)

    def serve(self, trace: Trace, capacity_bytes: int) -> Served:
        """Replay, by the bytes that each access reads. Raises InputError."""
        cache = self._cache(trace, capacity_bytes)
        sizes = trace.size_bytes[trace.item]
        asked = sizes if trace.read_bytes is None else trace.read_bytes
        needed = np.minimum(sizes, -(-asked // self.block_bytes) * self.block_bytes)
        reads = cache.serve(needed, NO_QUEUE)
        had, fetched = reads.had, reads.fetched
        on_disk = np.maximum(had, 0)
        served = np.minimum(asked, on_disk)
        is_kept = fetched >= 0
        missing = np.where(is_kept, fetched, asked - served)
        return Served(cache.peak_bytes, asked, served, missing, had >= needed)


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

    `learned`: the orders it may follow, by the time at which each begins; without any, `steward` is LRU if
    there are neither delays, plans nor blocks, else an error. `block_bytes`: files are fetched by it as far
    as they are read; what queues say is not heeded then. Calls raise ConfigError, InputError.
    """
    if block_bytes is not None:
        return InBlocks(context, _order(name, context, learned), delays, block_bytes=block_bytes)
    if delays == NO_DELAY and plans is None:
        alone = f"{STEWARD}-lru" if name == STEWARD and not learned else name
        if alone in _ALONE:
            return _ALONE[alone](context)
    return Replayed(context, _order(name, context, learned), delays, plans)


_ALONE: Mapping[str, Callable[[AccessContext], Policy]] = MappingProxyType(
    {
        f"{STEWARD}-lru": lambda _: lru,
        f"{STEWARD}-s3fifo": lambda context: partial(serve_by, kinds.S3FIFO, context),
        DATASET_LRU: lambda context: partial(serve_by, kinds.DATASET_LRU, context),
    }
)
"""What is replayed without the delays of a cache, with the same hits."""


def _order(name: str, context: AccessContext, learned: Sequence[Order]) -> Callable[[int], ArrayOrder]:
    n_files = context.files.dataset.size
    return lambda capacity_bytes: new_order(STEWARDS[name], capacity_bytes, learned, n_files=n_files)


def serve_by(kind: int, context: AccessContext, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Replay a heuristic of `kind`, marking hits; the peak usage in bytes. Raises InputError."""
    check_fits(context, trace)
    order = new_heuristic(kind, capacity_bytes, trace.n_items, context.n_datasets)
    if kind == kinds.DATASET_LRU:
        order = order._replace(dataset=context.files.dataset)
    return int(_serve_all(new_shadow(order, capacity_bytes), trace.item, trace.size_bytes, hit))


@bare
def _serve_all(cache: Shadow, item: ItemArray, size: IntArray, hit: BoolArray) -> int:
    peak = 0
    for i in range(item.size):
        file = wide(item[i])
        hit[i] = serve(cache, file, size[file])
        peak = max(peak, cache.used_bytes[0])
    return peak
