"""Eviction in line by a learned order: of a sample of the files on disk, the least valuable goes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from features.arrays import BoolArray, Float32Array, FloatArray, IntArray
from features.jit import bare, kernel
from features.stream.columns import COLUMNS
from features.stream.row import row
from features.stream.state import D_LAST, LAST, Ids, Read, State, new_state, update
from replay.forest import Ladder, hit_rate
from replay.kernels.accesses import Accesses, accesses
from replay.story import Story, check_fits
from replay.trace import Trace

SAMPLE = 64
"""Candidates of an eviction."""
STALE = 0.05
"""A value is scored again when the time since the file's last read has grown by this share."""
YOUNGEST_S = 60.0
"""Recency counts as at least this long."""
SEED = 88172645463325252

# Entries of Disk.sums.
N_HELD, USED, PEAK = range(3)


class Order(NamedTuple):
    """An order from time `from_s` on: log value = share · log hit rate + (1 - share) · log 1/age."""

    from_s: float
    ladder: Ladder
    share: float


class Disk(NamedTuple):
    """Files on disk. `place`: int32[m], index of each file in `held`, -1 if absent; `sums`: see above."""

    place: Ids
    held: Ids
    sums: IntArray


class Values(NamedTuple):
    """Each file's last `value`, and when it was scored, `at_s` (NaN: never), float64[m]; `seed`: int64[1]."""

    value: FloatArray
    at_s: FloatArray
    seed: IntArray


class Run(NamedTuple):
    """A replay in progress. `x`: float32[columns], the row that is being scored."""

    reads: Accesses
    time_s: IntArray
    story: Story
    state: State
    disk: Disk
    values: Values
    x: Float32Array


class Learned:
    """The policy: LRU before the first order begins, then each order until the next one begins."""

    def __init__(self, story: Story, orders: Sequence[Order]) -> None:
        self._story, self._orders = story, orders

    def __call__(self, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
        """Replay, marking hits; the peak usage in bytes. Raises InputError."""
        check_fits(self._story, trace)
        m = trace.n_items
        run = Run(
            accesses(trace, capacity_bytes, hit),
            trace.time_s,
            self._story,
            new_state(m, self._story.n_datasets),
            Disk(np.full(m, -1, np.int32), np.zeros(m, np.int32), np.zeros(3, np.int64)),
            Values(np.zeros(m), np.full(m, np.nan), np.array([SEED], np.int64)),
            np.zeros(len(COLUMNS), np.float32),
        )
        edges = np.searchsorted(trace.time_s, [order.from_s for order in self._orders]).tolist()
        _serve_lru(run, edges[0] if edges else trace.n_accesses)
        for order, (start, stop) in zip(self._orders, pairwise([*edges, trace.n_accesses]), strict=True):
            _serve(run, order.ladder, order.share, start, stop)
        return int(run.disk.sums[PEAK])


@kernel
def _serve_lru(run: Run, stop: int) -> None:
    """Serve the accesses before `stop`; a hand that follows them finds the oldest file."""
    item, size, capacity, hit = run.reads
    last, hand = np.full(size.size, -1, np.int64), 0
    for i in range(stop):
        file, need = item[i], size[item[i]]
        if run.disk.place[file] >= 0:
            hit[i] = True
        elif need <= capacity:
            while run.disk.sums[USED] + need > capacity:
                if last[item[hand]] == hand and run.disk.place[item[hand]] >= 0:
                    _remove(run.disk, item[hand], size[item[hand]])
                hand += 1
            _insert(run.disk, file, need)
        last[file] = i
        _note(run, i)


@bare
def _serve(run: Run, ladder: Ladder, share: float, start: int, stop: int) -> None:
    """Serve accesses `start` … `stop` - 1 by one order."""
    item, size, capacity, hit = run.reads
    run.values.at_s[:] = np.nan
    for i in range(start, stop):
        file, need = item[i], size[item[i]]
        if run.disk.place[file] >= 0:
            hit[i] = True
        elif need <= capacity:
            while run.disk.sums[USED] + need > capacity:
                gone = _least_valuable(run, ladder, share, float(run.time_s[i]))
                _remove(run.disk, gone, size[gone])
            _insert(run.disk, file, need)
        _note(run, i)


@bare
def _note(run: Run, i: int) -> None:
    story, now_s = run.story, float(run.time_s[i])
    update(run.state, story.files, Read(run.reads.item[i], story.reader[i], 1.0, now_s, now_s))


@bare
def _least_valuable(run: Run, ladder: Ladder, share: float, now_s: float) -> int:
    """The least valuable file of a sample."""
    values = run.values
    worst = -1
    for _ in range(SAMPLE):
        file = run.disk.held[_draw(values.seed, run.disk.sums[N_HELD])]
        if not _is_fresh(run, file, now_s):
            values.value[file], values.at_s[file] = _value(run, ladder, share, file, now_s), now_s
        if worst < 0 or values.value[file] < values.value[worst]:
            worst = file
    return int(worst)


@bare
def _is_fresh(run: Run, file: int, now_s: float) -> bool:
    """Whether the file's value still holds: its dataset was not read since, and it is hardly older."""
    at_s = run.values.at_s[file]
    dataset = run.story.files.dataset[file]
    aged = STALE * (at_s - run.state.file[file, LAST]) + YOUNGEST_S
    return bool(at_s >= run.state.dataset[dataset, D_LAST] and now_s - at_s <= aged)


@bare
def _value(run: Run, ladder: Ladder, share: float, file: int, now_s: float) -> float:
    age_s = max(YOUNGEST_S, now_s - run.state.file[file, LAST])
    if share == 0:
        return float(-np.log(age_s))
    row(run.state, run.story.files, file, now_s, run.x)
    return float(share * np.log(hit_rate(ladder, run.x)) - (1 - share) * np.log(age_s))


@bare
def _draw(seed: IntArray, below: int) -> int:
    """A number from 0 to `below` - 1, by xorshift: the same on every machine."""
    s = np.uint64(seed[0])
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    seed[0] = np.int64(s)
    return int(s % np.uint64(below))


@bare
def _insert(disk: Disk, file: int, need: int) -> None:
    n = disk.sums[N_HELD]
    disk.held[n], disk.place[file] = file, n
    disk.sums[N_HELD] += 1
    disk.sums[USED] += need
    disk.sums[PEAK] = max(disk.sums[PEAK], disk.sums[USED])


@bare
def _remove(disk: Disk, file: int, size: int) -> None:
    disk.sums[N_HELD] -= 1
    moved, place = disk.held[disk.sums[N_HELD]], disk.place[file]
    disk.held[place], disk.place[moved] = moved, place
    disk.place[file] = -1
    disk.sums[USED] -= size
