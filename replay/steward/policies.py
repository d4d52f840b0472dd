"""The policies that drive a steward, by name, each the same whether a kernel replays it or a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from features.common.arrays import BoolArray
from features.results import STEWARD
from replay.access_context import AccessContext
from replay.policies.learned import Learned, Order
from replay.policies.lru import lru
from replay.policies.policy import PartPolicy, Policy
from replay.steward import ORDERS, EvictionOrder, new_order
from replay.steward.delayed_cache import NO_DELAY, Delays
from replay.steward.planned_cache import Plans
from replay.steward.reactive_prefetch import Fetching
from replay.steward.replayed import InBlocks, Replayed
from replay.trace import Trace

LEARNED, AUTO, DATASET_LRU = "learned", f"{STEWARD}-auto", f"{STEWARD}-dataset-lru"
AHEAD = f"{STEWARD}-ahead"
STEWARDS: Mapping[str, str] = MappingProxyType(
    {STEWARD: LEARNED, **{f"{STEWARD}-{name}": name for name in ORDERS if name != LEARNED}, AHEAD: LEARNED}
)
"""Orders of eviction by the name of the policy that follows them."""
FETCHING = Fetching(least_chance=0.9, share=0.05)
"""How `AHEAD` fetches files ahead."""

Orders = Mapping[int, Sequence[Order]]
"""What was learned, by capacity in bytes; a policy follows that of the nearest capacity."""


def steward_policy(
    name: str,
    story: AccessContext,
    learned: Orders = MappingProxyType({}),
    *,
    delays: Delays = NO_DELAY,
    block_bytes: int | None = None,
    plans: Plans | None = None,
) -> Policy | PartPolicy:
    """The policy `name` of `STEWARDS` on the accesses of `story`.

    Without delays and plans, a kernel replays `steward` and `steward-lru`. A loop replays all else, access by
    access; where both can, their hits are equal. Without learned orders, `steward` is LRU
    in the kernel and an error in the loop. `block_bytes`: files are fetched by it as far as they are read.
    Calls raise ConfigError, InputError.
    """
    if block_bytes is not None:
        return InBlocks(story, _order(name, story, learned), delays, block_bytes=block_bytes)
    if delays == NO_DELAY and plans is None and name in _KERNELS:
        return _KERNELS[name](story, learned)
    fetching = FETCHING if name == AHEAD else None
    return Replayed(story, _order(name, story, learned), delays, fetching, plans)


def _learned(story: AccessContext, learned: Orders) -> Policy:
    def policy(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
        return Learned(story, _nearest(learned, capacity_bytes))(trace, capacity_bytes, hit)

    return policy


_KERNELS: Mapping[str, Callable[[AccessContext, Orders], Policy]] = MappingProxyType(
    {STEWARD: _learned, f"{STEWARD}-lru": lambda *_: lru}
)


def _order(name: str, story: AccessContext, learned: Orders) -> Callable[[int], EvictionOrder]:
    n_files = story.files.dataset.size

    def order(capacity_bytes: int) -> EvictionOrder:
        found = _nearest(learned, capacity_bytes)
        return new_order(STEWARDS[name], capacity_bytes, found, n_files=n_files)

    return order


def _nearest(learned: Orders, capacity_bytes: int) -> Sequence[Order]:
    """Of the nearest capacity: beside XCaches, a policy has their peak usage as capacity."""
    return learned[min(learned, key=lambda known: abs(known - capacity_bytes))] if learned else ()
