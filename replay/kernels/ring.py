"""Queues of files with their bytes: a ring of resident files, and ghosts of evicted ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import IntArray
from features.common.jit import bare
from replay.trace import IndexArray

# Entries of Ring.sums and Ghosts.sums.
FIRST, COUNT, USED = range(3)


class Ring(NamedTuple):
    """Files in order of arrival, each at most once; `sums`: slot of the oldest, files, bytes."""

    slot: IndexArray
    sums: IntArray


def empty_ring(m: int) -> Ring:
    """Room for `m` files."""
    return Ring(np.empty(m, np.int32), np.zeros(3, np.int64))


@bare
def push(ring: Ring, file: int, size_bytes: int) -> None:
    """Add `file` as the newest."""
    at = ring.sums[FIRST] + ring.sums[COUNT]
    if at >= ring.slot.size:
        at -= ring.slot.size
    ring.slot[at] = file
    ring.sums[COUNT] += 1
    ring.sums[USED] += size_bytes


@bare
def pop(ring: Ring, size: IntArray) -> int:
    """Take out the oldest file."""
    first = ring.sums[FIRST]
    file = ring.slot[first]
    ring.sums[FIRST] = first + 1 if first + 1 < ring.slot.size else 0
    ring.sums[COUNT] -= 1
    ring.sums[USED] -= size[file]
    return int(file)


class Ghosts(NamedTuple):
    """Files that were evicted, oldest first, counted with their bytes.

    `entry[FIRST … FIRST + COUNT - 1]` are files. An entry counts if `at[file]` is its place; `at` is -1 for
    files without a ghost. There are never more entries than accesses, so `entry` does not wrap around.
    """

    entry: IndexArray
    at: IndexArray
    sums: IntArray


def no_ghosts(n: int, m: int) -> Ghosts:
    """Room for the ghosts of a trace of `n` accesses to `m` files; memory is used only as they come."""
    return Ghosts(np.empty(n, np.int32), np.full(m, -1, np.int32), np.zeros(3, np.int64))


@bare
def remember(ghosts: Ghosts, limit: int, file: int, size: IntArray) -> None:
    """Add a ghost of `file`, dropping the oldest ones while all would take more than `limit` bytes."""
    need = size[file]
    if need > limit:
        return
    first, used = ghosts.sums[FIRST], ghosts.sums[USED] + need
    end = first + ghosts.sums[COUNT]
    while used > limit:
        oldest = ghosts.entry[first]
        if ghosts.at[oldest] == first:
            ghosts.at[oldest] = -1
            used -= size[oldest]
        first += 1
    ghosts.entry[end] = file
    ghosts.at[file] = end
    ghosts.sums[FIRST], ghosts.sums[COUNT], ghosts.sums[USED] = first, end + 1 - first, used


@bare
def forget(ghosts: Ghosts, file: int, size: IntArray) -> bool:
    """Drop the ghost of `file`; returns whether there was one."""
    if ghosts.at[file] < 0:
        return False
    ghosts.at[file] = -1
    ghosts.sums[USED] -= size[file]
    return True
