"""The passes of users and production over datasets, when they begin, and every read of them in time order."""

import dataclasses
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common.arrays import BoolArray, FloatArray, IntArray
from replay.workload.catalogue import DORMANT, ONCE, REREAD, SETTLE_DAYS, Catalogue, Datasets, Rhythm, knob
from replay.workload.config import PRODUCTION, CategoryConfig, WorkloadConfig

PRODUCER = -1
"""The user of passes by production."""
PART = (0.02, 0.3)
"""Shares of its files, from the first on, that a pass over a part of a dataset reads."""

_FADE_DAYS = 2.0
_COMMUNITY = 8
# Passes over one dataset take about the same time: they run similar code on the same files.
_PACE_SPREAD = 0.2


class Tasks(NamedTuple):
    """One entry per task: a pass over the first `n_files` files of `dataset`; by dataset, then by start.

    `start` and `length` are in work units of the rhythm; without habits, a start beyond the end of the days
    wraps around to their beginning. `user` is PRODUCER for production. With habits, passes of one `session`
    over one dataset are a spell.
    """

    dataset: npt.NDArray[np.int32]
    n_files: npt.NDArray[np.int32]
    start: FloatArray
    length: npt.NDArray[np.float32]
    user: npt.NDArray[np.int32]
    site: npt.NDArray[np.int16]
    production: BoolArray
    session: npt.NDArray[np.int32]


def make_tasks(config: WorkloadConfig, datasets: Datasets, rhythm: Rhythm, rng: np.random.Generator) -> Tasks:
    """One pass over every dataset that is read, and further ones up to the categories' `accesses`."""
    # The dataset of each pass, and the share of its files that the pass reads.
    first = np.flatnonzero(datasets.role != DORMANT)
    more = [_more(c, i, config.growth, datasets, rng) for i, c in enumerate(config.categories)]
    dataset, share = (np.concatenate(column) for column in zip(*more, strict=True))
    dataset, share = np.concatenate([first, dataset]), np.concatenate([np.ones(first.size), share])
    order = np.lexsort((rng.random(dataset.size), dataset))
    dataset, share = dataset[order], share[order]
    start = _starts(config, datasets, rhythm, dataset, rng)
    is_alive = _in_life(datasets, rhythm, dataset, start, rng)
    dataset, share, start = dataset[is_alive], share[is_alive], start[is_alive]
    by_production = np.array([c.activity == PRODUCTION for c in config.categories])
    production = by_production[datasets.category[dataset]] | (datasets.role[dataset] == ONCE)
    user = (datasets.line[dataset] * 7 + (_COMMUNITY * rng.random(dataset.size) ** 2).astype(np.int64)) % (
        config.n_users
    )
    return Tasks(
        dataset=dataset.astype(np.int32),
        n_files=np.ceil(share * datasets.n_files[dataset] - 1e-9).astype(np.int32),
        start=start,
        length=pass_lengths(config, datasets, dataset, share, rng),
        user=np.where(production, PRODUCER, user).astype(np.int32),
        site=rng.integers(0, len(config.sites), dataset.size, np.int16),
        production=production,
        session=np.arange(dataset.size, dtype=np.int32),
    )


def _more(
    category: CategoryConfig, index: int, growth: float, datasets: Datasets, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Passes after the first, by popularity, for the category's other accesses; the last one is cut."""
    members = np.flatnonzero((datasets.category == index) & (datasets.role == REREAD))
    further = round(category.accesses * growth) - max(1, round(category.files * growth))
    if not members.size or further <= 0:
        return np.zeros(0, np.int64), np.zeros(0)
    odds = np.cumsum(datasets.weight[members])
    n_files = datasets.n_files[members]
    mean = float((datasets.weight[members] * n_files).sum() / odds[-1])
    picks: list[IntArray] = []
    shares: list[FloatArray] = []
    missing = float(further)
    while missing > 0:
        block = 16 + int(1.1 * missing / mean)
        pick = np.searchsorted(odds, odds[-1] * rng.random(block), side="right")
        share = np.where(rng.random(block) < category.partial_share, rng.uniform(*PART, block), 1.0)
        whole = np.ceil(share * n_files[pick])
        ends = np.cumsum(whole)
        last = int(np.searchsorted(ends, missing))
        if last < block:
            whole[last] -= ends[last] - missing
        picks.append(members[pick[: last + 1]])
        shares.append((whole / n_files[pick])[: last + 1])
        missing -= ends[min(last, block - 1)]
    return np.concatenate(picks), np.concatenate(shares)


def _starts(
    config: WorkloadConfig,
    datasets: Datasets,
    rhythm: Rhythm,
    dataset: IntArray,
    rng: np.random.Generator,
) -> FloatArray:
    """When each pass begins: the first over a dataset at any time, each later one a gap after the last."""
    close_share, close_hours, return_days, return_sigma = (
        knob(config, datasets, key)[dataset]
        for key in ("close_share", "close_hours", "return_days_median", "return_sigma")
    )
    close_days = close_hours / 24
    n = dataset.size
    later = return_days * np.exp(return_sigma * rng.standard_normal(n))
    gap = np.where(rng.random(n) < close_share, close_days * rng.exponential(size=n), later)
    begins = np.flatnonzero(np.diff(dataset, prepend=-1))
    born = datasets.born_day[dataset[begins]]
    announced = rhythm.work(np.maximum(born, 0) + SETTLE_DAYS) + close_days[begins] * rng.random(begins.size)
    gap[begins] = np.where(born >= 0, announced, rhythm.total * rng.random(begins.size))
    total = np.cumsum(gap)
    before = np.repeat(total[begins] - gap[begins], np.diff(begins, append=n))
    return np.asarray(total - before, np.float64)


def _in_life(
    datasets: Datasets, rhythm: Rhythm, dataset: IntArray, start: FloatArray, rng: np.random.Generator
) -> BoolArray:
    """Which passes come after their dataset's birth, and before its replacement or, rarely, soon after."""
    born, dies = datasets.born_day[dataset], datasets.dies_day[dataset]
    overdue = start % rhythm.total - rhythm.work(np.minimum(dies, 1e9))
    fading = rng.random(dataset.size) < np.exp(-np.maximum(overdue, 0) / _FADE_DAYS)
    return np.where(born >= 0, start < rhythm.total, np.isinf(dies) | fading)


def pass_lengths(
    config: WorkloadConfig,
    datasets: Datasets,
    dataset: IntArray,
    share: FloatArray,
    rng: np.random.Generator,
) -> npt.NDArray[np.float32]:
    """How long each pass takes, in work units: about the same over one dataset, shorter over a part."""
    median, sigma = (knob(config, datasets, key) for key in ("pass_hours_median", "pass_hours_sigma"))
    usual: FloatArray = median * np.exp(sigma * rng.standard_normal(median.size))
    hours = usual[dataset] * np.exp(_PACE_SPREAD * rng.standard_normal(dataset.size)) * np.sqrt(share)
    return (np.minimum(hours, 24.0 * 7) / 24).astype(np.float32)


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
        key = self.key[begin:end]
        units, number = key >> self.number_bits, key & ((1 << self.number_bits) - 1)
        task = np.searchsorted(self.first_read, number, side="right") - 1
        return Slice(
            accessed_us=self.start_us + units * self.unit_us,
            task=task,
            file=self.first_file[task] + number - self.first_read[task],
        )


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
    n_kept = 0
    for begin in range(0, n, _AT_ONCE):
        number = np.arange(begin, min(n, begin + _AT_ONCE))
        task = np.searchsorted(first_read, number, side="right") - 1
        work = _work(tasks, task, number - first_read[task], rng)
        in_ring = np.isinf(catalogue.datasets.born_day[tasks.dataset[task]])
        inside = in_ring | ((work >= 0) & (work < rhythm.total))
        day = rhythm.day(work[inside] % rhythm.total)
        units = np.minimum((day * (_DAY_US / unit_us)).astype(np.int64), last_unit)
        key[n_kept : n_kept + units.size] = (units << number_bits) | number[inside]
        n_kept += units.size
    key = key[:n_kept]
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
    return np.asarray(tasks.start[task] + progress * tasks.length[task], np.float64)
