"""Orders of eviction that follow a cache event by event, in replay and live.

To add one, write a module here and a line in `new_order`.
"""

from collections.abc import Sequence

import numpy as np

from features.common.errors import ConfigError
from replay.kernels.heuristics import NAMES
from replay.kernels.shadow import Inventory
from replay.kernels.trees import no_models
from replay.policies.learned import Order
from replay.steward.learned import AutoOrder, LearnedOrder
from replay.steward.order import ArrayOrder, EvictionOrder, HeuristicOrder
from replay.steward.steward import Saved, Steward

__all__ = ["ORDERS", "ArrayOrder", "EvictionOrder", "Saved", "Steward", "new_order"]

ORDERS = (*NAMES, "learned", "auto")


def new_order(
    name: str,
    capacity_bytes: int,
    learned: Sequence[Order] | None,
    *,
    n_files: int = 0,
) -> ArrayOrder:
    """The order called `name` for a cache of `capacity_bytes`.

    `learned`: what `learned` follows, each from its time on; `auto` goes without. `n_files`: how many files
    will be known, about: `auto` tries its orders on a sample of many. Raises ConfigError for an unknown
    name, and for `learned` without a model.
    """
    match name:
        case _ if name in NAMES:
            return HeuristicOrder(NAMES.index(name), capacity_bytes)
        case "learned" if learned:
            return LearnedOrder(learned)
        case "learned":
            raise ConfigError("policy", "learned needs a model; train one, or choose auto")
        case "auto":
            return AutoOrder(capacity_bytes, learned, n_files)
        case _:
            raise ConfigError("policy", f"no order is called {name!r}; there are {', '.join(ORDERS)}")


def rehearse(name: str) -> None:
    """Let a cache of one file live through every event, so that the kernels of the order `name` are compiled.

    To compile takes half a minute and half a GB. Raises ConfigError as `new_order` does.
    """
    order = new_order(name, 1, [Order(0.0, no_models())])
    steward = Steward(order, capacity_bytes=1)
    file = steward.add(0, 0, 1)
    single = np.ones(1, np.int64)
    steward.take_inventory(Inventory(single * file, single, np.ones(1), np.ones(1, np.bool_)))
    steward.read(file, 0, 2.0)
    steward.stored(file, 1, 2.0)
    steward.expect(file, 3.0)
    steward.opened(file)
    steward.closed(file)
    steward.victims(1, 4.0)
    steward.removed(file)
