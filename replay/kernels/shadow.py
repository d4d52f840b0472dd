"""A simulated cache that makes room at each read: what an order without a model would have missed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.jit import bare
from replay.kernels.heuristics import Found, Heuristic, drop, is_held, note_read, store, victims


class Shadow(NamedTuple):
    """A cache of `capacity_bytes`.

    `used_bytes`: int64[1]; `chosen`: int32[m], victims; `nothing`: bool[0], files that must stay.
    """

    capacity_bytes: int
    order: Heuristic
    used_bytes: IntArray
    chosen: Ids
    nothing: BoolArray


def new_shadow(order: Heuristic, capacity_bytes: int) -> Shadow:
    """An empty cache."""
    n_files = order.queues.queue.size
    return Shadow(
        capacity_bytes, order, np.zeros(1, np.int64), np.zeros(n_files, np.int32), np.zeros(0, np.bool_)
    )


@bare
def serve(shadow: Shadow, file: int, n_bytes: int) -> bool:
    """Serve a read of a file that takes `n_bytes`; whether it was on disk."""
    order, used, chosen = shadow.order, shadow.used_bytes, shadow.chosen
    has = is_held(order, file)
    comes = not has and n_bytes <= shadow.capacity_bytes
    missing = used[0] + n_bytes - shadow.capacity_bytes
    if comes and missing > 0:
        for gone in chosen[: victims(order, missing, shadow.nothing, chosen)]:
            used[0] -= order.queues.n_bytes[gone]
            drop(order, gone)
    note_read(order, file, has)
    if comes:
        used[0] += n_bytes
        store(order, file, n_bytes)
    return has


@bare
def fill(shadow: Shadow, file: int, n_bytes: int) -> None:
    """Add a file that nobody has read, if there is room; correct the bytes of one that is on disk."""
    order, used = shadow.order, shadow.used_bytes
    has = is_held(order, file)
    before = order.queues.n_bytes[file] if has else 0
    if has or used[0] + n_bytes <= shadow.capacity_bytes:
        used[0] += n_bytes - before
        store(order, file, n_bytes)


@bare
def take(shadow: Shadow, found: Found, takes: IntArray, hits: BoolArray) -> None:
    """Serve and fill with the files of an inventory; `takes`: int64[m], bytes of each, which are corrected.

    `hits`: bool[n], gets True where a read was served from disk.
    """
    for k in range(found.file.size):
        file = found.file[k]
        if found.is_read[k]:
            hits[k] = serve(shadow, file, takes[file])
        takes[file] = found.n_bytes[k]
        fill(shadow, file, found.n_bytes[k])
