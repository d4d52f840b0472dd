"""Predictions in Spark's workers, for more rows than this process should score."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from features.schema import PREDICTIONS
from features.spark.schema import struct_type
from models.serving.scoring import ServedModels


def scored(features: DataFrame, models: ServedModels) -> DataFrame:
    """`LoadedModels.predictions` in Spark, with the same numbers; each task loads the models once."""
    wanted = dict.fromkeys(
        [
            *("did", "dataset", "tier", "size_bytes", "recency_s"),
            *(models.bundle.columns),
            *PREDICTIONS.partition,
        ]
    )
    schema = struct_type(PREDICTIONS, with_partition=True)
    return features.select(*wanted).mapInArrow(_scorer(models), schema)


def _scorer(models: ServedModels) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def score(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loaded = models.load()
        for batch in batches:
            if batch.num_rows:
                yield from loaded.predictions(batch)

    return score
