"""Every read of every task."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replay.planner import IntArray
from replay.workload.catalogue import Catalogue
from replay.workload.config import WorkloadConfig
from replay.workload.tasks import Tasks

_DAY_US = 86_400_000_000
# Parallel jobs run ahead and lag behind by about this part of the pass.
_SHUFFLE = 0.05
_READ_SPREAD = 0.1
# A MINIAOD job reads about 2.4 MB/s of the unscaled file (SOCAL).
_RATE_BYTES_PER_S = 2.4e6


class Reads(NamedTuple):
    """One entry per read, in time order: µs since 1970, and indices into tasks and files."""

    accessed_us: IntArray
    closed_us: IntArray
    task: IntArray
    file: IntArray
    read_bytes: IntArray


def make_reads(config: WorkloadConfig, catalogue: Catalogue, tasks: Tasks, rng: np.random.Generator) -> Reads:
    """The reads that start within the month; a pass goes through its files in shuffled but steady order."""
    task = np.repeat(np.arange(tasks.n_files.size), tasks.n_files)
    position = np.arange(task.size) - (np.cumsum(tasks.n_files) - tasks.n_files)[task]
    file = catalogue.first_file[tasks.dataset[task]] + position
    progress = (position + rng.random(task.size)) / tasks.n_files[task]
    progress = np.abs(progress + _SHUFFLE * rng.standard_normal(task.size))
    day = tasks.rhythm.day(tasks.start[task] + progress * tasks.length[task])
    inside = np.flatnonzero((day >= 0) & (day < config.days))
    # Microseconds must be ordered as they will be stored, and ties must not depend on the sort.
    accessed = config.start_s * 1_000_000 + (day[inside] * _DAY_US).astype(np.int64)
    order = np.argsort(accessed, kind="stable")
    task, file, accessed = task[inside][order], file[inside][order], accessed[order]
    share = np.array([tier.read_share for tier in config.tiers])[catalogue.datasets.tier[tasks.dataset[task]]]
    share = np.clip(share + _READ_SPREAD * rng.standard_normal(task.size), 0.01, 1.0)
    share = np.where(tasks.production[task], 1.0, share)
    read = share * catalogue.size_bytes[file]
    seconds = read / config.size_scale / _RATE_BYTES_PER_S * rng.uniform(0.8, 1.3, task.size)
    return Reads(
        accessed_us=accessed,
        closed_us=accessed + (seconds * 1e6).astype(np.int64),
        task=task,
        file=file,
        read_bytes=read.astype(np.int64),
    )
