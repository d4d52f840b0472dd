"""Orders of eviction without a model: LRU, S3-FIFO, LRU by dataset."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.jit import bare, inner, wide
from replay.kernels import links
from replay.kernels.links import COUNT, USED, Queues

LRU, S3FIFO, DATASET_LRU = range(3)
"""Evicted first: the longest unread file; see `Heuristic`; the files of the longest unread dataset."""
NAMES = ("lru", "s3fifo", "dataset-lru")

# Of S3-FIFO: shares of the capacity, hits that a file counts, and hits that take it to the main queue.
SMALL_SHARE, GHOST_SHARE = 0.10, 0.90
MOST_HITS, HITS_TO_MOVE = 3, 2
# The queues: of LRU and dataset-LRU; of S3-FIFO.
ALL = 1
SMALL, MAIN, GHOSTS = 1, 2, 3
# Entries of Heuristic.limits.
SMALL_BYTES, MAIN_BYTES, GHOST_BYTES, HAS_EVICTED = range(4)
TURNS = MOST_HITS + 2
"""After so many looks at most, a file is evicted, unless it must stay."""
# Columns of Heuristic.ends.
OLDEST, NEWEST = range(2)
# Entries of Heuristic.walk.
START, LAST_TURN = range(2)


class Heuristic(NamedTuple):
    """An order of one `kind`, `LRU` for example, and the files on disk in it.

    S3-FIFO: files with two hits in the small queue move to the main one, and so do ghosts that come again.
    `hits`: uint8[m], of each file; `limits`: int64[4], bytes of each queue, and whether it has evicted.
    Dataset-LRU: `dataset`: int32[m], of each file; `ends`: int32[d, 2], the oldest and the newest file on
    disk of each dataset plus 1, 0: it has none. The files of a dataset are neighbours in the queue.
    LRU: `turn`: int64[m], the later a file became the newest, the larger; `walk`: int64[2], the file at which
    the search for victims starts, -1: behind the newest, and the last turn. All older files must stay: they
    are not passed at each eviction, of which a cache with nine pins in ten files has many. Where no file
    must stay there are no turns: see `without_turns`.
    The arrays of other kinds are empty.
    """

    kind: int
    queues: Queues
    hits: npt.NDArray[np.uint8]
    limits: IntArray
    dataset: Ids
    ends: Ids
    turn: IntArray
    walk: IntArray


def new_heuristic(kind: int, capacity_bytes: int, n_files: int, n_datasets: int) -> Heuristic:
    """The order for a cache, with room for files and datasets, and none on disk."""
    small = int(capacity_bytes * SMALL_SHARE)
    limits = [small, capacity_bytes - small, int(capacity_bytes * GHOST_SHARE), 0]
    return Heuristic(
        kind,
        links.no_queues(n_files),
        np.zeros(n_files if kind == S3FIFO else 0, np.uint8),
        np.array(limits, np.int64),
        np.zeros(n_files if kind == DATASET_LRU else 0, np.int32),
        np.zeros((n_datasets if kind == DATASET_LRU else 0, 2), np.int32),
        np.zeros(n_files if kind == LRU else 0, np.int64),
        np.array([-1, 0]) if kind == LRU else np.zeros(0, np.int64),
    )


def without_turns(order: Heuristic) -> Heuristic:
    """`order` for a cache in which no file must stay at an eviction, in less memory."""
    return order._replace(turn=np.zeros(0, np.int64))


@bare
def is_held(order: Heuristic, file: int) -> bool:
    """Whether the file is on disk; `order.queues.n_bytes` are its bytes."""
    return bool(0 < order.queues.queue[file] < GHOSTS)


@bare
def note_read(order: Heuristic, file: int, was_held: bool) -> None:
    """Count a read of a file, which `was_held` or not."""
    if order.kind == S3FIFO:
        if was_held:
            order.hits[file] = min(MOST_HITS, order.hits[file] + 1)
    elif order.kind == DATASET_LRU:
        _read_of_dataset(order, file)
    elif is_held(order, file):
        behind = links.newer(order.queues, file)
        if order.walk[START] == file and behind >= 0:
            order.walk[START] = behind
        links.to_newest(order.queues, ALL, file, file)
        _take_turn(order, file)


@bare
def store(order: Heuristic, file: int, n_bytes: int) -> None:
    """A file has so many bytes on disk from now on."""
    if is_held(order, file):
        links.resize(order.queues, file, n_bytes)
    elif order.kind == S3FIFO:
        _enter_fifo(order, file, n_bytes)
    elif order.kind == DATASET_LRU:
        _enter_dataset(order, file, n_bytes)
    else:
        links.append(order.queues, ALL, file, n_bytes)
        _take_turn(order, file)
        if order.walk[START] < 0:
            order.walk[START] = file


@bare
def may_go(order: Heuristic, file: int) -> None:
    """A file that had to stay need not any more."""
    if order.kind == LRU and is_held(order, file):
        start = order.walk[START]
        if start < 0 or order.turn[file] < order.turn[start]:
            order.walk[START] = file


@bare
def drop(order: Heuristic, file: int) -> None:
    """A file is not on disk any more."""
    if not is_held(order, file):
        return
    queues = order.queues
    if order.kind == DATASET_LRU:
        _leave_dataset(order, file)
    elif order.kind == LRU and order.walk[START] == file:
        order.walk[START] = links.newer(queues, file)
    was_small = order.kind == S3FIFO and queues.queue[file] == SMALL
    links.leave(queues, file)
    if was_small:
        _become_ghost(queues, file, order.limits[GHOST_BYTES])


@bare
def victims(order: Heuristic, n_bytes: int, spare: BoolArray, victim: Ids) -> int:
    """Write the files that go first to `victim` until their bytes reach `n_bytes` or none is left; how many.

    They stay on disk. `spare`: bool[m or more], files that must stay, until `may_go`; bool[0]: none, ever.
    `victim`: int32, at least as long as there are files on disk.
    """
    if order.kind == S3FIFO:
        return _fifo_victims(order, n_bytes, spare, victim) if n_bytes > 0 else 0
    queues, n = order.queues, 0
    if order.kind == LRU:
        file = order.walk[START]
        while spare.size and file >= 0 and spare[file]:
            file = links.newer(queues, file)
        order.walk[START] = file
    else:
        file = links.oldest(queues, ALL)
    while n_bytes > 0 and file >= 0:
        if not (spare.size and spare[file]):
            victim[n] = file
            n += 1
            n_bytes -= queues.n_bytes[file]
        file = links.newer(queues, file)
    return n


@inner
def _take_turn(order: Heuristic, file: int) -> None:
    if order.turn.size:
        order.walk[LAST_TURN] += 1
        order.turn[file] = order.walk[LAST_TURN]


@inner
def _enter_fifo(order: Heuristic, file: int, n_bytes: int) -> None:
    """A new file enters the small queue; a ghost, and what comes to an empty cache, the main one."""
    queues, limits = order.queues, order.limits
    order.hits[file] = 0
    is_ghost = queues.queue[file] == GHOSTS
    if is_ghost:
        links.leave(queues, file)
    fills = limits[HAS_EVICTED] == 0 and queues.sums[SMALL, USED] >= limits[SMALL_BYTES]
    links.append(queues, MAIN if is_ghost or fills else SMALL, file, n_bytes)


@inner
def _become_ghost(queues: Queues, file: int, limit_bytes: int) -> None:
    """Remember a file, and forget the oldest ghosts while all have more than `limit_bytes`."""
    n_bytes = queues.n_bytes[file]
    if n_bytes > limit_bytes:
        return
    while queues.sums[GHOSTS, COUNT] > 0 and queues.sums[GHOSTS, USED] + n_bytes > limit_bytes:
        links.leave(queues, links.oldest(queues, GHOSTS))
    links.append(queues, GHOSTS, file, n_bytes)


@inner
def _fifo_victims(order: Heuristic, n_bytes: int, spare: BoolArray, victim: Ids) -> int:
    """Files without enough hits from the front of the queue that has more than its share.

    Files that must stay are passed over, and keep their places. Those of the small queue leave less to the
    main one: else whoever keeps files open would have every closed file behind them evicted, and main stay.
    """
    queues, hits, limits, sums = order.queues, order.hits, order.limits, order.queues.sums
    limits[HAS_EVICTED] = 1
    turns, n, passed_bytes = TURNS * (sums[SMALL, COUNT] + sums[MAIN, COUNT]), 0, 0
    next_small, next_main = links.oldest(queues, SMALL), links.oldest(queues, MAIN)
    while n_bytes > 0 and turns > 0 and max(next_small, next_main) >= 0:
        turns -= 1
        is_full = sums[MAIN, USED] > limits[MAIN_BYTES] - passed_bytes and next_main >= 0
        is_main = is_full or next_small < 0
        file = next_main if is_main else next_small
        if is_main:
            next_main = links.newer(queues, file)
        else:
            next_small = links.newer(queues, file)
        size = queues.n_bytes[file]
        if spare.size and spare[file]:
            passed_bytes += 0 if is_main else size
            continue
        links.leave(queues, file)
        if hits[file] >= (1 if is_main else HITS_TO_MOVE):
            hits[file] = hits[file] - 1 if is_main else 0
            links.append(queues, MAIN, file, size)
            next_main = file if next_main < 0 else next_main
        else:
            victim[n] = file if is_main else ~file
            n += 1
            n_bytes -= size
    for k in range(n - 1, -1, -1):
        is_main = victim[k] >= 0
        file = wide(victim[k] if is_main else ~victim[k])
        victim[k] = file
        links.put_back(queues, MAIN if is_main else SMALL, file, queues.n_bytes[file])
    return n


@inner
def _read_of_dataset(order: Heuristic, file: int) -> None:
    """The dataset is the newest now, and in it the file."""
    queues, ends = order.queues, order.ends[order.dataset[file]]
    if ends[OLDEST] == 0:
        return
    links.to_newest(queues, ALL, ends[OLDEST] - 1, ends[NEWEST] - 1)
    if is_held(order, file) and file != ends[NEWEST] - 1:
        if file == ends[OLDEST] - 1:
            ends[OLDEST] = links.newer(queues, file) + 1
        links.to_newest(queues, ALL, file, file)
        ends[NEWEST] = file + 1


@inner
def _enter_dataset(order: Heuristic, file: int, n_bytes: int) -> None:
    """A new file is the newest of its dataset; a dataset that had none is the newest."""
    ends = order.ends[order.dataset[file]]
    if ends[OLDEST] == 0:
        links.append(order.queues, ALL, file, n_bytes)
        ends[OLDEST] = file + 1
    else:
        links.insert_behind(order.queues, ends[NEWEST] - 1, file, n_bytes)
    ends[NEWEST] = file + 1


@inner
def _leave_dataset(order: Heuristic, file: int) -> None:
    """Another file is the oldest or the newest of its dataset, if there is one."""
    ends, place = order.ends[order.dataset[file]], file + 1
    is_oldest, is_newest = place == ends[OLDEST], place == ends[NEWEST]
    if is_oldest:
        ends[OLDEST] = 0 if is_newest else links.newer(order.queues, file) + 1
    if is_newest:
        ends[NEWEST] = 0 if is_oldest else links.older(order.queues, file) + 1
