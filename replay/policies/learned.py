"""Eviction in line by a learned order: of a sample of the files on disk, the least valuable goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from features.arrays import BoolArray, Float32Array, FloatArray, IntArray
from features.jit import bare, kernel
from features.stream.row import COLUMNS, row
from features.stream.state import LAST, Ids, State, new_state, update
from replay.forest import Ladder, hit_rate
from replay.kernels.accesses import Accesses, accesses
from replay.story import Story
from replay.trace import Trace

SAMPLE = 64
"""Candidates of an eviction."""
RENEWED = 16
"""Of them, drawn anew at each eviction; the others are the least valuable of the last one."""
YOUNGEST_S = 60.0
"""Recency counts as at least this long."""


class Order(NamedTuple):
    """An order of eviction from time `from_s` on: log value = share · log hit rate + (1 - share) · log 1/age."""

    from_s: float
    ladder: Ladder
    share: float


class Disk(NamedTuple):
    """Files on disk: `at` int32[m], index of each in `held`, -1 if absent; `sums`: number and bytes, and peak."""

    at: Ids
    held: Ids
    sums: IntArray


class Pool(NamedTuple):
    """The candidates of the last eviction and their values; an absent one is -1."""

    file: Ids
    value: FloatArray
    seed: IntArray


N_HELD, USED, PEAK = range(3)


class Learned:
    """The policy: plain LRU before the first order begins, then each order until the next one begins."""

    def __init__(self, story: Story, orders: Sequence[Order]) -> None:
        self._story, self._orders = story, orders

    def __call__(self, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
        """Replay; the peak usage in bytes."""
        m = trace.n_items
        story = self._story
        state = new_state(m, story.n_files)
        disk = Disk(np.full(m, -1, np.int32), np.zeros(m, np.int32), np.zeros(3, np.int64))
        pool = Pool(np.full(SAMPLE, -1, np.int32), np.zeros(SAMPLE), np.array([88172645463325252], np.int64))
        reads, x = accesses(trace, capacity_bytes, hit), np.zeros(len(COLUMNS), np.float32)
        edges = [int(np.searchsorted(trace.time_s, order.from_s)) for order in self._orders]
        edges.append(trace.n_accesses)
        _serve_lru(reads, trace.time_s, story, state, disk, 0, edges[0])
        for k, order in enumerate(self._orders):
            _serve(
                reads,
                trace.time_s,
                story,
                state,
                disk,
                pool,
                order.ladder,
                order.share,
                x,
                edges[k],
                edges[k + 1],
            )
        return int(disk.sums[PEAK])


@kernel
def _serve_lru(
    reads: Accesses, time_s: IntArray, story: Story, state: State, disk: Disk, start: int, stop: int
) -> None:
    """Evict the oldest: a clock hand over the accesses finds it."""
    item, size, capacity, hit = reads
    hand = 0
    last = np.full(size.size, -1, np.int64)
    for i in range(start, stop):
        file, need = item[i], size[item[i]]
        if disk.at[file] >= 0:
            hit[i] = True
        elif need <= capacity:
            while disk.sums[USED] + need > capacity:
                if last[item[hand]] == hand and disk.at[item[hand]] >= 0:
                    _remove(disk, item[hand], size)
                hand += 1
            _insert(disk, file, need)
        last[file] = i
        update(state, story.files, file, story.reader[i], time_s[i], story.pause_s)


@bare
def _serve(
    reads: Accesses,
    time_s: IntArray,
    story: Story,
    state: State,
    disk: Disk,
    pool: Pool,
    ladder: Ladder,
    share: float,
    x: Float32Array,
    start: int,
    stop: int,
) -> None:
    item, size, capacity, hit = reads
    for k in range(SAMPLE):
        pool.file[k] = -1
    for i in range(start, stop):
        file, need = item[i], size[item[i]]
        if disk.at[file] >= 0:
            hit[i] = True
        elif need <= capacity:
            while disk.sums[USED] + need > capacity:
                _remove(disk, _least(state, story, disk, pool, ladder, share, x, float(time_s[i])), size)
            _insert(disk, file, need)
        update(state, story.files, file, story.reader[i], float(time_s[i]), story.pause_s)
        _forget_dataset(pool, story.files.dataset, file)


@bare
def _least(
    state: State,
    story: Story,
    disk: Disk,
    pool: Pool,
    ladder: Ladder,
    share: float,
    x: Float32Array,
    now_s: float,
) -> int:
    """The least valuable of the pool, which is renewed first."""
    worst, n_new = -1, 0
    for k in range(SAMPLE):
        if pool.file[k] < 0:
            file = disk.held[_random(pool.seed, disk.sums[N_HELD])]
            pool.file[k] = file
            row(state, story.files, file, now_s, story.pause_s, x)
            age_s = max(YOUNGEST_S, now_s - state.file[file, LAST])
            pool.value[k] = share * np.log(hit_rate(ladder, x)) - (1 - share) * np.log(age_s)
            n_new += 1
        if worst < 0 or pool.value[k] < pool.value[worst]:
            worst = k
    file = pool.file[worst]
    _forget(pool, file)
    _drop_best(pool)
    return file


@bare
def _drop_best(pool: Pool) -> None:
    """Empty the most valuable candidates' places, so that the next eviction draws others."""
    for _ in range(RENEWED - 1):
        best = -1
        for k in range(SAMPLE):
            if pool.file[k] >= 0 and (best < 0 or pool.value[k] > pool.value[best]):
                best = k
        if best < 0:
            return
        pool.file[best] = -1


@bare
def _forget(pool: Pool, file: int) -> None:
    for k in range(SAMPLE):
        if pool.file[k] == file:
            pool.file[k] = -1


@bare
def _forget_dataset(pool: Pool, dataset: Ids, file: int) -> None:
    """A read changes the values of all files of its dataset."""
    for k in range(SAMPLE):
        if pool.file[k] >= 0 and dataset[pool.file[k]] == dataset[file]:
            pool.file[k] = -1


@bare
def _random(seed: IntArray, below: int) -> int:
    """A number from 0 to `below` - 1 (xorshift: the same on every machine)."""
    s = np.uint64(seed[0])
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    seed[0] = np.int64(s)
    return int(s % np.uint64(below))


@bare
def _insert(disk: Disk, file: int, need: int) -> None:
    n = disk.sums[N_HELD]
    disk.held[n], disk.at[file] = file, n
    disk.sums[N_HELD] += 1
    disk.sums[USED] += need
    disk.sums[PEAK] = max(disk.sums[PEAK], disk.sums[USED])


@bare
def _remove(disk: Disk, file: int, size: IntArray) -> None:
    disk.sums[N_HELD] -= 1
    moved, at = disk.held[disk.sums[N_HELD]], disk.at[file]
    disk.held[at], disk.at[moved] = moved, at
    disk.at[file] = -1
    disk.sums[USED] -= size[file]
