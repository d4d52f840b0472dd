"""Running sums over numbered slots that change: a Fenwick tree."""

from __future__ import annotations

from features.common.arrays import IntArray
from features.common.jit import bare

# A tree over k slots is an int64[k + 1]; entry 0 stays 0. Entry e holds the sum of the slots e - _span(e) … e
# - 1.


@bare
def _span(entry: int) -> int:
    """Number of slots that an entry sums up: its lowest bit."""
    return entry & -entry


@bare
def add(tree: IntArray, slot: int, amount: int) -> None:
    """Add `amount` at `slot`, in O(log k)."""
    at = slot + 1
    while at < tree.size:
        tree[at] += amount
        at += _span(at)


@bare
def sum_before(tree: IntArray, slot: int) -> int:
    """The sum of slots 0 … slot - 1, in O(log k)."""
    total = 0
    at = slot
    while at > 0:
        total += tree[at]
        at -= _span(at)
    return total


@bare
def build(tree: IntArray) -> None:
    """Make a tree of plain amounts, where slot s is at entry s + 1, in O(k)."""
    for at in range(1, tree.size):
        above = at + _span(at)
        if above < tree.size:
            tree[above] += tree[at]
