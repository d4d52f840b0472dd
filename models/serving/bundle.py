"""A region's models: their JSON part (inputs, vocabulary, calibration), and predictions by all of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pydantic
import pydantic_core

from features.accesses import KINDS
from features.common.arrays import Float32Array, FloatArray
from features.common.errors import InputError, ModelError, StaleInputError
from features.common.times import as_of_label, parse_as_of
from features.common.units import duration_label
from features.schema import PREDICTIONS, arrow_schema
from features.spec import LONGEST_HORIZON_S, FeatureSpec
from models.learning.baselines import RECENCY
from models.learning.calibration import WEEK_HOURS, Knots
from models.learning.fit import calibrated
from models.learning.frame import arrow_matrix
from models.learning.learners import Scorer, Trees, forest_of
from models.serving.drift import Reference
from replay.access_context import MOST_KINDS
from replay.kernels.trees import HorizonModels, join_models, margins_by_horizon, new_block

FORMAT = 6
MAX_CHARS = 16 << 20
"""Most characters of the JSON; a hundred columns and eight horizons take about a hundredth."""
_MOST_READS = 1e9


@dataclasses.dataclass(frozen=True)
class HorizonModel:
    """One horizon's model without its trees. `learner`: recency, or the name of a LightGBM.

    `trained_until_s`: end of the latest label used, s since 1970; `scores`: the distribution of its
    probabilities over the rows it was fitted on; `week`: of `calibration.weekly`.
    """

    horizon_s: int
    learner: str
    calibration: Knots
    reads: Knots
    trained_until_s: int
    scores: Reference
    week: tuple[float, ...] = ()

    @property
    def within(self) -> str:
        """The horizon as a label, for example `2d`; also the name of its file in a bundle."""
        return duration_label(self.horizon_s)


@dataclasses.dataclass(frozen=True)
class OrderModel:
    """An order of eviction (`models.learning.order`) without its trees.

    `columns`: of `features.stream`; `kinds`: of files, by number (`replay.access_context`). `until_s`:
    nothing known later was used, s since 1970. `readers`: the kinds of readers in the training data
    (`features.accesses`).
    """

    horizons_s: tuple[int, ...]
    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    until_s: int
    readers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Bundle:
    """The models of a region, one per horizon, which share the matrix of `columns`.

    `vocabulary`: codes words in columns. `until_s`: time of the training; nothing known later was used.
    `dropped`: horizons of the settings without a model, with the reason. `spread`: the distribution of each
    column, to detect drift. `by_recency`: horizons that recency serves, with the reason. `order`: of
    eviction; None if none could be learned, with the reason `no_order`.
    """

    region: str
    spec: FeatureSpec
    columns: tuple[str, ...]
    vocabulary: dict[str, list[str]]
    until_s: int
    models: tuple[HorizonModel, ...]
    dropped: dict[str, str]
    spread: dict[str, Reference]
    by_recency: dict[str, str] = dataclasses.field(default_factory=dict)
    order: OrderModel | None = None
    no_order: str | None = None

    @functools.cached_property
    def inputs(self) -> tuple[tuple[str, ...], ...]:
        """The columns and the words: bundles of equal ones share a matrix."""
        return self.columns, *((name, *words) for name, words in self.vocabulary.items())

    def to_json(self) -> str:
        """Text that `from_json` reads."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str | bytes) -> Bundle:
        """The bundle in a text of `to_json`. Raises ModelError if it is damaged, or of another version."""
        try:
            if len(text) > MAX_CHARS:
                raise ValueError(f"{len(text)} characters, more than {MAX_CHARS}")
            raw = pydantic_core.from_json(text, allow_inf_nan=False)
            number = raw.get("format") if isinstance(raw, dict) else None
            if number != FORMAT:
                raise ValueError(f"another version of cachecast wrote it: not of format {FORMAT}")
            bundle = _adapter().validate_json(text, strict=True)
            _check_numbers(bundle)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ModelError(
                f"the model bundle cannot be read ({where}: {first['msg']}); train again"
            ) from None
        except (ValueError, ArithmeticError, OSError, InputError) as error:
            raise ModelError(f"the model bundle cannot be read ({error}); train again") from None
        return bundle

    def check(self, *, spec: FeatureSpec, region: str) -> None:
        """Raise ModelError unless the models take features of `spec`, are of `region` and share a horizon."""
        same = dataclasses.replace(self.spec, horizons_s=spec.horizons_s) == spec
        if self.region != region or not same:
            raise ModelError(
                f"the models of region {self.region!r} of {as_of_label(self.until_s)} were trained with "
                f"other settings of [features] or for another region than {region!r}; train again"
            )
        if strangers := set(self.columns) - {*spec.numeric_columns, *spec.categorical_columns}:
            raise ModelError(
                f"the models of region {region!r} take the column {min(strangers)[:80]!r}, which [features] "
                "does not make; train again"
            )
        if not {model.horizon_s for model in self.models} & set(spec.horizons_s):
            horizons = ", ".join(map(duration_label, spec.horizons_s))
            raise ModelError(
                f"the models of region {region!r} cover none of the horizons {horizons}; "
                f"they have {', '.join(model.within for model in self.models) or 'none'}; train again"
            )

    def check_time(self, as_of_s: int, *, max_age_s: int) -> None:
        """Raise unless the models may score `as_of_s`.

        ModelError if they may have seen anything later: a label that ends by then may count reads that were
        known only at the training. StaleInputError if they are older than `max_age_s`.
        """
        to_s = max(self.until_s, *(model.trained_until_s for model in self.models))
        if to_s > as_of_s:
            raise ModelError(
                f"the models of region {self.region!r} were trained on data until {as_of_label(to_s)}, after "
                f"{as_of_label(as_of_s)}: their predictions there would know the future; predict later "
                "as_ofs, or train on earlier ones"
            )
        if as_of_s - self.until_s > max_age_s:
            raise StaleInputError(
                f"the models of region {self.region!r} are of {as_of_label(self.until_s)}, more than "
                f"{duration_label(max_age_s)} before {as_of_label(as_of_s)} ([training] max_age); train again"
            )


@functools.cache
def _adapter() -> pydantic.TypeAdapter[Bundle]:
    return pydantic.TypeAdapter(Bundle)


def _check_numbers(bundle: Bundle) -> None:
    """Raise ValueError for what scoring could not use: types alone are right already."""
    horizons_s = [model.horizon_s for model in bundle.models]
    _need(0 < len(horizons_s) == len(set(horizons_s)), "models")
    _need(all(0 < horizon_s <= LONGEST_HORIZON_S for horizon_s in horizons_s), "horizon_s")
    _need(0 < len(bundle.columns) == len(set(bundle.columns)), "columns")
    words = set(bundle.columns) & set(bundle.spec.categorical_columns)
    _need(words <= bundle.vocabulary.keys() <= set(bundle.spec.categorical_columns), "vocabulary")
    _need(bundle.spread.keys() <= set(bundle.columns), "spread")
    for at_s in (bundle.until_s, *(model.trained_until_s for model in bundle.models)):
        parse_as_of(as_of_label(at_s))
    for model in bundle.models:
        _need(model.learner != RECENCY or "recency_s" in bundle.columns, "recency without its column")
        _check_knots(model.calibration, most=1.0)
        _check_knots(model.reads, most=_MOST_READS)
        _need(len(model.week) in (0, WEEK_HOURS) and all(abs(shift) <= 1 for shift in model.week), "week")
        _need(not model.week or {"hour", "weekday"} <= set(bundle.columns), "week without its columns")
    for reference in (*bundle.spread.values(), *(model.scores for model in bundle.models)):
        _need(_rise(reference.edges), "edges")
        _need(len(reference.shares) == len(reference.edges) + 2, "shares")
        _need(all(0 <= share <= 1 for share in reference.shares), "shares")
    if bundle.order is not None:
        check_order(bundle.order)


def check_order(order: OrderModel) -> None:
    """Raise ValueError for what an order could not be followed with: types alone are right already."""
    horizons_s = order.horizons_s
    _need(len(horizons_s) > 0 and sorted(set(horizons_s)) == list(horizons_s), "order.horizons_s")
    _need(horizons_s[0] > 0 and horizons_s[-1] <= LONGEST_HORIZON_S, "order.horizons_s")
    _need(0 < len(order.columns) == len(set(order.columns)), "order.columns")
    _need(len(order.kinds) == len(set(order.kinds)) <= MOST_KINDS, "order.kinds")
    _need(set(order.readers) <= set(KINDS), "order.readers")
    parse_as_of(as_of_label(order.until_s))


def _check_knots(knots: Knots, *, most: float) -> None:
    _need(0 < len(knots.x) == len(knots.y) and _rise(knots.x), f"{knots.kind} x")
    _need(all(0 <= y <= most for y in knots.y), f"{knots.kind} y")


def _rise(values: tuple[float, ...]) -> bool:
    return all(a <= b for a, b in itertools.pairwise(values))


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"{what} cannot be")


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

    def probabilities(self, matrix: Float32Array) -> Iterator[tuple[HorizonModel, FloatArray]]:
        """Per horizon: its model, and the probability of every row."""
        x = pd.DataFrame(matrix, columns=list(self.bundle.columns), copy=False)
        by_trees, untrained = self._scored(matrix), dict[Scorer, FloatArray]()
        for model, scorer in self.fitted:
            if isinstance(scorer, Trees):
                scores = next(by_trees)
            else:  # several horizons have the same
                scores = untrained[scorer] if scorer in untrained else scorer.score(x)
                untrained[scorer] = scores
            yield model, calibrated(model.calibration(scores), model.week, x)

    @functools.cached_property
    def _trees(self) -> HorizonModels:
        """The trees of all horizons that have some: what they compare of a row is made ready once."""
        of = {model.horizon_s: trees for model, trees in self.fitted if isinstance(trees, Trees)}
        return join_models([forest_of(trees.text, trees.columns) for trees in of.values()], list(of))

    def _scored(self, matrix: Float32Array) -> Iterator[FloatArray]:
        """What the trees of each horizon that has some say of every row."""
        if not any(isinstance(scorer, Trees) for _, scorer in self.fitted):
            return
        from scipy.special import expit  # noqa: PLC0415  a steward's host has no SciPy

        sums = np.empty((self._trees.horizon_s.size, len(matrix)))
        margins_by_horizon(self._trees, np.ascontiguousarray(matrix), new_block(self._trees.forest), sums)
        yield from expit(sums)

    def table(self, rows: pa.Table, each: Each = map) -> pa.Table:
        """The predictions for rows of the features table; `each`: maps over batches, perhaps in threads."""
        batches = rows.combine_chunks().to_batches(max_chunksize=ROWS_AT_A_TIME)
        parts = each(lambda batch: list(self.predictions(batch)), filter(len, batches))
        return pa.Table.from_batches(itertools.chain.from_iterable(parts), PREDICTION_SCHEMA)

    def predictions(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Per horizon one prediction per row of the features table, with its partition columns."""
        shared = {name: rows.column(name) for name in ("did", "dataset", "tier", *PREDICTIONS.partition)}
        shared |= {"size_bytes": _rounded(rows, "size_bytes"), "last_read_s": _rounded(rows, "recency_s")}
        shared["model_version"] = pa.repeat(pa.scalar(self.version), rows.num_rows)
        shared["model_digest"] = pa.repeat(pa.scalar(self.digest, pa.string()), rows.num_rows)
        for model, probability in self.probabilities(self.matrix(rows)):
            own = {
                "horizon_s": pa.repeat(pa.scalar(model.horizon_s, pa.int64()), rows.num_rows),
                "probability": pa.array(probability),
                "expected_accesses": pa.array(probability * model.reads(probability)),
            }
            columns = {**shared, **own}
            yield pa.RecordBatch.from_arrays(
                [columns[name] for name in PREDICTION_SCHEMA.names], schema=PREDICTION_SCHEMA
            )


def _rounded(rows: pa.RecordBatch, name: str) -> pa.Array:
    return pc.round(rows.column(name)).cast(pa.int64())
