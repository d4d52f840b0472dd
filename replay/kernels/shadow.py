"""A shadow cache, which is only simulated, and follows an order of eviction without a model."""

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, Ids, IntArray
from features.common.jit import bare, wide
from replay.kernels.heuristics import Heuristic, drop, is_held, note_read, store, victims, without_turns


class Inventory(NamedTuple):
    """The files of an inventory, each once, usually by their last use.

    `file`: int64[n]; `n_bytes`: int64[n], on disk; `at_s`: float64[n], the last use; `is_read`: bool[n],
    whether that counts as a read, before the file is on disk.
    """

    file: IntArray
    n_bytes: IntArray
    at_s: FloatArray
    is_read: BoolArray


class Shadow(NamedTuple):
    """A cache of `capacity_bytes` that is only simulated, to count what `order` would have hit.

    `used_bytes`: int64[1]; `victim`: int32[m], victims; `nothing`: bool[0], files that must stay.
    """

    capacity_bytes: int
    order: Heuristic
    used_bytes: IntArray
    victim: Ids
    nothing: BoolArray


def new_shadow(order: Heuristic, capacity_bytes: int) -> Shadow:
    """An empty shadow cache."""
    used, victim = np.zeros(1, np.int64), np.zeros(order.queues.queue.size, np.int32)
    return Shadow(capacity_bytes, without_turns(order), used, victim, np.zeros(0, np.bool_))


@bare
def serve(shadow: Shadow, file: int, n_bytes: int) -> bool:
    """Serve a read of a file that takes `n_bytes`; whether it was on disk."""
    order, used, victim = shadow.order, shadow.used_bytes, shadow.victim
    was_held = is_held(order, file)
    is_admitted = not was_held and n_bytes <= shadow.capacity_bytes
    missing = used[0] + n_bytes - shadow.capacity_bytes
    if is_admitted and missing > 0:
        for gone in victim[: victims(order, missing, shadow.nothing, victim)]:
            evicted = wide(gone)
            used[0] -= order.queues.n_bytes[evicted]
            drop(order, evicted)
    note_read(order, file, was_held)
    if is_admitted:
        used[0] += n_bytes
        store(order, file, n_bytes)
    return was_held


@bare
def fill(shadow: Shadow, file: int, n_bytes: int) -> None:
    """Add a file that nobody has read, if there is room; correct the bytes of one that is on disk."""
    order, used = shadow.order, shadow.used_bytes
    was_held = is_held(order, file)
    before = order.queues.n_bytes[file] if was_held else 0
    if was_held or used[0] + n_bytes <= shadow.capacity_bytes:
        used[0] += n_bytes - before
        store(order, file, n_bytes)


@bare
def take(shadow: Shadow, inventory: Inventory, takes: IntArray, hits: BoolArray) -> None:
    """Serve and fill with the files of an inventory; `takes`: int64[m], bytes of each, which are corrected.

    `hits`: bool[n], gets True where a read was served from disk.
    """
    for k in range(inventory.file.size):
        file = inventory.file[k]
        if inventory.is_read[k]:
            hits[k] = serve(shadow, file, takes[file])
        takes[file] = inventory.n_bytes[k]
        fill(shadow, file, inventory.n_bytes[k])
