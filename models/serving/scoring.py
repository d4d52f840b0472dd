"""Predictions from features as Arrow batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import Float32Array, FloatArray
from features.schema import PREDICTIONS, arrow_schema
from models.learning.baselines import RECENCY, Recency
from models.learning.fit import probability_and_reads
from models.learning.frame import arrow_matrix
from models.learning.learners import FittedLightGBM, Scorer
from models.serving.bundle import Bundle, HorizonModel

ROWS_AT_A_TIME = 10_000
"""Rows of a matrix scored at a time: the size of Spark's batches, and small enough for a core's cache."""

_PARTITION = [pa.field(name, pa.string()) for name in PREDICTIONS.partition]
PREDICTION_SCHEMA = pa.schema(
    [*(field.with_nullable(True) for field in arrow_schema(PREDICTIONS)), *_PARTITION]
)
"""The columns of predictions, and those of their partition."""


@dataclasses.dataclass(frozen=True)
class ServedModels:
    """A region's models as bytes, to be sent to Spark's workers.

    `payloads`: by horizon, in LightGBM's format, empty for recency; `version`: of the bundle in
    MLflow; `digest`: of its files, None if these models were not loaded from there.
    """

    bundle: Bundle
    payloads: Mapping[int, bytes]
    version: str
    digest: str | None = None

    def load(self) -> LoadedModels:
        """Load the models into memory."""
        fitted = tuple((one, self._scorer(one)) for one in self.bundle.models)
        return LoadedModels(self.bundle, fitted, self.version, self.digest)

    def _scorer(self, model: HorizonModel) -> Scorer:
        if model.learner == RECENCY:
            return Recency()
        return FittedLightGBM.of_payload(self.payloads[model.horizon_s])

    def only(self, horizons_s: Iterable[int]) -> ServedModels:
        """Leave out the models of other horizons."""
        wanted = set(horizons_s)
        kept = tuple(one for one in self.bundle.models if one.horizon_s in wanted)
        return dataclasses.replace(self, bundle=dataclasses.replace(self.bundle, models=kept))


@dataclasses.dataclass(frozen=True)
class LoadedModels:
    """A region's models in memory."""

    bundle: Bundle
    fitted: tuple[tuple[HorizonModel, Scorer], ...]
    version: str
    digest: str | None = None

    def matrix(self, rows: pa.RecordBatch) -> Float32Array:
        """The matrix that all horizons share. Raises SchemaError if a column is missing."""
        return arrow_matrix(rows, self.bundle.vocabulary, self.bundle.columns)

    def probabilities(self, matrix: Float32Array) -> Iterator[tuple[HorizonModel, FloatArray, FloatArray]]:
        """Per horizon: its model, and the probability and expected reads of every row."""
        x = pd.DataFrame(matrix, columns=list(self.bundle.columns), copy=False)
        for model, scorer in self.fitted:
            yield model, *probability_and_reads(scorer.score(x), model.calibration, model.reads)

    def predictions(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Per horizon one prediction per row of the features table, with its partition columns."""
        kept = {name: rows.column(name) for name in ("did", "dataset", "tier", *PREDICTIONS.partition)}
        kept |= {"size_bytes": _rounded(rows, "size_bytes"), "last_read_s": _rounded(rows, "recency_s")}
        kept["model_version"] = pa.repeat(pa.scalar(self.version), rows.num_rows)
        kept["model_digest"] = pa.repeat(pa.scalar(self.digest, pa.string()), rows.num_rows)
        for model, probability, expected in self.probabilities(self.matrix(rows)):
            made = {
                "horizon_s": pa.repeat(pa.scalar(model.horizon_s, pa.int64()), rows.num_rows),
                "probability": pa.array(probability),
                "expected_accesses": pa.array(expected),
            }
            columns = {**kept, **made}
            yield pa.RecordBatch.from_arrays(
                [columns[name] for name in PREDICTION_SCHEMA.names], schema=PREDICTION_SCHEMA
            )


def _rounded(rows: pa.RecordBatch, name: str) -> pa.Array:
    return pc.round(rows.column(name)).cast(pa.int64())
