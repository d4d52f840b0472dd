"""Scoring here and by Spark against LightGBM alone, and its time to learn, on matrices of the real width.

bench/scoring.py [ROWS]           every horizon's models on ROWS rows (1 000 000), medians of three runs:
                                  this process from Parquet; Spark from the features table to files of
                                  predictions; `Booster.predict` on the matrix in memory with as many
                                  threads
bench/scoring.py train [ROWS]     one LightGBM model by the default settings on ROWS rows (5 000 000)

Needs the environment that `make verify` makes: .venv/bin/python bench/scoring.py
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from measured import family_cpu_s  # noqa: E402

from features.common.units import duration_label  # noqa: E402
from features.spec import FeatureSpec  # noqa: E402
from jobs.ground.settings.tree import Settings, SparkSettings  # noqa: E402
from jobs.ground.spark.session import spark_session  # noqa: E402
from jobs.ground.store.tables import Tables  # noqa: E402
from jobs.loop.train.spark_engine import staged  # noqa: E402
from models.learning.calibration import platt, reads_if_any  # noqa: E402
from models.learning.frame import arrow_matrix  # noqa: E402
from models.learning.learners import LightGBM, Trees  # noqa: E402
from models.serving.bundle import (  # noqa: E402
    Bundle,
    HorizonModel,
    RegionModels,
)
from models.serving.drift import Reference  # noqa: E402

RUNS, THREADS = 3, 2
LEARN_ROWS, FILES = 100_000, 8
WORDS = {"tier": ["AOD", "MINIAODSIM", "NANOAOD", "RAW"], "campaign": ["Run2025C", "RunIII2024Summer24"]}


def rows(n: int, spec: FeatureSpec, rng: np.random.Generator) -> pa.Table:
    """Rows of the features table: a third of the values null, counts small, times wide."""
    columns: dict[str, pa.Array] = {}
    for name in spec.numeric_columns:
        raw = rng.poisson(2.0, n) if "n_" in name else rng.exponential(1e5, n).round()
        columns[name] = pa.array(raw.astype(np.float64), mask=rng.random(n) < (0.0 if "n_" in name else 0.33))
    for name in spec.categorical_columns:
        words = pa.array(WORDS.get(name, ["a", "b"]))
        columns[name] = words.take(pa.array(rng.integers(0, len(words), n)))
    number = pa.array(np.arange(n))
    columns["did"] = pa.array([f"mc23:AOD.{i:09}._000001.pool.root.1" for i in number.to_pylist()])
    columns["dataset"] = pa.array([f"mc23:dataset.{i // 50:07}" for i in number.to_pylist()])
    for name, value in (("region", "emea"), ("day", "2026-03-01"), ("as_of", "2026-03-01T00:00:00Z")):
        columns[name] = pa.repeat(pa.scalar(value), n)
    return pa.table(columns)


def labels(matrix: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Reads that depend on many columns."""
    weights = rng.normal(size=matrix.shape[1]) * (rng.random(matrix.shape[1]) < 0.3)
    known = np.nan_to_num((matrix - np.nanmean(matrix, axis=0)) / (np.nanstd(matrix, axis=0) + 1e-9))
    return (known @ weights + rng.normal(size=len(matrix)) > 1).astype(np.float64)


def served(sample: pa.Table, spec: FeatureSpec, rng: np.random.Generator, trees: int) -> RegionModels:
    columns = (*spec.numeric_columns, *spec.categorical_columns)
    matrix = arrow_matrix(sample.to_batches()[0], WORDS, columns)
    x = pd.DataFrame(matrix, columns=list(columns))
    models, scorers = [], []
    for horizon_s in spec.horizons_s:
        y = labels(matrix, rng)
        fitted = LightGBM(trees=trees).fit(x, y)
        raw = fitted.score(x)
        scorers.append(fitted)
        nothing = Reference((), (1.0, 0.0), 0.0)
        maps = platt(raw, y), reads_if_any(raw, y)
        models.append(HorizonModel(horizon_s, "lightgbm", *maps, 0, nothing))
    bundle = Bundle("emea", spec, columns, WORDS, 0, tuple(models), {}, {})
    return RegionModels(bundle, tuple(zip(models, scorers, strict=True)), "cachecast-emea/1")


def scoring(n: int) -> None:
    settings = Settings.load()
    spec = settings.features.spec
    rng = np.random.default_rng(1)
    folder = Path(tempfile.mkdtemp())
    try:
        per_file = n // FILES
        parts = []
        models = served(rows(LEARN_ROWS, spec, rng), spec, rng, settings.training.trees)
        for i in range(FILES):
            part = rows(per_file, spec, rng)
            pq.write_table(part, folder / f"{i}.parquet", compression="zstd")
            parts.append(arrow_matrix(part.combine_chunks().to_batches()[0], WORDS, models.bundle.columns))
        matrix = np.concatenate(parts)
        n = len(matrix)
        boosters = [
            lgb.Booster(model_str=scorer.text) for _, scorer in models.fitted if isinstance(scorer, Trees)
        ]
        master = f"local[{THREADS}]"
        spark = spark_session(
            SparkSettings(master=master, driver_memory="2g", shuffle_partitions=THREADS, conf={})
        )

        tables, key = Tables(str(folder / "tables")), ("2026-03-01", "2026-03-01T00:00:00Z", "emea")
        files = ((key, pq.read_table(folder / f"{i}.parquet")) for i in range(FILES))
        features = tables.replace_each(spec.features_table, files)

        def by_spark() -> None:
            staged(spark, tables, features, features.partitions, models)

        def native() -> None:
            for booster in boosters:
                booster.predict(matrix, num_threads=THREADS)

        def here() -> None:
            for i in range(FILES):
                models.table(pq.read_table(folder / f"{i}.parquet"))

        by_spark()
        here()
        n_scores = n * len(boosters)
        print(f"{n:,} rows × {matrix.shape[1]} columns × {len(boosters)} horizons, {THREADS} threads")
        times: dict[str, list[tuple[float, float]]] = {}
        for _ in range(RUNS):
            works = {
                "native": native,
                "here, from parquet": here,
                "by Spark": by_spark,
            }
            for name, work in works.items():
                times.setdefault(name, []).append(seconds(work))
        middle = {name: [statistics.median(one) for one in zip(*t, strict=True)] for name, t in times.items()}
        native_wall, native_cpu = middle["native"]
        for name, (wall, cpu) in middle.items():
            print(
                f"{name:>18}: {n_scores / wall:>10,.0f} scores/s, {native_wall / wall:.0%} of native; "
                f"{n_scores / cpu:>10,.0f} a CPU second, {native_cpu / cpu:.0%} of native; "
                f"10 M rows in {10e6 / n * wall / 60:.1f} min, {10e6 / n * cpu / 60:.1f} CPU min",
                flush=True,
            )
    finally:
        shutil.rmtree(folder)


def learning(n: int) -> None:
    settings = Settings.load()
    spec = settings.features.spec
    columns = [*spec.numeric_columns, *spec.categorical_columns]
    rng = np.random.default_rng(1)
    matrix = np.empty((n, len(columns)), dtype=np.float32)
    step = 250_000
    for start in range(0, n, step):
        part = rows(min(step, n - start), spec, rng).to_batches()[0]
        matrix[start : start + step] = arrow_matrix(part, WORDS, columns)
    y = np.concatenate([labels(matrix[s : s + step], np.random.default_rng(3)) for s in range(0, n, step)])
    x = pd.DataFrame(matrix, columns=columns, copy=False)
    learner = LightGBM(trees=settings.training.trees)
    fitted: list[Trees] = []
    taken = seconds(lambda: fitted.append(learner.fit(x, y)))
    print(
        f"LightGBM, {learner.trees} trees, {n:,} rows × {len(columns)} columns, one horizon on one thread: "
        f"{taken[0]:.1f} s, {taken[1]:.1f} CPU s"
    )
    booster = lgb.Booster(model_str=fitted[0].text)
    predicted = seconds(lambda: booster.predict(matrix[:step], num_threads=THREADS))
    print(
        f"predicts {step / predicted[0]:,.0f} rows/s; horizons {[duration_label(h) for h in spec.horizons_s]}"
    )


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Wall time, and CPU time of this process and all below it: what a busy machine does not change."""
    began, used = time.perf_counter(), family_cpu_s(os.getpid())
    work()
    return time.perf_counter() - began, family_cpu_s(os.getpid()) - used


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["train"]:
        learning(int(words[1]) if len(words) > 1 else 5_000_000)
    else:
        scoring(int(words[0]) if words else 1_000_000)
