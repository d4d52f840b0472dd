"""Generated accesses of a region, for demos, tests and studies; calibrated to published figures where known.

They have passes over whole datasets, bursts, new versions, and the rhythm of day and week; with habits, users
in groups read in sessions and spells, and lose interest. Their shapes follow published studies of LHC caches
and an archive's records; nothing is fitted to a planner's strengths.
"""

import numpy as np

from features.common.arrays import FloatArray
from features.common.errors import ConfigError
from replay.workload.catalogue import SETTLE_DAYS, Datasets, Rhythm, make_catalogue, plain_datasets
from replay.workload.config import WorkloadConfig
from replay.workload.habits import habitual_datasets, make_sessions
from replay.workload.tables import Workload, dataset_names
from replay.workload.tasks import Tasks, make_reads, make_tasks

__all__ = ["Workload", "WorkloadConfig", "generate"]

# All but one in a million jobs of a pass end within this multiple of its length.
_LAG = 1.25
_FRESH_DAYS, _AGE_DAYS = 0.5, 150.0


def generate(config: WorkloadConfig) -> Workload:
    """The accesses and files that `config` describes; the same config gives the same bits.

    Raises ConfigError for what makes no read.
    """
    rng = np.random.default_rng(config.seed)
    rhythm, habits = Rhythm(config), config.habits
    datasets = (
        plain_datasets(config, rng) if habits is None else habitual_datasets(config, habits, rhythm, rng)
    )
    catalogue = make_catalogue(config, datasets, rng)
    if habits is None:
        tasks = make_tasks(config, datasets, rhythm, rng)
    else:
        tasks = make_sessions(config, habits, datasets, rhythm, rng)
    reads = make_reads(config, catalogue, tasks, rhythm, rng)
    if not len(reads):
        raise ConfigError("scale", f"{config.scale:g}: no read falls into the days; give more, or more days")
    return Workload(
        config=config,
        catalogue=catalogue,
        tasks=tasks,
        reads=reads,
        names=dataset_names(config, catalogue.datasets),
        created_day=_created(config, catalogue.datasets, tasks, rhythm, rng),
    )


def _created(
    config: WorkloadConfig, datasets: Datasets, tasks: Tasks, rhythm: Rhythm, rng: np.random.Generator
) -> FloatArray:
    """When each dataset was created: at its birth if it is known, else before its first read."""
    begins = tasks.start % rhythm.total
    # A pass that runs past the end of the days is already running when they begin.
    begins = np.where(begins + _LAG * tasks.length > rhythm.total, 0.0, begins)
    first = np.zeros(datasets.line.size)
    heads = np.flatnonzero(np.diff(tasks.dataset, prepend=-1))
    first[tasks.dataset[heads]] = np.minimum.reduceat(begins, heads)
    fresh = rng.random(first.size) < config.fresh_share
    age = np.where(fresh, _FRESH_DAYS, _AGE_DAYS) * rng.exponential(size=first.size)
    created: FloatArray = np.where(
        np.isfinite(datasets.born_day), datasets.born_day, rhythm.day(first) - SETTLE_DAYS - age
    )
    return created
