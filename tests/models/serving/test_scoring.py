"""Predictions of Spark's workers and of a pandas frame, compared number by number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from features.common.errors import ModelError
from features.schema import PREDICTIONS
from features.spec import FeatureSpec
from jobs.ground.store.commits import Key
from jobs.ground.store.tables import Tables
from jobs.loop.train.spark_engine import staged
from models.learning.baselines import Recency, S3FifoCounts
from models.learning.calibration import Knots
from models.learning.fit import calibrated
from models.learning.frame import learn_vocabulary, model_matrix
from models.learning.learners import Learner, LightGBM, Scorer, Trees
from models.serving.bundle import Bundle, HorizonModel, RegionModels
from models.serving.drift import Reference
from models.training.training import fit_in_memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = FeatureSpec(cycle_s=3600, horizons_s=(3600, 7200), candidate_s=86400, active_dataset_s=3600)


WEEK = tuple(np.linspace(-1, 1, 168).tolist())


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """A features table's rows, with nulls of every kind."""
    rng = np.random.default_rng(2)
    n = 600
    frame = pd.DataFrame({name: rng.random(n) * 1e5 for name in SPEC.numeric_columns})
    frame["size_bytes"] = rng.integers(1, 10**12, n).astype(float)
    frame["recency_s"] = rng.integers(1, 10**6, n).astype(float)
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    frame["hour"], frame["weekday"] = rng.integers(0, 24, n) * 1.0, rng.integers(0, 7, n) * 1.0
    tier = np.array(["AOD", "RAW", None, "ÄÖ"], dtype=object)[rng.integers(0, 4, n)]
    names = [f"s:f{i}" for i in range(n)]
    where = {"region": "emea", "dataset": None, "day": "1970-01-01", "as_of": "1970-01-01T01:00:00Z"}
    return frame.assign(did=names, **dict.fromkeys(SPEC.categorical_columns, tier), **where)


@pytest.fixture(scope="module")
def models(rows: pd.DataFrame) -> RegionModels:
    """LightGBM and recency, for a horizon each."""
    words = learn_vocabulary(rows, SPEC)
    matrix = model_matrix(rows, SPEC, words)
    y: Any = (matrix["recency_s"].fillna(0) > 5e5).to_numpy(dtype=float)
    scorers: tuple[Scorer, ...] = (LightGBM(trees=20).fit(matrix, y), Recency())
    horizons = [
        HorizonModel(
            horizon_s=horizon_s,
            learner=learner,
            calibration=Knots("platt", (0.0, 0.3, 1.0), (0.01, 0.2, 0.98)),
            reads=Knots("bins", (0.0, 1.0), (1.0, 7.0)),
            trained_until_s=0,
            scores=Reference((), (1.0, 0.0), 0.0),
            week=WEEK if learner == "lightgbm" else (),
        )
        for learner, horizon_s in (("lightgbm", 3600), ("recency", 7200))
    ]
    bundle = Bundle("emea", SPEC, tuple(matrix.columns), words, 0, tuple(horizons), {}, {})
    fitted = tuple(zip(horizons, scorers, strict=True))
    return RegionModels(bundle, fitted, "cachecast-emea/7", "d" * 64)


def slowly(rows: pd.DataFrame, models: RegionModels) -> pd.DataFrame:
    """The predictions by pandas and LightGBM's own door, one horizon after the other."""
    bundle = models.bundle
    matrix = model_matrix(rows, SPEC, bundle.vocabulary)
    parts = []
    for model, scorer in models.fitted:
        if isinstance(scorer, Trees):
            raw = lgb.Booster(model_str=scorer.text).predict(matrix)
        else:
            raw = Recency().score(matrix)
        p = np.interp(raw, model.calibration.x, model.calibration.y)
        if model.week:
            odds = (
                p / (1 - p) * np.exp([WEEK[int(24 * w + h)] for w, h in rows[["weekday", "hour"]].to_numpy()])
            )
            p = odds / (1 + odds)
        part = rows[["did", "dataset", "tier", "region", "day", "as_of"]].assign(
            horizon_s=model.horizon_s,
            probability=p,
            expected_accesses=p * np.interp(p, model.reads.x, model.reads.y),
            size_bytes=rows["size_bytes"].round().astype("Int64"),
            last_read_s=rows["recency_s"].round().astype("Int64"),
            model_version=models.version,
            model_digest=models.digest,
        )
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def same(ours: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert list(ours.columns) == [*PREDICTIONS.column_names, *PREDICTIONS.partition]
    key = ["horizon_s", "did"]
    sides = [side.sort_values(key, ignore_index=True) for side in (ours, expected)]
    for name in ("probability", "expected_accesses"):
        left, right = (side.pop(name).to_numpy() for side in sides)
        np.testing.assert_allclose(left, right, rtol=1e-12)
    for name in sides[0].columns:
        a, b = (side[name].astype(object).where(side[name].notna(), None) for side in sides)
        assert a.tolist() == b.tolist(), name


def test_spark_gives_the_bits_of_this_process_and_the_numbers_of_the_library(
    spark: SparkSession, rows: pd.DataFrame, models: RegionModels, tmp_path: Path
) -> None:
    tables, table = Tables(str(tmp_path)), SPEC.features_table
    where: Key = tuple(str(rows[name][0]) for name in table.partition)
    thirds = [(where, pa.Table.from_pandas(rows[i::3], preserve_index=False)) for i in range(3)]
    written = tables.replace_each(table, thirds)
    files = staged(spark, tables, written, written.partitions, models)
    assert len(files) == len({file.name for file in files}) == 3
    head = tables.commit(PREDICTIONS, files, base=None)
    assert tables.commit(PREDICTIONS, files[::-1], base=head) == head
    by_spark = tables.read_arrow(PREDICTIONS).to_pandas()
    by_arrow = scored(rows, models).to_pandas()
    same(by_spark, slowly(rows, models))
    key = ["horizon_s", "did"]
    for name in ("probability", "expected_accesses"):
        a, b = (side.sort_values(key)[name].tolist() for side in (by_spark, by_arrow))
        assert a == b


def scored(rows: pd.DataFrame, models: RegionModels) -> pa.Table:
    (batch,) = pa.Table.from_pandas(rows).to_batches()
    return pa.Table.from_batches(models.predictions(batch))


def test_arrow_gives_the_numbers_of_the_library(rows: pd.DataFrame, models: RegionModels) -> None:
    ours = scored(rows, models).to_pandas()
    same(ours, slowly(rows, models))
    assert ours["probability"].between(0, 1).all()
    assert ours["size_bytes"].isna().sum() == 2 * rows["size_bytes"].isna().sum() > 0


def test_all_horizons_together_say_exactly_what_each_says_alone(
    rows: pd.DataFrame, models: RegionModels
) -> None:
    matrix = model_matrix(rows, SPEC, models.bundle.vocabulary)
    (trees_of_1h, _), (by_recency, recency) = models.fitted
    y: Any = (matrix["hour"] > 12).to_numpy(dtype=float)
    other = LightGBM(trees=7, seed=3).fit(matrix, y)
    first = dataclasses.replace(trees_of_1h, horizon_s=7200), other
    fitted = (models.fitted[0], (by_recency, recency), first)
    for n in (0, 1, 65, len(rows)):
        x = matrix.head(n)
        scored_models = dataclasses.replace(models, fitted=fitted).probabilities(x.to_numpy())
        for (model, probability), (alone, scorer) in zip(scored_models, fitted, strict=True):
            assert model == alone
            np.testing.assert_array_equal(
                probability, calibrated(alone.calibration(scorer.score(x)), alone.week, x)
            )


def test_a_walk_learns_in_memory_models_and_baselines_alike(rows: pd.DataFrame) -> None:
    past = rows.assign(as_of_s=np.repeat(np.arange(20) * 3600, 30))
    past["n_access_within_1h"] = np.random.default_rng(1).poisson(0.5, len(rows)).astype(float)
    past["n_access_within_2h"] = np.nan
    learners: dict[str, Callable[[int], Learner]]
    learners = {"trees": lambda _: LightGBM(trees=5), "counts": lambda _: S3FifoCounts(3600)}
    learned = fit_in_memory(past, spec=SPEC, region="emea", until_s=15 * 3600, learners=learners)
    assert list(learned) == ["trees", "counts"]
    for name, of_learner in learned.items():
        assert of_learner.version == f"{name} at 1970-01-01T15:00:00Z"
        assert [model.within for model, _ in of_learner.fitted] == ["1h"]
        assert of_learner.bundle.models[0].trained_until_s == 15 * 3600
        assert "no label within 2h" in of_learner.bundle.dropped["2h"]
        assert scored(rows, of_learner)["probability"].to_numpy().mean() == pytest.approx(
            1 - np.exp(-0.5), abs=0.1
        )
    with pytest.raises(ModelError, match="no horizon can be trained"):
        fit_in_memory(past, spec=SPEC, region="emea", until_s=0, learners=learners)
