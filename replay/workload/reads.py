"""Every read of every task, in the order of time."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from replay.planner import IntArray
from replay.workload.catalogue import Catalogue
from replay.workload.config import WorkloadConfig
from replay.workload.rhythm import FloatArray, Rhythm
from replay.workload.tasks import Tasks

_DAY_US = 86_400_000_000
_AT_ONCE = 1 << 21
# Parallel jobs run ahead and lag behind by about this part of the pass.
_SHUFFLE = 0.05


class Slice(NamedTuple):
    """Some reads, by time: µs since 1970, and indices into tasks and files."""

    accessed_us: IntArray
    task: IntArray
    file: IntArray


@dataclasses.dataclass(frozen=True, eq=False)
class Reads:
    """All reads in one sorted array: `key` holds the moment above `bits` bits of the read's number.

    Reads are numbered task by task, file by file, from `first_read` of each task; a moment counts units of
    `unit_us` from the start. So 100 M reads take 8 bytes each, and equal moments keep one order.
    """

    key: IntArray
    bits: int
    unit_us: int
    start_us: int
    first_read: IntArray
    first_file: IntArray

    def __len__(self) -> int:
        return self.key.size

    def slice(self, begin: int, end: int) -> Slice:
        """The reads from the `begin`-th to before the `end`-th."""
        key = self.key[begin:end]
        number = key & ((1 << self.bits) - 1)
        task = np.searchsorted(self.first_read, number, side="right") - 1
        return Slice(
            accessed_us=self.start_us + (key >> self.bits) * self.unit_us,
            task=task,
            file=self.first_file[task] + number - self.first_read[task],
        )


def make_reads(
    config: WorkloadConfig, catalogue: Catalogue, tasks: Tasks, rhythm: Rhythm, rng: np.random.Generator
) -> Reads:
    """The reads within the days. A pass goes through its files in shuffled but steady order.

    The days are a ring: what runs past their end is what was running when they began. So every day is as
    busy as its weekday asks, and no access is lost; only of a dataset born in these days it is cut off.
    """
    first_read = np.cumsum(tasks.n_files, dtype=np.int64) - tasks.n_files
    n = int(tasks.n_files.sum(dtype=np.int64))
    bits = max(1, n.bit_length())
    unit_us = -(-config.days * _DAY_US // (1 << (63 - bits)))
    key = np.empty(n, np.int64)
    kept = 0
    for begin in range(0, n, _AT_ONCE):
        number = np.arange(begin, min(n, begin + _AT_ONCE))
        task = np.searchsorted(first_read, number, side="right") - 1
        work = _work(tasks, task, number - first_read[task], rng)
        inside = (work < rhythm.total) | np.isinf(catalogue.datasets.born_day[tasks.dataset[task]])
        day = rhythm.day(work[inside] % rhythm.total)
        # The last unit is left free: a moment is before the end of the days.
        units = np.minimum((day * (_DAY_US / unit_us)).astype(np.int64), config.days * _DAY_US // unit_us - 1)
        key[kept : kept + units.size] = (units << bits) | number[inside]
        kept += units.size
    key = key[:kept]
    key.sort()
    return Reads(
        key=key,
        bits=bits,
        unit_us=unit_us,
        start_us=config.start_s * 1_000_000,
        first_read=first_read,
        first_file=catalogue.first_file[tasks.dataset],
    )


def _work(
    tasks: Tasks, task: npt.NDArray[np.int64], position: IntArray, rng: np.random.Generator
) -> FloatArray:
    progress = (position + rng.random(task.size)) / tasks.n_files[task]
    progress = np.abs(progress + _SHUFFLE * rng.standard_normal(task.size))
    work: FloatArray = tasks.start[task] + progress * tasks.length[task]
    return work
