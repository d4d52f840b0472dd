"""Who reads which dataset when."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replay.planner import BoolArray, IntArray
from replay.workload.catalogue import ANALYSIS, PRODUCTION, Catalogue, Datasets, FloatArray
from replay.workload.config import WorkloadConfig
from replay.workload.rhythm import Rhythm

BEFORE_DAYS, AFTER_DAYS = 7, 21
# A finished dataset is announced, and its files are complete, half a day after the first.
SETTLE_DAYS = 0.5
_FADE_DAYS = 2.0
_COMMUNITY = 8


class Tasks(NamedTuple):
    """One entry per task: a pass over the first `n_files` files of `dataset`.

    `start`, `length` are in work units of `rhythm`; `user` is -1 for production.
    """

    rhythm: Rhythm
    dataset: IntArray
    n_files: IntArray
    start: FloatArray
    length: FloatArray
    user: IntArray
    production: BoolArray


def make_tasks(config: WorkloadConfig, catalogue: Catalogue, rng: np.random.Generator) -> Tasks:
    """Analysis tasks by popularity of the day, and one production task per production dataset."""
    rhythm = Rhythm(config, before=BEFORE_DAYS, after=AFTER_DAYS)
    datasets = catalogue.datasets
    dataset, start = _analysis_starts(config, datasets, rhythm, rng)
    share = np.where(
        rng.random(dataset.size) < config.partial_share, rng.uniform(0.02, 0.3, dataset.size), 1.0
    )
    user = (dataset * 7 + (_COMMUNITY * rng.random(dataset.size) ** 2).astype(np.int64)) % config.n_users
    once = np.flatnonzero(datasets.role == PRODUCTION)
    begins = np.maximum(datasets.born_day[once] + SETTLE_DAYS, rng.uniform(-3, config.days, once.size))
    every = np.concatenate([dataset, once])
    share = np.concatenate([share, np.ones(once.size)])
    hours = config.pass_hours_median * np.exp(config.pass_hours_sigma * rng.standard_normal(every.size))
    return Tasks(
        rhythm=rhythm,
        dataset=every,
        n_files=np.maximum(1, np.ceil(share * datasets.n_files[every])).astype(np.int64),
        start=np.concatenate([start, rhythm.work(begins)]),
        length=np.clip(hours * np.sqrt(share), 0.5, 24.0 * 7) / 24,
        user=np.concatenate([user, np.full(once.size, -1)]),
        production=np.arange(every.size) >= dataset.size,
    )


def _analysis_starts(
    config: WorkloadConfig, datasets: Datasets, rhythm: Rhythm, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    days = np.arange(-BEFORE_DAYS, config.days)
    opens = rhythm.work(days.astype(np.float64))
    paces = rhythm.work((days + 1).astype(np.float64)) - opens
    counts = rng.poisson(_daily_tasks(config, datasets, days, rng) * paces)
    dataset, column = (np.repeat(axis, counts.ravel()) for axis in np.indices(counts.shape).reshape(2, -1))
    start = opens[column] + rng.random(column.size) * paces[column]
    # Within the day of its birth a dataset is read once it is complete.
    born = rhythm.work(datasets.born_day[dataset] + SETTLE_DAYS)
    return dataset, np.maximum(start, np.where(datasets.born_day[dataset] > days[0], born, start))


def _daily_tasks(
    config: WorkloadConfig, datasets: Datasets, days: IntArray, rng: np.random.Generator
) -> FloatArray:
    """Expected tasks per dataset (rows) and day: steady, or rising and decaying around a peak."""
    n = datasets.weight.size
    rate = np.array([tier.tasks_per_day for tier in config.tiers])[datasets.tier] * datasets.weight
    newborn = datasets.born_day >= 0
    bursty = newborn | (rng.random(n) < config.bursty_share)
    peak = np.where(newborn, datasets.born_day + 1, rng.uniform(-2 * config.burst_days, config.days, n))
    off = days[None, :] - peak[:, None]
    burst = np.exp(np.where(off < 0, 2 * off, -off) / config.burst_days)
    # A burst brings as many tasks in the month as a steady dataset, in fewer days.
    shape = np.where(bursty[:, None], burst * config.days / (1.5 * config.burst_days) / 2, 1.0)
    alive = (days[None, :] + 1 > datasets.born_day[:, None] + SETTLE_DAYS).astype(np.float64)
    overdue = np.maximum(days[None, :] - datasets.dies_day[:, None], 0)
    fade = np.exp(-overdue / _FADE_DAYS)
    return np.where((datasets.role == ANALYSIS)[:, None], rate[:, None] * shape * alive * fade, 0.0)
