"""Running sums over numbered slots that change: a Fenwick tree."""

from __future__ import annotations

from replay.kernels.jit import bare
from replay.planner import IntArray

# A tree over k slots is an int64[k + 1]; entry 0 stays 0.


@bare
def add(tree: IntArray, slot: int, amount: int) -> None:
    """Add `amount` at `slot`, in O(log k)."""
    at = slot + 1
    while at < tree.size:
        tree[at] += amount
        at += at & -at


@bare
def sum_before(tree: IntArray, slot: int) -> int:
    """What slots 0 … slot - 1 hold together, in O(log k)."""
    total = 0
    at = slot
    while at > 0:
        total += tree[at]
        at &= at - 1
    return total


@bare
def build(tree: IntArray) -> None:
    """Make a tree of plain amounts, slot s at entry s + 1, in O(k)."""
    for at in range(1, tree.size):
        above = at + (at & -at)
        if above < tree.size:
            tree[above] += tree[at]
