"""Predictions from features as Arrow batches."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import Float32Array, FloatArray
from features.schema import PREDICTIONS, arrow_schema
from models.learning.fit import probability_and_reads
from models.learning.frame import arrow_matrix
from models.learning.learners import Scorer
from models.serving.bundle import Bundle, HorizonModel

ROWS_AT_A_TIME = 10_000
"""Rows scored at a time: few enough for a core's cache."""

Each = Callable[[Callable[[pa.RecordBatch], list[pa.RecordBatch]], Iterable[pa.RecordBatch]], Iterable[Any]]
"""Applies a function to batches, and gives the results in their order."""

_PARTITION = [pa.field(name, pa.string()) for name in PREDICTIONS.partition]
PREDICTION_SCHEMA = pa.schema(
    [*(field.with_nullable(True) for field in arrow_schema(PREDICTIONS)), *_PARTITION]
)
"""The columns of predictions, and those of their partition."""


@dataclasses.dataclass(frozen=True)
class RegionModels:
    """A region's models, ready to score; Spark sends them to its workers as they are.

    `fitted`: the horizons of `bundle.models`, each with what scores its rows; `version`: in MLflow; `digest`:
    of the bundle's files, None if these models were not loaded from there.
    """

    bundle: Bundle
    fitted: tuple[tuple[HorizonModel, Scorer], ...]
    version: str
    digest: str | None = None

    def only(self, horizons_s: Iterable[int]) -> RegionModels:
        """Leave out the models of other horizons."""
        served_s = set(horizons_s)
        fitted = tuple((model, scorer) for model, scorer in self.fitted if model.horizon_s in served_s)
        bundle = dataclasses.replace(self.bundle, models=tuple(model for model, _ in fitted))
        return dataclasses.replace(self, bundle=bundle, fitted=fitted)

    def matrix(self, rows: pa.RecordBatch) -> Float32Array:
        """The matrix that all horizons share. Raises SchemaError if a column is missing."""
        return arrow_matrix(rows, self.bundle.vocabulary, self.bundle.columns)

    def probabilities(self, matrix: Float32Array) -> Iterator[tuple[HorizonModel, FloatArray, FloatArray]]:
        """Per horizon: its model, and the probability and expected reads of every row."""
        x = pd.DataFrame(matrix, columns=list(self.bundle.columns), copy=False)
        for model, scorer in self.fitted:
            yield model, *probability_and_reads(model, scorer, x)

    def table(self, rows: pa.Table, each: Each = map) -> pa.Table:
        """The predictions for rows of the features table; `each`: maps over batches, perhaps in threads."""
        batches = rows.combine_chunks().to_batches(max_chunksize=ROWS_AT_A_TIME)
        made = each(lambda batch: list(self.predictions(batch)), filter(len, batches))
        return pa.Table.from_batches(itertools.chain.from_iterable(made), PREDICTION_SCHEMA)

    def predictions(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Per horizon one prediction per row of the features table, with its partition columns."""
        shared = {name: rows.column(name) for name in ("did", "dataset", "tier", *PREDICTIONS.partition)}
        shared |= {"size_bytes": _rounded(rows, "size_bytes"), "last_read_s": _rounded(rows, "recency_s")}
        shared["model_version"] = pa.repeat(pa.scalar(self.version), rows.num_rows)
        shared["model_digest"] = pa.repeat(pa.scalar(self.digest, pa.string()), rows.num_rows)
        for model, probability, expected in self.probabilities(self.matrix(rows)):
            made = {
                "horizon_s": pa.repeat(pa.scalar(model.horizon_s, pa.int64()), rows.num_rows),
                "probability": pa.array(probability),
                "expected_accesses": pa.array(expected),
            }
            columns = {**shared, **made}
            yield pa.RecordBatch.from_arrays(
                [columns[name] for name in PREDICTION_SCHEMA.names], schema=PREDICTION_SCHEMA
            )


def _rounded(rows: pa.RecordBatch, name: str) -> pa.Array:
    return pc.round(rows.column(name)).cast(pa.int64())
