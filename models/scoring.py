"""Predictions from features: one code path for a pandas frame and for Spark's workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import pandas as pd
from pyspark.sql import DataFrame

from features.schema import PREDICTIONS
from features.spark.schema import struct_type
from models.bundle import Bundle
from models.fit import probability_and_reads
from models.frame import model_matrix
from models.learners import Fitted, load_payload

_COLUMNS = [*PREDICTIONS.column_names, *PREDICTIONS.partition]


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """A model as bytes, ready to travel: `payload` in its library's format, `version` as MLflow knows it."""

    bundle: Bundle
    payload: bytes
    version: str

    def load(self) -> LoadedModel:
        """The model ready to score. Raises ModelError for an unknown flavour."""
        return LoadedModel(self.bundle, load_payload(self.bundle.flavour, self.payload), self.version)


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A model of one horizon in memory."""

    bundle: Bundle
    fitted: Fitted
    version: str

    def predictions(self, rows: pd.DataFrame) -> pd.DataFrame:
        """One prediction per row of the features table, with its columns and partition columns."""
        bundle = self.bundle
        matrix = model_matrix(rows, bundle.spec, bundle.vocabulary, bundle.columns)
        scores = self.fitted.score(matrix)
        probability, expected = probability_and_reads(scores, bundle.calibration, bundle.reads)
        return pd.DataFrame(
            {
                "did": rows["did"],
                "region": rows["region"],
                "horizon_s": bundle.horizon_s,
                "probability": probability,
                "expected_accesses": expected,
                "size_bytes": rows["size_bytes"].round().astype("Int64"),
                "dataset": rows["dataset"],
                "tier": rows["tier"],
                "last_read_s": rows["recency_s"].round().astype("Int64"),
                "model_version": self.version,
                "day": rows["day"],
                "as_of": rows["as_of"],
            }
        )[_COLUMNS]


def score_frame(rows: pd.DataFrame, models: Iterable[LoadedModel]) -> pd.DataFrame:
    """The predictions table's rows (with partition columns) for every row of `rows` and every model.

    `rows`: the features table with its partition columns. Raises SchemaError if a column is missing.
    """
    parts = [model.predictions(rows) for model in models] if len(rows) else []
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_COLUMNS)


def score_spark(features: DataFrame, models: Sequence[ServedModel]) -> DataFrame:
    """As `score_frame`, by Spark: each task loads the models once. The same rows give the same numbers."""
    return features.mapInPandas(_scorer(tuple(models)), struct_type(PREDICTIONS, with_partition=True))


def _scorer(
    models: tuple[ServedModel, ...],
) -> Callable[[Iterable[pd.DataFrame]], Iterator[pd.DataFrame]]:
    def score(batches: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        loaded = [model.load() for model in models]
        for batch in batches:
            if len(batch):
                yield score_frame(batch, loaded)

    return score
