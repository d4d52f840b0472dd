"""A doubly linked list over dense ids, oldest first, in two arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replay.kernels.jit import kernel
from replay.planner import IntArray


class Order(NamedTuple):
    """Neighbours of each of m ids. Entry m is the sentinel.

    `newer[m]` is the oldest id and `older[m]` the newest, both m in an empty list.
    """

    older: IntArray
    newer: IntArray


def empty_order(m: int) -> Order:
    """An empty list over ids 0 … m - 1."""
    return Order(np.full(m + 1, m, np.int64), np.full(m + 1, m, np.int64))


@kernel
def append(order: Order, node: int) -> None:
    """Make `node`, which is in no list, the newest."""
    end = order.older.size - 1
    last = order.older[end]
    order.older[node] = last
    order.newer[node] = end
    order.newer[last] = node
    order.older[end] = node


@kernel
def unlink(order: Order, node: int) -> None:
    """Take `node` out of the list."""
    order.newer[order.older[node]] = order.newer[node]
    order.older[order.newer[node]] = order.older[node]
