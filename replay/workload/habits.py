"""A region with habits: whose datasets are, how appealing, when born and replaced; and its users' passes.

A session begins at a dataset by the interest in it, and moves on through the datasets of its family. Over
each it begins a spell: passes over the same files, at gaps that depend on the dataset's closeness and the
user's pace. Production reads what is read once.
"""

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray, joined, taken
from features.common.errors import ConfigError
from replay.workload import catalogue
from replay.workload.catalogue import Datasets, Interest, Rhythm, knob, spread
from replay.workload.config import PRODUCTION, CategoryConfig, HabitsConfig, WorkloadConfig
from replay.workload.tasks import PART, PRODUCER, Tasks, pass_lengths

FAMILY = 12
"""Datasets of one group and campaign that follow each other; a session moves on within them."""

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
    return np.asarray(np.arange(kind.size) - place % FAMILY, np.int64)


def habitual_datasets(
    config: WorkloadConfig, habits: HabitsConfig, rhythm: Rhythm, rng: np.random.Generator
) -> Datasets:
    """The datasets of all categories, new versions at the end."""
    setting = _Setting(
        config=config,
        habits=habits,
        rhythm=rhythm,
        group=spread(habits.group_sigma, habits.n_groups, rng),
        campaign=spread(habits.campaign_sigma, habits.n_campaigns, rng),
    )
    first = joined([_of_category(setting, index, rng) for index in range(len(config.categories))])
    first = first._replace(
        line=np.arange(first.role.size), origin=catalogue.origins(config, first.n_files, first.role, rng)
    )
    replaced = np.flatnonzero(np.isfinite(first.dies_day))
    return joined([first, _next_versions(taken(first, replaced))])


def _next_versions(datasets: Datasets) -> Datasets:
    """What replaces `datasets`; never born where nothing does."""
    never = np.full(datasets.role.size, np.inf)
    return datasets._replace(version=datasets.version + 1, born_day=datasets.dies_day, dies_day=never)


def _of_category(setting: _Setting, index: int, rng: np.random.Generator) -> Datasets:
    """Datasets that are read once, those that nobody wants, and those that are read again."""
    config, category = setting.config, setting.config.categories[index]
    files = max(1, round(category.files * config.growth))
    once = round(files * category.once_share)
    n_once = round(once * (1 + setting.habits.warm_days / config.days))
    dormant = round(files * category.unread_share / (1 - category.unread_share))
    parts = [
        _drawn(setting, index, count, role, rng)
        for count, role in ((n_once, catalogue.ONCE), (dormant, catalogue.DORMANT))
        if count
    ]
    if files > once:
        parts.append(_reread(setting, index, files - once, rng))
    return joined(parts)


def _reread(setting: _Setting, index: int, files: int, rng: np.random.Generator) -> Datasets:
    """So many datasets that the category's accesses are expected to read `files` different files of them."""
    category, growth = setting.config.categories[index], setting.config.growth
    accesses = (category.accesses - category.files * category.once_share) * growth
    unread = 1
    pool = _drawn(setting, index, 2 * files, catalogue.REREAD, rng)
    while _expected_files(setting, pool, accesses) < files:
        unread *= 2
        if unread > _MOST_UNREAD:
            what = f"{accesses:.0f} accesses are too few to read {files} files in spells"
            raise ConfigError(category.name, f"{what}; lower files or close_share")
        pool = _drawn(setting, index, files * (1 + unread), catalogue.REREAD, rng)
    low, high = 1, pool.role.size
    while low < high:
        middle = (low + high) // 2
        if _expected_files(setting, taken(pool, slice(middle)), accesses) < files:
            low = middle + 1
        else:
            high = middle
    return taken(pool, slice(high))


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
    # The chance that a session reads its 1st, 2nd, … dataset.
    for step, reached in enumerate(np.power(habits.session_share, np.arange(FAMILY, dtype=np.float64))):
        place = np.arange(mass.size) - step
        inside = place // FAMILY == np.arange(mass.size) // FAMILY
        spells += reached * np.where(inside, mass[np.maximum(place, 0)], 0.0)
    return spells


def _drawn(setting: _Setting, index: int, files: int, role: int, rng: np.random.Generator) -> Datasets:
    """First versions with `files` files altogether."""
    config, habits = setting.config, setting.habits
    category = config.categories[index]
    n_files = catalogue.dataset_sizes(category, files, rng)
    n = n_files.size
    family = np.arange(n) // FAMILY
    group, campaign = (
        rng.integers(0, count, family[-1] + 1)[family] for count in (habits.n_groups, habits.n_campaigns)
    )
    fresh = (rng.random(n) < config.fresh_share) | (role == catalogue.ONCE)
    inside = rng.uniform(-habits.warm_days, config.days, n)
    born = np.where(fresh, inside, -habits.warm_days - _AGE_DAYS * rng.exponential(size=n))
    replaced: BoolArray = (rng.random(n) < config.new_version_share) & (role == catalogue.REREAD)
    turn = rng.uniform(np.maximum(born, -habits.warm_days), config.days)
    none: IntArray = np.zeros(n, np.int64)
    return Datasets(
        category=np.full(n, index),
        line=none,
        version=np.ones(n, np.int64),
        is_mc=rng.random(n) < category.mc_share,
        n_files=n_files,
        role=np.full(n, role),
        weight=spread(category.popularity_sigma, n, rng) * setting.group[group] * setting.campaign[campaign],
        born_day=born,
        dies_day=np.where(replaced, turn, np.inf),
        origin=none,
        group=group,
        campaign=campaign,
    )


_PRODUCTION_DAYS = 0.25


class _Passes(NamedTuple):
    """`session` counts from 0; passes of one session over one dataset are a spell."""

    session: IntArray
    dataset: IntArray
    start: FloatArray
    user: IntArray
    share: FloatArray


class _Spells(NamedTuple):
    """The spells that begin: in which session, over which dataset, when and by whom."""

    session: IntArray
    dataset: IntArray
    start: FloatArray
    user: IntArray


class _World(NamedTuple):
    config: WorkloadConfig
    habits: HabitsConfig
    datasets: Datasets
    rhythm: Rhythm
    interest: Interest
    closeness: FloatArray
    activity: FloatArray
    pace: FloatArray


def make_sessions(
    config: WorkloadConfig, habits: HabitsConfig, datasets: Datasets, rhythm: Rhythm, rng: np.random.Generator
) -> Tasks:
    """Passes with the categories' expected accesses within the days, and those before and beyond them."""
    n = config.n_users
    world = _World(
        config=config,
        habits=habits,
        datasets=datasets,
        rhythm=rhythm,
        interest=Interest.of(config, datasets, rhythm),
        closeness=_closeness(config, datasets, rng),
        activity=np.append(0.0, np.cumsum(np.exp(habits.user_sigma * rng.standard_normal(n)))),
        pace=np.exp(habits.pace_sigma * rng.standard_normal(n)),
    )
    parts = [_once(world, rng), *(_sessions_of(world, i, rng) for i in range(len(config.categories)))]
    ends = np.cumsum([0] + [int(part.session.max(initial=-1)) + 1 for part in parts])
    parts = [part._replace(session=part.session + end) for part, end in zip(parts, ends, strict=False)]
    passes = joined(parts)
    order = np.lexsort((passes.start, passes.dataset))
    passes = taken(passes, order)
    return Tasks(
        dataset=passes.dataset.astype(np.int32),
        n_files=np.ceil(passes.share * datasets.n_files[passes.dataset] - 1e-9).astype(np.int32),
        start=passes.start,
        length=pass_lengths(config, datasets, passes.dataset, passes.share, rng),
        user=passes.user.astype(np.int32),
        site=rng.integers(0, len(config.sites), order.size, np.int16),
        production=passes.user == PRODUCER,
        session=passes.session.astype(np.int32),
    )


def _closeness(config: WorkloadConfig, datasets: Datasets, rng: np.random.Generator) -> FloatArray:
    """The median gap of each dataset's spells, in days of work; versions of a dataset share it."""
    hours, sigma = (knob(config, datasets, key) for key in ("close_hours", "closeness_sigma"))
    drawn = rng.standard_normal(int(datasets.line.max()) + 1)
    return np.asarray(hours / 24 * np.exp(sigma * drawn[datasets.line]))


def _once(world: _World, rng: np.random.Generator) -> _Passes:
    """One pass by production over each dataset that is read once, soon after it is complete."""
    dataset = np.flatnonzero(world.datasets.role == catalogue.ONCE)
    n = dataset.size
    return _Passes(
        session=np.arange(n),
        dataset=dataset,
        start=world.interest.begin[dataset] + _PRODUCTION_DAYS * rng.exponential(size=n),
        user=np.full(n, PRODUCER),
        share=np.ones(n),
    )


def _sessions_of(world: _World, index: int, rng: np.random.Generator) -> _Passes:
    """As many sessions as make the category's accesses within the days."""
    config, datasets = world.config, world.datasets
    category = config.categories[index]
    members = np.flatnonzero((datasets.category == index) & (world.interest.weight > 0))
    files, once = (round(category.files * share * config.growth) for share in (1.0, category.once_share))
    missing = category.accesses * config.growth - once
    none = _Passes(*(np.zeros(0, kind) for kind in (int, int, float, int, float)))
    if not members.size or missing <= 0 or files <= once:
        return none
    odds = np.append(0.0, np.cumsum(world.interest.mass(-np.inf, np.inf)[members]))
    mean = float(np.diff(odds) @ datasets.n_files[members]) / odds[-1] * reads_per_file(category)
    parts: list[_Passes] = []
    begun = 0
    while missing > 0:
        block = 64 + int(missing / mean)
        place = np.searchsorted(odds[1:], odds[-1] * rng.random(block), side="right")
        passes = _spells(world, members[np.minimum(place, members.size - 1)], rng)
        reads = np.ceil(passes.share * datasets.n_files[passes.dataset])
        reads[(passes.start < 0) | (passes.start >= world.rhythm.total)] = 0
        total = np.cumsum(np.bincount(passes.session, reads, minlength=block))
        last = int(np.searchsorted(total, missing))
        is_kept = passes.session <= last
        parts.append(taken(passes._replace(session=passes.session + begun), is_kept))
        begun += block
        missing -= float(total[min(last, block - 1)])
    return joined(parts)


def _spells(world: _World, first: IntArray, rng: np.random.Generator) -> _Passes:
    """The passes of one session per entry of `first`, the dataset that it begins at."""
    n = first.size
    begin = taken(world.interest, first).times(rng)
    user = _users(world, first, rng)
    length = np.minimum(rng.geometric(1 - world.habits.session_share, n), FAMILY)
    session, step = _expanded(length)
    start = begin[session] + _since_first(
        step, world.habits.session_hours / 24 * rng.exponential(size=session.size)
    )
    dataset, exists = _siblings(world, first[session], step, start)
    spells = _Spells(session, dataset, start, user[session])
    return _repeated(world, taken(spells, exists), rng)


def _siblings(
    world: _World, first: IntArray, step: IntArray, start: FloatArray
) -> tuple[IntArray, BoolArray]:
    """The dataset `step` places after `first` in its family, in the version of its time; and if there is one.

    Of the first dataset, the version is the one that the session has begun at.
    """
    datasets, interest = world.datasets, world.interest
    n_lines = int(datasets.line.max()) + 1
    newest = np.arange(n_lines)
    newest[datasets.line] = np.arange(datasets.line.size)
    family = families(datasets)
    line = np.minimum(datasets.line[first] + step, n_lines - 1)
    same = (family[line] == family[datasets.line[first]]) & (line == datasets.line[first] + step)
    renewed = start >= interest.begin[newest[line]]
    dataset = np.where(step == 0, first, np.where(renewed, newest[line], line))
    alive = (start >= interest.begin[dataset]) & (start < interest.end[dataset])
    return dataset, same & alive & (interest.weight[dataset] > 0)


def _repeated(world: _World, spells: _Spells, rng: np.random.Generator) -> _Passes:
    """The passes of each spell: all read the same share of the files."""
    session, dataset, start, user = spells
    keys = ("close_share", "gap_sigma", "partial_share")
    close, sigma, partial = (knob(world.config, world.datasets, key)[dataset] for key in keys)
    n_spells = dataset.size
    share = np.where(rng.random(n_spells) < partial, rng.uniform(*PART, n_spells), 1.0)
    gap = world.closeness[dataset] * np.where(user == PRODUCER, 1.0, world.pace[user])
    spell, number = _expanded(rng.geometric(1 - close))
    drawn = gap[spell] * np.exp(sigma[spell] * rng.standard_normal(spell.size))
    at = start[spell] + _since_first(number, drawn)
    inside = at < world.rhythm.total
    spell = spell[inside]
    return _Passes(session[spell], dataset[spell], at[inside], user[spell], share[spell])


def _users(world: _World, dataset: IntArray, rng: np.random.Generator) -> IntArray:
    """A user of the dataset's group, the active ones more often; or production."""
    config, n_groups = world.config, world.habits.n_groups
    edges = world.activity[np.arange(n_groups + 1) * config.n_users // n_groups]
    group = world.datasets.group[dataset]
    at = edges[group] + (edges[group + 1] - edges[group]) * rng.random(dataset.size)
    user = np.minimum(np.searchsorted(world.activity, at, side="right") - 1, config.n_users - 1)
    by_production = np.array([category.activity == PRODUCTION for category in config.categories])
    return np.where(by_production[world.datasets.category[dataset]], PRODUCER, user)


def _expanded(count: IntArray) -> tuple[IntArray, IntArray]:
    """The index of each entry, `count` times, and numbers from 0 within each."""
    index = np.repeat(np.arange(count.size), count)
    return index, np.arange(index.size) - np.repeat(np.cumsum(count) - count, count)


def _since_first(number: IntArray, gap: FloatArray) -> FloatArray:
    """The sum of the gaps from the first entry (`number` 0) of each run; that entry's own does not count."""
    total = np.cumsum(np.where(number == 0, 0.0, gap))
    heads = np.flatnonzero(number == 0)
    return np.asarray(total - np.repeat(total[heads], np.diff(np.append(heads, number.size))), np.float64)
