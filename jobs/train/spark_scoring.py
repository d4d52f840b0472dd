"""Predictions in Spark's workers, for more rows than this process should score."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from features.schema import PREDICTIONS
from jobs.store.keys import Key
from jobs.store.tables import Partition, Snapshot, StagedFile, Tables, new_folder, read_partitions
from jobs.train.exchange import Source, sources
from models.serving.scoring import RegionModels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def staged(
    spark: SparkSession,
    tables: Tables,
    features: Snapshot,
    chosen: Mapping[Key, Partition],
    models: RegionModels,
) -> list[StagedFile]:
    """Write the predictions of `chosen` partitions of `features`, a file for each of theirs; for `commit`."""
    files = list(sources(("features",), features, chosen))
    score = _Score(tables.root, new_folder(), models)
    return spark.sparkContext.parallelize(files, max(1, len(files))).flatMap(score).collect()


@dataclasses.dataclass(frozen=True)
class _Score:
    """Writes the predictions of a file of features into `folder`."""

    root: str
    folder: str
    models: RegionModels

    def __call__(self, source: Source) -> list[StagedFile]:
        rows = self.models.table(read_partitions(source.snapshot, source.chosen))
        # A task that runs twice writes files of different names.
        prefix = f"part-{uuid.uuid4().hex}"
        return Tables(self.root).stage(PREDICTIONS, self.folder, [(source.key, rows)], prefix=prefix)
