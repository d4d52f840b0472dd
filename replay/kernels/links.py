"""Queues of files with their bytes, from the oldest to the newest, which any file can leave in one step."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common.arrays import Ids, IntArray
from features.common.jit import bare, inner, wide

NOWHERE = 0
"""The queue of a file that is in none."""
ENDS = 4
"""Places before that of file 0: those of the ends of the queues, which are numbered from 1."""
# Columns of Queues.link.
OLDER, NEWER = range(2)
# Columns of Queues.sums.
COUNT, USED = range(2)


class Queues(NamedTuple):
    """Three queues of `m` files; each file is in one of them at most.

    `link`: int32[m + ENDS, 2], the places before and behind each place; file k has place k + ENDS, and queue
    q is a ring through place q. `queue`: uint8[m], the queue of each file. `n_bytes`: int64[m], what each
    file in a queue takes. `sums`: int64[ENDS, 2], files and bytes of each queue.
    """

    link: Ids
    queue: npt.NDArray[np.uint8]
    n_bytes: IntArray
    sums: IntArray


def no_queues(n_files: int) -> Queues:
    """Room for `n_files` files, with none in a queue."""
    link = np.zeros((n_files + ENDS, 2), np.int32)
    link[:ENDS] = np.arange(ENDS)[:, None]
    return Queues(
        link, np.zeros(n_files, np.uint8), np.zeros(n_files, np.int64), np.zeros((ENDS, 2), np.int64)
    )


@bare
def oldest(queues: Queues, queue: int) -> int:
    """The oldest file of a queue, -1 if it is empty."""
    return int(max(-1, queues.link[queue, NEWER] - ENDS))


@bare
def newer(queues: Queues, file: int) -> int:
    """The next newer file of one in a queue; -1: there is none."""
    return int(max(-1, queues.link[file + ENDS, NEWER] - ENDS))


@bare
def older(queues: Queues, file: int) -> int:
    """The next older file of one in a queue; -1: there is none."""
    return int(max(-1, queues.link[file + ENDS, OLDER] - ENDS))


@bare
def append(queues: Queues, queue: int, file: int, n_bytes: int) -> None:
    """Add a file that is in no queue as the newest."""
    end = wide(queue)
    _insert(queues, end, wide(queues.link[end, OLDER]), file, n_bytes)


@bare
def put_back(queues: Queues, queue: int, file: int, n_bytes: int) -> None:
    """Add a file that is in no queue as the oldest."""
    _insert(queues, wide(queue), wide(queue), file, n_bytes)


@bare
def insert_behind(queues: Queues, before: int, file: int, n_bytes: int) -> None:
    """Add a file that is in no queue as the next newer one than the file `before`."""
    _insert(queues, wide(queues.queue[before]), before + ENDS, file, n_bytes)


@bare
def leave(queues: Queues, file: int) -> None:
    """Take a file out of its queue; its bytes stay known."""
    link, place, queue = queues.link, file + ENDS, queues.queue[file]
    _join(link, wide(link[place, OLDER]), wide(link[place, NEWER]))
    queues.sums[queue, COUNT] -= 1
    queues.sums[queue, USED] -= queues.n_bytes[file]
    queues.queue[file] = NOWHERE


@bare
def resize(queues: Queues, file: int, n_bytes: int) -> None:
    """Change the bytes of a file in a queue."""
    queues.sums[queues.queue[file], USED] += n_bytes - queues.n_bytes[file]
    queues.n_bytes[file] = n_bytes


@bare
def to_newest(queues: Queues, queue: int, first: int, last: int) -> None:
    """Make a run of neighbours in a queue, from its oldest file to its newest, the newest."""
    link, begin, end = queues.link, first + ENDS, last + ENDS
    _join(link, wide(link[begin, OLDER]), wide(link[end, NEWER]))
    _join(link, wide(link[queue, OLDER]), begin)
    _join(link, end, wide(queue))


@inner
def _insert(queues: Queues, queue: int, before: int, file: int, n_bytes: int) -> None:
    """Add a file to a queue behind the place `before`."""
    queues.queue[file], queues.n_bytes[file] = queue, n_bytes
    queues.sums[queue, COUNT] += 1
    queues.sums[queue, USED] += n_bytes
    behind = wide(queues.link[before, NEWER])
    _join(queues.link, before, file + ENDS)
    _join(queues.link, file + ENDS, behind)


@inner
def _join(link: Ids, before: int, behind: int) -> None:
    link[before, NEWER], link[behind, OLDER] = behind, before
