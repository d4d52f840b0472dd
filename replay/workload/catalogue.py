"""The datasets and files of the generated region, and when things happen: day, night, weekend, and interest.

`Rhythm` is a clock on which work proceeds at a constant rate. The interest in a dataset is the rate at which
sessions begin at it: it decays from the dataset's birth until a new version replaces it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray, joined, taken
from replay.workload.config import CategoryConfig, WorkloadConfig

REREAD, ONCE, DORMANT = range(3)
_NEVER = np.inf
_SIZES_AT_ONCE = 1 << 20
_SAMPLES_OF_DATA, _SAMPLES_OF_MC = 10, 8
"""Datasets of a campaign that follow each other in the catalogue, without habits."""


class Datasets(NamedTuple):
    """One entry per dataset; days count from the start.

    `line`: a number that all versions of a dataset share; `version`: 1, or 2 if it replaces another. `role`:
    REREAD, ONCE (by production) or DORMANT. `weight`: popularity, mean 1. `born_day`: of a new version, and
    with habits of every dataset, else -inf; `dies_day`: when a new version replaces it, else inf. `origin`:
    index into the config's origins. `group`, `campaign`: numbers that names are chosen by.
    """

    category: IntArray
    line: IntArray
    version: IntArray
    is_mc: BoolArray
    n_files: IntArray
    role: IntArray
    weight: FloatArray
    born_day: FloatArray
    dies_day: FloatArray
    origin: IntArray
    group: IntArray
    campaign: IntArray


class Catalogue(NamedTuple):
    """`size_bytes`: one entry per file, dataset by dataset; those of dataset d begin at `first_file[d]`."""

    datasets: Datasets
    first_file: IntArray
    size_bytes: IntArray

    def dataset_of(self, file: IntArray) -> IntArray:
        """The dataset of each file."""
        return np.asarray(np.searchsorted(self.first_file, file, side="right") - 1, np.int64)


def knob(config: WorkloadConfig, datasets: Datasets, key: str) -> FloatArray:
    """The parameter `key` of each dataset's category."""
    of_category = np.array([getattr(category, key) for category in config.categories], np.float64)
    return np.asarray(of_category[datasets.category], np.float64)


def make_catalogue(config: WorkloadConfig, datasets: Datasets, rng: np.random.Generator) -> Catalogue:
    """Every file of `datasets`, sizes scaled."""
    first_file = np.concatenate([[0], np.cumsum(datasets.n_files)])
    return Catalogue(datasets, first_file, _sizes(config, datasets, rng))


def _first_versions(config: WorkloadConfig, rng: np.random.Generator) -> Datasets:
    draws = [_draw(category, config.growth, rng) for category in config.categories]
    n_files, role, weight, is_mc = (np.concatenate(column) for column in zip(*draws, strict=True))
    n = n_files.size
    line = np.arange(n)
    return Datasets(
        category=np.repeat(np.arange(len(draws)), [draw[0].size for draw in draws]),
        line=line,
        version=np.ones(n, np.int64),
        is_mc=is_mc,
        n_files=n_files,
        role=role,
        weight=weight,
        born_day=np.full(n, -_NEVER),
        dies_day=np.full(n, _NEVER),
        origin=origins(config, n_files, role, rng),
        group=line,
        campaign=np.where(is_mc, line // _SAMPLES_OF_MC, line // _SAMPLES_OF_DATA),
    )


def _draw(
    category: CategoryConfig, growth: float, rng: np.random.Generator
) -> tuple[IntArray, IntArray, FloatArray, BoolArray]:
    read_files = max(1, round(category.files * growth))
    dormant_files = round(read_files * category.unread_share / (1 - category.unread_share))
    read, dormant = (dataset_sizes(category, total, rng) for total in (read_files, dormant_files))
    n = read.size + dormant.size
    role = np.where(rng.random(n) < category.once_share, ONCE, REREAD)
    role[read.size :] = DORMANT
    weight = spread(category.popularity_sigma, n, rng)
    return np.concatenate([read, dormant]), role, weight, rng.random(n) < category.mc_share


def spread(sigma: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Log-normal factors of mean 1."""
    return np.asarray(np.exp(sigma * rng.standard_normal(n) - sigma * sigma / 2), np.float64)


def dataset_sizes(category: CategoryConfig, total: int, rng: np.random.Generator) -> IntArray:
    """Files per dataset, `total` files altogether; the last dataset is cut to fit."""
    drawn = np.zeros(0, np.int64)
    while drawn.sum() < total:
        block = 16 + int(1.2 * (total - drawn.sum()) / category.files_median)
        files = category.files_median * np.exp(category.files_sigma * rng.standard_normal(block))
        # The largest dataset is bounded, so that no single draw dominates.
        files = np.clip(files, 1, 8 * category.files_median)
        drawn = np.concatenate([drawn, files.astype(np.int64)])
    ends = np.minimum(np.cumsum(drawn), total)
    sizes = np.diff(ends, prepend=0)
    return sizes[sizes > 0]


def origins(config: WorkloadConfig, n_files: IntArray, role: IntArray, rng: np.random.Generator) -> IntArray:
    """Origins by their share of the files, both of the files that are read and of the others.

    Datasets in random order are assigned along the cumulative shares. Large datasets then shift a share less
    than independent draws would.
    """
    shares = np.cumsum([origin.share for origin in config.origins])
    origin = np.empty(n_files.size, np.int64)
    for group in (role != DORMANT, role == DORMANT):
        order = rng.permutation(np.flatnonzero(group))
        middle = np.cumsum(n_files[order]) - n_files[order] / 2
        origin[order] = np.searchsorted(shares[:-1] / shares[-1], middle / n_files[group].sum(), side="right")
    return origin


def plain_datasets(config: WorkloadConfig, rng: np.random.Generator) -> Datasets:
    """Without habits: first versions, then second ones of some of the datasets that are read again."""
    first = _first_versions(config, rng)
    replaced = (first.role == REREAD) & (rng.random(first.role.size) < config.new_version_share)
    turn = rng.uniform(min(2, config.days / 2), max(config.days - 2, config.days / 2), replaced.size)
    second = first._replace(
        version=np.full(replaced.size, 2, np.int64), born_day=turn, dies_day=np.full(replaced.size, _NEVER)
    )
    return joined([first._replace(dies_day=np.where(replaced, turn, _NEVER)), taken(second, replaced)])


def _sizes(config: WorkloadConfig, datasets: Datasets, rng: np.random.Generator) -> IntArray:
    mean, sigma = knob(config, datasets, "mean_size_bytes"), knob(config, datasets, "size_sigma")
    median = mean * np.exp(-sigma * sigma / 2) * config.size_scale
    ends = np.cumsum(datasets.n_files)
    size = np.empty(int(ends[-1]), np.int64)
    for begin in range(0, size.size, _SIZES_AT_ONCE):
        part = size[begin : begin + _SIZES_AT_ONCE]
        dataset = np.searchsorted(ends, np.arange(begin, begin + part.size), side="right")
        drawn = median[dataset] * np.exp(sigma[dataset] * rng.standard_normal(part.size))
        part[:] = np.maximum(drawn, config.min_size_bytes)
    return size


_BUSIEST_HOUR = 14


class Rhythm:
    """Conversion between days from the start (floats, UTC) and work done (1 per average weekday).

    It covers the days of `config`, and those before them that its habits need; times outside are clipped to
    the nearer end. Work counts from the start of the days. `total`: that of the days; `before`: the earlier.
    """

    def __init__(self, config: WorkloadConfig) -> None:
        warm_hours = 0 if config.habits is None else 24 * config.habits.warm_days
        hours = np.arange(-warm_hours, 24 * config.days)
        since_epoch = config.start_s / 3600 + hours
        # 1970-01-01 was a Thursday: days 2 and 3 of its week are the weekend.
        weekend = np.isin(since_epoch // 24 % 7, (2, 3))
        mean, swing = (1 + config.night_factor) / 2, (1 - config.night_factor) / 2
        pace = mean + swing * np.cos(2 * np.pi * (since_epoch % 24 - _BUSIEST_HOUR) / 24)
        pace = pace / mean * np.where(weekend, config.weekend_factor, 1.0)
        self._day = np.append(hours, hours[-1] + 1) / 24
        work = np.concatenate([[0.0], np.cumsum(pace) / 24])
        self.before = float(work[warm_hours])
        self._work = work - self.before
        self.total = float(self._work[-1])

    def work(self, day: FloatArray) -> FloatArray:
        """Work done up to each `day`."""
        return np.asarray(np.interp(day, self._day, self._work), np.float64)

    def day(self, work: FloatArray) -> FloatArray:
        """The day by which `work` is done."""
        return np.asarray(np.interp(work, self._work, self._day), np.float64)


SETTLE_DAYS = 0.5
"""Days from the first file of a dataset until it is complete and announced."""

_NO_DECAY_DAYS = 1e6


class Interest(NamedTuple):
    """One entry per dataset, in work units of the rhythm.

    From `begin` to before `end` the rate at time t is weight · (steady + (1 - steady) · exp(-(t - born) /
    decay)). Only the rates' ratios within a category count; they are 0 for datasets that are not read again.
    """

    weight: FloatArray
    born: FloatArray
    begin: FloatArray
    end: FloatArray
    decay: FloatArray
    steady: FloatArray

    @classmethod
    def of(cls, config: WorkloadConfig, datasets: Datasets, rhythm: Rhythm) -> Interest:
        """The interest in each of `datasets`, from as long before the start as habits are generated."""
        announced = datasets.born_day + SETTLE_DAYS
        begin = rhythm.work(announced)
        earlier = np.minimum(announced - rhythm.day(begin), 0.0)
        return cls(
            weight=np.where(datasets.role == REREAD, datasets.weight, 0.0),
            born=begin + earlier,
            begin=begin,
            end=np.maximum(begin, rhythm.work(datasets.dies_day)),
            decay=np.minimum(knob(config, datasets, "decay_days"), _NO_DECAY_DAYS),
            steady=knob(config, datasets, "steady_share"),
        )

    def mass(self, since: FloatArray | float, until: FloatArray | float) -> FloatArray:
        """The rate summed up from `since` to `until`, per dataset."""
        lasting, passing = self._parts(since, until)
        return np.asarray(self.weight * (lasting + passing), np.float64)

    def times(self, rng: np.random.Generator) -> FloatArray:
        """A random time per entry, by its rate."""
        lasting, passing = self._parts(-np.inf, np.inf)
        share = rng.random(lasting.size)
        even = self.begin + share * (self.end - self.begin)
        fall = -np.expm1(-(self.end - self.begin) / self.decay)
        early = self.begin - self.decay * np.log1p(-share * fall)
        is_even = rng.random(share.size) * (lasting + passing) < lasting
        return np.where(is_even, even, early)

    def _parts(self, since: FloatArray | float, until: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Per unit of weight, what the steady and the decaying part of the rate sum up to."""
        begin, end = (np.clip(edge, self.begin, self.end) for edge in (since, until))
        left = np.exp(-(begin - self.born) / self.decay)
        faded = -left * self.decay * np.expm1(-(end - begin) / self.decay)
        return self.steady * (end - begin), (1 - self.steady) * faded
