"""Every read of every task, in time order."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from features.common.arrays import FloatArray, IntArray
from replay.workload.catalogue import Catalogue
from replay.workload.config import WorkloadConfig
from replay.workload.rhythm import Rhythm
from replay.workload.tasks import Tasks

_DAY_US = 86_400_000_000
_AT_ONCE = 1 << 21
# Parallel jobs run ahead of their pass or lag behind it by about this fraction of it.
_SHUFFLE = 0.05
_KEY_BITS = 63


class Slice(NamedTuple):
    """Some reads, by time: µs since 1970, and indices into tasks and files."""

    accessed_us: IntArray
    task: IntArray
    file: IntArray


@dataclasses.dataclass(frozen=True, eq=False)
class PackedReads:
    """All reads by time, 8 bytes each: `key` is a read's time above its number in the lower `number_bits`.

    Times count units of `unit_us` from the start. Numbers count task by task and file by file, from
    `first_read` of each task; they keep the order of reads at equal times.
    """

    key: IntArray
    number_bits: int
    unit_us: int
    start_us: int
    first_read: IntArray
    first_file: IntArray

    def __len__(self) -> int:
        return self.key.size

    def slice(self, begin: int, end: int) -> Slice:
        """The reads from the `begin`-th to before the `end`-th."""
        units, number = _unpacked(self.key[begin:end], self.number_bits)
        task = np.searchsorted(self.first_read, number, side="right") - 1
        return Slice(
            accessed_us=self.start_us + units * self.unit_us,
            task=task,
            file=self.first_file[task] + number - self.first_read[task],
        )


def _packed(units: IntArray, number: IntArray, number_bits: int) -> IntArray:
    return (units << number_bits) | number


def _unpacked(key: IntArray, number_bits: int) -> tuple[IntArray, IntArray]:
    return key >> number_bits, key & ((1 << number_bits) - 1)


def make_reads(
    config: WorkloadConfig, catalogue: Catalogue, tasks: Tasks, rhythm: Rhythm, rng: np.random.Generator
) -> PackedReads:
    """The reads within the days. A pass reads its files in an order that is shuffled a little.

    Without habits the days are a ring: reads that would come after the end come at the beginning instead. So
    every day is as busy as its weekday demands, and no access is lost. Reads of datasets whose birth is known
    are left out if they come before the start or after the end.
    """
    first_read = np.cumsum(tasks.n_files, dtype=np.int64) - tasks.n_files
    n = int(tasks.n_files.sum(dtype=np.int64))
    number_bits = max(1, n.bit_length())
    unit_us = -(-config.days * _DAY_US // (1 << (_KEY_BITS - number_bits)))
    # The last unit is left free: every read is before the end of the days.
    last_unit = config.days * _DAY_US // unit_us - 1
    key = np.empty(n, np.int64)
    kept = 0
    for begin in range(0, n, _AT_ONCE):
        number = np.arange(begin, min(n, begin + _AT_ONCE))
        task = np.searchsorted(first_read, number, side="right") - 1
        work = _work(tasks, task, number - first_read[task], rng)
        in_ring = np.isinf(catalogue.datasets.born_day[tasks.dataset[task]])
        inside = in_ring | ((work >= 0) & (work < rhythm.total))
        day = rhythm.day(work[inside] % rhythm.total)
        units = np.minimum((day * (_DAY_US / unit_us)).astype(np.int64), last_unit)
        key[kept : kept + units.size] = _packed(units, number[inside], number_bits)
        kept += units.size
    key = key[:kept]
    key.sort()
    return PackedReads(
        key=key,
        number_bits=number_bits,
        unit_us=unit_us,
        start_us=config.start_s * 1_000_000,
        first_read=first_read,
        first_file=catalogue.first_file[tasks.dataset],
    )


def _work(tasks: Tasks, task: IntArray, position: IntArray, rng: np.random.Generator) -> FloatArray:
    progress = (position + rng.random(task.size)) / tasks.n_files[task]
    progress = np.abs(progress + _SHUFFLE * rng.standard_normal(task.size))
    work: FloatArray = tasks.start[task] + progress * tasks.length[task]
    return work
