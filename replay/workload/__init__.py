"""A made-up month of a region, for demos and tests: whole-dataset passes, bursts, new versions, rhythm.

Shapes follow published studies of LHC caches; nothing is fitted to what a planner does well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from replay.workload.catalogue import make_catalogue
from replay.workload.config import WorkloadConfig
from replay.workload.reads import make_reads
from replay.workload.tables import accesses_table, files_table
from replay.workload.tasks import make_tasks

__all__ = ["Workload", "WorkloadConfig", "generate"]


class Workload(NamedTuple):
    """`accesses`: what a Rucio trace tells of each read, by time; `files`: `features.schema.FILES`."""

    accesses: pa.Table
    files: pa.Table


def generate(config: WorkloadConfig) -> Workload:
    """The month that `config` describes; the same config gives the same tables, bit for bit.

    `accesses`: did, scope, name, dataset, tier (strings), accessed_at, closed_at (timestamps),
    size_bytes, read_bytes (long), user (a plain name), task, activity, site, origin, event_id
    (strings); sorted by accessed_at, within the month. `files` also lists files nobody reads.
    """
    rng = np.random.default_rng(config.seed)
    catalogue = make_catalogue(config, rng)
    tasks = make_tasks(config, catalogue, rng)
    reads = make_reads(config, catalogue, tasks, rng)
    return Workload(accesses_table(config, catalogue, tasks, reads, rng), files_table(config, catalogue))
