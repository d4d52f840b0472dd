"""A cache of one file that lives through every event, so that an order's kernels are compiled and kept.

To compile takes half a minute and half a GB, in the process that does it.
"""

from __future__ import annotations

import numpy as np

from replay.kernels.heuristics import Found
from replay.policies.learned import Order
from replay.steward import Steward, new_order
from replay.trees.forest import no_models


def rehearse(name: str) -> None:
    """Let the order called `name` go through all events. Raises ConfigError as `new_order` does."""
    order = new_order(name, 1, [Order(0.0, no_models())])
    steward = Steward(order, capacity_bytes=1)
    file = steward.add(0, 0, 1)
    single = np.ones(1, np.int64)
    steward.found(Found(single * file, single, np.ones(1), np.ones(1, np.bool_)))
    steward.resize(file, 1)
    steward.read(file, 0, 2.0)
    steward.stored(file, 1, 2.0)
    steward.expect(file, 3.0)
    steward.victims(1, 4.0)
    steward.removed(file)
