"""A learned order beside a cache: LRU until the first one begins, then the least valuable of a sample."""

from typing import NamedTuple

import numpy as np

from features.common.arrays import FloatArray, Ids, IntArray
from features.common.jit import bare, narrow
from features.stream.state import Read, update
from replay.kernels import heuristics
from replay.kernels.auto import Learnt, Valued, begin, no_valued, store_valued
from replay.kernels.heuristics import LRU, Heuristic, drop, new_heuristic, note_read, store
from replay.kernels.scored_files import Eviction, Known, choose, put_back, remove


class Learned(NamedTuple):
    """`lru`: followed before the first order begins, and not kept up afterwards.

    `begun`: int64[1], the number of the order that is followed, -1: none; `clock`: float64[1], the latest
    read.
    """

    lru: Heuristic
    valued: Valued
    known: Known
    begun: IntArray
    clock: FloatArray


def new_learned(n_files: int, known: Known) -> Learned:
    """An empty cache with room for files."""
    lru = new_heuristic(LRU, 0, n_files, 0)
    return Learned(lru, no_valued(n_files), known, np.full(1, -1), np.full(1, -np.inf))


@bare
def read(of: Learned, learnt: Learnt, access: Read, was_held: bool) -> None:
    """Count a read of a file, which `was_held` or not."""
    begin(of.begun, 0, learnt.at, of.known.values)
    if of.begun[0] < 0:
        note_read(of.lru, access.item, was_held)
    of.clock[0] = max(of.clock[0], access.at_s)
    known, now_s = of.known, of.clock[0]
    update(known.state, known.files, Read(narrow(access.item), access.reader, 1.0, access.at_s, now_s))


@bare
def stored(of: Learned, file: int, n_bytes: int) -> None:
    """A file has so many bytes on disk from now on."""
    if of.begun[0] < 0:
        store(of.lru, file, n_bytes)
    store_valued(of.valued, file, n_bytes)


@bare
def removed(of: Learned, file: int) -> None:
    """A file is not on disk any more."""
    if of.begun[0] < 0:
        drop(of.lru, file)
    if of.valued.disk.place[file] >= 0:
        remove(of.valued.disk, file)


@bare
def may_go(of: Learned, file: int) -> None:
    """A file need not stay any more."""
    if of.begun[0] < 0:
        heuristics.may_go(of.lru, file)
    put_back(of.valued.disk, file)


@bare
def victims(of: Learned, learnt: Learnt, eviction: Eviction, victim: Ids) -> int:
    """Write the files that should go to `victim`, until their bytes are enough; how many."""
    begin(of.begun, 0, learnt.at, of.known.values)
    if of.begun[0] < 0:
        return heuristics.victims(of.lru, eviction.n_bytes, eviction.spare, victim)
    return choose(of.valued.disk, of.known, learnt.rule, eviction, victim)
