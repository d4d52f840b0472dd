"""Eviction by a score per file, renewed at boundaries: from the whole cache, or from the tail of an LRU."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.errors import InputError
from features.common.jit import bare
from replay.kernels.accesses import AHEAD, Accesses, accesses, fetch
from replay.kernels.heap import Entry, Heap, arrange, fill, no_entries, push, replace
from replay.policies.policy import Policy
from replay.trace import IndexArray, ItemArray, Trace

TAIL_SHARE = 0.25
"""Share of the capacity from which `score-tail` evicts."""

# Entries of Tail.sums: index of the head's oldest access, bytes held, bytes of the head, entries of the heap,
# peak usage.
EDGE, USED, HEAD_USED, COUNT, PEAK = range(5)


class Scores(Protocol):
    """A model's scores of every file of the trace, renewed at boundaries; high scores are kept."""

    @property
    def boundaries(self) -> IntArray:
        """int64[k], s since 1970, ascending: when new scores take effect."""
        ...

    def at(self, k: int, /) -> FloatArray:
        """float64[m], the score of each dense file id between boundary k and the next."""
        ...


def score_policies(scores: Scores) -> dict[str, Policy]:
    """The policies `score` and `score-tail` on `scores`, by name."""
    return {
        "score": partial(least_score, scores, 1.0),
        "score-tail": partial(least_score, scores, TAIL_SHARE),
    }


def least_score(scores: Scores, tail_share: float, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the lowest score of the tail, on a tie the least recently used; the peak usage in bytes.

    The tail is all files but the most recently used ones that fill (1 - `tail_share`) of the capacity; with a
    share of 1 it is the whole cache. A read moves a file out of the tail. If the tail is empty, the least
    recently used file is evicted. Before the first boundary every score is 0. Raises InputError if the scores
    do not fit the trace.
    """
    m = trace.n_items
    # With -1, not even files of 0 bytes stay in the head.
    head_bytes = int((1 - tail_share) * capacity_bytes) if tail_share < 1 else -1
    tail = Tail(
        score=np.zeros(m),
        last=np.full(m, -1, np.int32),
        queued=np.zeros(m, np.bool_),
        heap=no_entries(m),
        sums=np.zeros(5, np.int64),
    )
    edges = [*np.searchsorted(trace.time_s, _boundaries(scores)).tolist(), trace.n_accesses]
    reads = accesses(trace, capacity_bytes, hit)
    _serve(reads, head_bytes, tail, 0, edges[0])
    for k, (start, stop) in enumerate(pairwise(edges)):
        if start < stop:
            tail.score[:] = _checked(scores.at(k), m, k)
            _rescore(tail)
            _serve(reads, head_bytes, tail, start, stop)
    return int(tail.sums[PEAK])


def _boundaries(scores: Scores) -> IntArray:
    boundaries = np.asarray(scores.boundaries, np.int64)
    if (np.diff(boundaries) <= 0).any():
        raise InputError("the scores' boundaries are not strictly ascending; sort them and drop duplicates")
    return boundaries


def _checked(score: FloatArray, m: int, k: int) -> FloatArray:
    if score.shape != (m,):
        raise InputError(f"boundary {k} has scores of shape {score.shape}; give one for each of {m} files")
    if np.isnan(score).any():
        raise InputError(f"boundary {k} has no score for file {int(np.isnan(score).argmax())}; give a number")
    return score


class Tail(NamedTuple):
    """`last`: index of each file's last access, -1 if absent; the tail holds those before `sums[EDGE]`.

    `queued`: the file has an entry in `heap`. A read leaves the entry as it is; it is dropped or corrected
    when it reaches the top.
    """

    score: FloatArray
    last: IndexArray
    queued: BoolArray
    heap: Heap
    sums: IntArray


@bare
def _serve(reads: Accesses, head_bytes: int, tail: Tail, start: int, stop: int) -> None:
    item, size, capacity, hit = reads
    last, sums = tail.last, tail.sums
    for i in range(start, stop):
        file = item[i]
        if i + AHEAD < stop:
            fetch(last, item[i + AHEAD])
            fetch(size, item[i + AHEAD])
        need = size[file]
        if need > capacity:
            continue
        if last[file] >= 0:
            hit[i] = True
            if last[file] < sums[EDGE]:
                sums[HEAD_USED] += need
        else:
            while sums[USED] + need > capacity:
                _evict(item, size, tail)
            sums[USED] += need
            sums[HEAD_USED] += need
            sums[PEAK] = max(sums[PEAK], sums[USED])
        last[file] = i
        while sums[HEAD_USED] > head_bytes and sums[EDGE] <= i:
            _age(item, size, tail)


@bare
def _age(item: ItemArray, size: IntArray, tail: Tail) -> None:
    """Advance the head's edge by one access; if that was its file's last one, the file joins the tail."""
    edge = tail.sums[EDGE]
    tail.sums[EDGE] += 1
    file = item[edge]
    if tail.last[file] != edge:
        return
    tail.sums[HEAD_USED] -= size[file]
    if not tail.queued[file]:
        tail.queued[file] = True
        push(tail.heap, tail.sums[COUNT], Entry(tail.score[file], int(edge), int(file)))
        tail.sums[COUNT] += 1


@bare
def _evict(item: ItemArray, size: IntArray, tail: Tail) -> None:
    heap, last, sums = tail.heap, tail.last, tail.sums
    while True:
        if sums[COUNT] == 0:
            _age(item, size, tail)
            continue
        file = heap.file[0]
        if last[file] < sums[EDGE] and heap.tie[0] != last[file]:
            replace(heap, sums[COUNT], Entry(tail.score[file], int(last[file]), int(file)))
            continue
        tail.queued[file] = False
        sums[COUNT] -= 1
        fill(heap, sums[COUNT])
        if last[file] < sums[EDGE]:
            last[file] = -1
            sums[USED] -= size[file]
            return


@bare
def _rescore(tail: Tail) -> None:
    """Order the tail by the current scores."""
    heap, sums = tail.heap, tail.sums
    count = 0
    for at in range(sums[COUNT]):
        file = heap.file[at]
        tail.queued[file] = tail.last[file] < sums[EDGE]
        if tail.queued[file]:
            heap.key[count] = tail.score[file]
            heap.tie[count] = tail.last[file]
            heap.file[count] = file
            count += 1
    sums[COUNT] = count
    arrange(heap, count)
