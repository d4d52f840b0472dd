"""The policies of a replay that drive a steward, by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from features.errors import ConfigError, InputError
from features.results import STEWARD
from jobs.progress import Advance
from jobs.store.traces import BESIDE, Beside
from replay.policies import Policy
from replay.policies.learned import Order
from replay.read import LoadedTrace
from replay.steward import ORDERS, EvictionOrder, new_order
from replay.steward.ahead import Fetching
from replay.steward.replayed import NO_DELAY, XCACHE, InBlocks, Replayed
from replay.story import story

LEARNED, AUTO = "learned", "auto"
AHEAD = f"{STEWARD}-ahead"
STEWARDS = {
    STEWARD: LEARNED,
    **{f"{STEWARD}-{name}": name for name in ORDERS if name != LEARNED},
    AHEAD: LEARNED,
}
"""Orders of eviction by the name of the policy that follows them."""
FETCHING = Fetching(least_chance=0.9, share=0.05)
"""How `AHEAD` fetches files ahead."""


def steward_policies(
    names: Sequence[str],
    loaded: LoadedTrace,
    beside: Beside,
    capacities: Sequence[int],
    *,
    from_s: int | None,
    as_xcache: bool,
    block_bytes: int | None = None,
    on_progress: Advance,
) -> dict[str, Policy]:
    """Those of `names` that drive a steward.

    What is learned is learned from the accesses before `from_s`, for `capacities`. `as_xcache`: with the
    delays of a live cache; `block_bytes`: files are fetched by it as far as they are read. Raises
    ConfigError, InputError, SchemaError.
    """
    wanted = {name: STEWARDS[name] for name in names if name in STEWARDS}
    if not wanted:
        return {}
    if LEARNED in wanted.values() and from_s is None:
        what = f"{STEWARD} learns from the accesses before --from; give it, or choose {STEWARD}-{AUTO}"
        raise ConfigError("--policy", what)
    given = {role: name for role, name in beside._asdict().items() if name is not None}
    same = {role: role for role in BESIDE if role in loaded.details.column_names}
    told = story(loaded, **(same | given))
    learned: dict[int, list[Order]] = {}
    if from_s is not None and not {LEARNED, AUTO}.isdisjoint(wanted.values()):
        from models.learning.order import Learning

        orders = Learning(loaded.trace, told, capacities).orders(from_s, on_progress)
        learned = dict(zip(capacities, orders, strict=True))
    delays, n_files = XCACHE if as_xcache else NO_DELAY, loaded.trace.n_items
    orders_of = {name: partial(_order, order, learned, n_files) for name, order in wanted.items()}
    if block_bytes is not None:
        if AHEAD in wanted:
            raise ConfigError("--policy", f"{AHEAD} fetches whole files; leave out --block-size")
        return {
            name: InBlocks(told, order, delays, block_bytes=block_bytes) for name, order in orders_of.items()
        }
    return {
        name: Replayed(told, order, delays, FETCHING if name == AHEAD else None)
        for name, order in orders_of.items()
    }


def _order(name: str, learned: dict[int, list[Order]], n_files: int, capacity_bytes: int) -> EvictionOrder:
    """The order called `name`; what is learned is that of the nearest capacity: an XCache has another peak.

    Raises InputError.
    """
    nearest = min(learned, key=lambda known: abs(known - capacity_bytes), default=0)
    orders = learned.get(nearest)
    if name == LEARNED and not orders:
        raise InputError(
            "there are too few accesses before --from to learn from; count from later, "
            f"or choose {STEWARD}-{AUTO}"
        )
    return new_order(name, capacity_bytes, orders, n_files=n_files)
