"""The datasets of a region with habits: whose they are, how appealing, when born and when replaced."""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.errors import ConfigError
from replay.workload.catalogue import DORMANT, ONCE, REREAD, Datasets, dataset_sizes, origins
from replay.workload.config import CategoryConfig, HabitsConfig, WorkloadConfig
from replay.workload.rhythm import Interest, Rhythm

FAMILY = 12
"""Datasets of one group and campaign that follow each other; a session moves on within them."""

PART = (0.02, 0.3)
"""Shares of its files, from the first on, that a pass over a part of a dataset reads."""

_AGE_DAYS = 150.0
_MOST_UNREAD = 64
_TINY = 1e-12


class _Setting(NamedTuple):
    """What all categories share; `group`, `campaign`: appeal of each."""

    config: WorkloadConfig
    habits: HabitsConfig
    rhythm: Rhythm
    group: FloatArray
    campaign: FloatArray


def families(datasets: Datasets) -> IntArray:
    """Per line, a number that the datasets of its family share: the line that the family begins with."""
    first = datasets.version == 1
    kind = datasets.category[first] * 4 + datasets.role[first]
    heads = np.flatnonzero(np.diff(kind, prepend=-1))
    place = np.arange(kind.size) - np.repeat(heads, np.diff(np.append(heads, kind.size)))
    family: IntArray = np.arange(kind.size) - place % FAMILY
    return family


def session_lengths(share: float) -> FloatArray:
    """The chance that a session reads its 1st, 2nd, … dataset."""
    reached: FloatArray = np.power(share, np.arange(FAMILY, dtype=np.float64))
    return reached


def habitual_datasets(
    config: WorkloadConfig, habits: HabitsConfig, rhythm: Rhythm, rng: np.random.Generator
) -> Datasets:
    """The datasets of all categories, new versions at the end."""
    setting = _Setting(
        config=config,
        habits=habits,
        rhythm=rhythm,
        group=_spread(habits.group_sigma, habits.n_groups, rng),
        campaign=_spread(habits.campaign_sigma, habits.n_campaigns, rng),
    )
    first = _joined([_of_category(setting, index, rng) for index in range(len(config.categories))])
    first = first._replace(
        line=np.arange(first.role.size), origin=origins(config, first.n_files, first.role, rng)
    )
    replaced = np.flatnonzero(np.isfinite(first.dies_day))
    return _joined([first, _next_versions(_some(first, replaced))])


def _next_versions(datasets: Datasets) -> Datasets:
    """What replaces `datasets`; never born where nothing does."""
    never = np.full(datasets.role.size, np.inf)
    return datasets._replace(version=datasets.version + 1, born_day=datasets.dies_day, dies_day=never)


def _joined(parts: list[Datasets]) -> Datasets:
    return Datasets(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _some(datasets: Datasets, index: IntArray | slice) -> Datasets:
    return Datasets(*map(itemgetter(index), datasets))


def _of_category(setting: _Setting, index: int, rng: np.random.Generator) -> Datasets:
    """Datasets that are read once, those that nobody wants, and those that are read again."""
    config, category = setting.config, setting.config.categories[index]
    files = max(1, round(category.files * config.growth))
    once = round(files * category.once_share)
    n_once = round(once * (1 + setting.habits.warm_days / config.days))
    dormant = round(files * category.unread_share / (1 - category.unread_share))
    parts = [
        _drawn(setting, index, count, role, rng)
        for count, role in ((n_once, ONCE), (dormant, DORMANT))
        if count
    ]
    if files > once:
        parts.append(_reread(setting, index, files - once, rng))
    return _joined(parts)


def _reread(setting: _Setting, index: int, files: int, rng: np.random.Generator) -> Datasets:
    """So many datasets that the category's accesses are expected to read `files` different files of them."""
    category, growth = setting.config.categories[index], setting.config.growth
    accesses = (category.accesses - category.files * category.once_share) * growth
    unread = 1
    pool = _drawn(setting, index, 2 * files, REREAD, rng)
    while _expected_files(setting, pool, accesses) < files:
        unread *= 2
        if unread > _MOST_UNREAD:
            what = f"{accesses:.0f} accesses are too few to read {files} files in spells"
            raise ConfigError(category.name, f"{what}; lower files or close_share")
        pool = _drawn(setting, index, files * (1 + unread), REREAD, rng)
    low, high = 1, pool.role.size
    while low < high:
        middle = (low + high) // 2
        if _expected_files(setting, _some(pool, slice(middle)), accesses) < files:
            low = middle + 1
        else:
            high = middle
    return _some(pool, slice(high))


def _expected_files(setting: _Setting, pool: Datasets, accesses: float) -> float:
    """The expected number of different files of `pool` that are read in the days."""
    config, rhythm = setting.config, setting.rhythm
    category = config.categories[int(pool.category[0])]
    masses = [
        _with_siblings(Interest.of(config, version, rhythm).mass(0.0, rhythm.total), setting.habits)
        for version in (pool, _next_versions(pool))
    ]
    read = sum(float(mass @ pool.n_files) for mass in masses) * reads_per_file(category)
    expected, part = 0.0, sum(PART) / 2
    for mass in masses:
        spells = mass * (accesses / max(read, _TINY))
        whole = -np.expm1(-spells * (1 - category.partial_share))
        expected += float((part * -np.expm1(-spells) + (1 - part) * whole) @ pool.n_files)
    return expected


def reads_per_file(category: CategoryConfig) -> float:
    """The mean number of reads of a file of the dataset by a spell."""
    return (1 - category.partial_share * (1 - sum(PART) / 2)) / (1 - category.close_share)


def _with_siblings(mass: FloatArray, habits: HabitsConfig) -> FloatArray:
    """The rate of spells over each dataset, by that of the sessions that begin at each."""
    spells = np.zeros(mass.size)
    for step, reached in enumerate(session_lengths(habits.session_share)):
        place = np.arange(mass.size) - step
        inside = place // FAMILY == np.arange(mass.size) // FAMILY
        spells += reached * np.where(inside, mass[np.maximum(place, 0)], 0.0)
    return spells


def _drawn(setting: _Setting, index: int, files: int, role: int, rng: np.random.Generator) -> Datasets:
    """First versions with `files` files altogether."""
    config, habits = setting.config, setting.habits
    category = config.categories[index]
    n_files = dataset_sizes(category, files, rng)
    n = n_files.size
    family = np.arange(n) // FAMILY
    group, campaign = (
        rng.integers(0, count, family[-1] + 1)[family] for count in (habits.n_groups, habits.n_campaigns)
    )
    fresh = (rng.random(n) < config.fresh_share) | (role == ONCE)
    inside = rng.uniform(-habits.warm_days, config.days, n)
    born = np.where(fresh, inside, -habits.warm_days - _AGE_DAYS * rng.exponential(size=n))
    replaced: BoolArray = (rng.random(n) < config.new_version_share) & (role == REREAD)
    turn = rng.uniform(np.maximum(born, -habits.warm_days), config.days)
    none: IntArray = np.zeros(n, np.int64)
    return Datasets(
        category=np.full(n, index),
        line=none,
        version=np.ones(n, np.int64),
        is_mc=rng.random(n) < category.mc_share,
        n_files=n_files,
        role=np.full(n, role),
        weight=_spread(category.popularity_sigma, n, rng) * setting.group[group] * setting.campaign[campaign],
        born_day=born,
        dies_day=np.where(replaced, turn, np.inf),
        origin=none,
        group=group,
        campaign=campaign,
    )


def _spread(sigma: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Log-normal factors of mean 1."""
    factors: FloatArray = np.exp(sigma * rng.standard_normal(n) - sigma * sigma / 2)
    return factors
