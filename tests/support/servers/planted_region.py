"""A region with a planted signal, small settings to train its models, and the training itself."""

from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from local_engines import LOCAL

from features.common.times import as_of_label, day_label
from features.results import (
    CHALLENGER_PLAN,
    CHAMPION_PLAN,
    EVALUATIONS,
    LRU,
    PROMOTIONS,
    S3FIFO,
    S3FIFO_PLAN,
    STEWARD,
    STEWARD_PLAN,
)
from features.schema import arrow_schema
from features.spec import FeatureSpec
from jobs.ground.settings.tree import LearnerName, MlflowSettings, Settings, TrainingSettings
from jobs.ground.store.tables import Tables
from jobs.loop.train import training as train
from jobs.loop.train.engines import RegionData
from jobs.loop.train.training import TrainingAnswer
from jobs.loop.trainings import promoted_models, trained_versions
from models.serving.bundle import RegionModels
from models.serving.bundle_files import bundle_digest
from models.serving.mlflow_session import mlflow
from models.serving.registry import Registry
from models.training.recording import ModelReport

HOUR, DAY = 3600, 86400
FIRST, SECOND = "cachecast-emea/1", "cachecast-emea/2"
SPEC = FeatureSpec(
    cycle_s=HOUR,
    horizons_s=(HOUR, 3 * HOUR, 24 * HOUR, 48 * HOUR),
    candidate_s=24 * HOUR,
    active_dataset_s=HOUR,
)
N_AS_OFS, N_FILES = 40, 120
UNTIL_S = N_AS_OFS * HOUR
TRAIN_UNTIL_S = UNTIL_S - 2 * HOUR
"""The last two as_ofs come after the training: predictions are made there."""
BASELINES = {"recency", "decayed_frequency", "dataset_popularity", "s3fifo_counts"}
LEARNERS = {"lightgbm", "hist_boosting", "forest"}
MLFLOW_WARNINGS = [
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow"),
    pytest.mark.filterwarnings("ignore::FutureWarning:mlflow"),
]
"""MLflow's and its libraries' own deprecations; ours still fail."""


class Knobs(TrainingSettings):
    """The `[training]` settings, small."""

    max_rows: int = 4000
    every: int = DAY
    span: int = DAY
    test_share: float = 0.3
    learners: tuple[LearnerName, ...] = ("lightgbm", "hist_boosting", "forest")
    trees: int = 40
    seed: int = 1
    max_age: int = 35 * DAY
    min_test_days: int = 21
    order: bool = True


class Mlflow(MlflowSettings):
    """The `[mlflow]` settings."""

    artifacts: str = "unused"
    experiment: str = "cachecast-test"
    serve: tuple[Literal["champion", "candidate"], ...] = ("champion", "candidate")
    patience: int = 20


def settings_of(tables: Tables, at: Mlflow, *, max_age_s: int = 90 * DAY) -> Settings:
    """The settings of the region; models serve until they are `max_age_s` old."""
    base = Settings.load(tables=tables.root, env={})
    features = {
        "cycle": SPEC.cycle_s,
        "horizons": SPEC.horizons_s,
        "candidates": SPEC.candidate_s,
        "active_datasets": SPEC.active_dataset_s,
        "unread_per_dataset": SPEC.unread_per_dataset,
        "history": SPEC.history_s,
    }
    return base.model_copy(
        update={
            "region": base.region.model_copy(update={"name": "emea"}),
            "features": base.features.model_copy(update=features),
            "training": base.training.model_copy(update={"max_age": max_age_s, "min_test_days": 21}),
            "mlflow": at,
        }
    )


def away(*, patience: int) -> Mlflow:
    """A server that nobody answers for."""
    return Mlflow(uri="http://127.0.0.1:9", patience=patience)


def planted(root: Path) -> Tables:
    """Features and labels: a file is read again when its last gap has passed."""
    rng = np.random.default_rng(1)
    store = Tables(str(root))
    n = N_AS_OFS * N_FILES
    as_of = np.repeat(np.arange(N_AS_OFS) * HOUR, N_FILES)
    gap, recency = rng.integers(1, 20, n) * HOUR, rng.integers(1, 20, n) * HOUR
    again = rng.random(n) < np.where(np.abs(gap - recency) < 4 * HOUR, 0.8, 0.05)
    keys = {
        "did": [f"s:f{i % N_FILES}" for i in range(n)],
        "day": [day_label(int(a)) for a in as_of],
        "as_of": [as_of_label(int(a)) for a in as_of],
        "region": ["emea"] * n,
    }
    known = {"recency_s": recency.astype(float), "gap_0_s": gap.astype(float), "size_bytes": np.full(n, 7e9)}
    numbers = {name: known.get(name, rng.random(n)) for name in SPEC.numeric_columns}
    numbers["recency_s"] = pa.array(numbers["recency_s"], mask=rng.random(n) < 0.15)
    text = {name: ["AOD" if i % 2 else "RAW" for i in range(n)] for name in SPEC.categorical_columns}
    text["dataset"] = pa.nulls(n, pa.string())
    store.replace_arrow(SPEC.features_table, pa.table({**keys, **text, **numbers}))
    labels = {
        c.name: pa.nulls(n, arrow_schema(SPEC.labels_table).field(c.name).type)
        for c in SPEC.labels_table.columns
    }
    for horizon_s, name in zip(SPEC.horizons_s, SPEC.label_columns, strict=True):
        reads = np.where(again, 1 + rng.poisson(2, n), 0)
        labels[name] = pa.array(reads, mask=as_of + horizon_s > UNTIL_S)
    store.replace_arrow(SPEC.labels_table, pa.table({**labels, **keys}))
    return store


def fit(tables: Tables, mlflow_at: Mlflow, knobs: Knobs, *, compare: bool = False) -> TrainingAnswer:
    steps: list[tuple[int, int, str]] = []
    answer = train.train_and_record(
        RegionData(LOCAL, tables, SPEC, "emea"),
        knobs,
        mlflow_at,
        until_s=TRAIN_UNTIL_S,
        compare=compare,
        on_progress=lambda *step: steps.append(step),
    )
    assert steps[-1][0] == steps[-1][1]
    assert not list(Path(knobs.spool).iterdir())
    return answer


def registry(at: Mlflow) -> Registry:
    return Registry(at.uri, at.artifacts, at.experiment)


def bundle_of(at: Mlflow, version: str) -> Path:
    """The folder of a version's files."""
    client = mlflow.tracking.MlflowClient(at.uri, registry_uri=at.uri)
    run = client.get_run(str(client.get_model_version(*version.split("/")).run_id))
    return Path(run.info.artifact_uri.removeprefix("file://")) / "bundle"


def tags_of(at: Mlflow, version: str) -> dict[str, str]:
    """The tags of a version."""
    client = mlflow.tracking.MlflowClient(at.uri, registry_uri=at.uri)
    return dict(client.get_model_version(*version.split("/")).tags)


def loaded(store: Tables, at: Mlflow, *aliases: str) -> RegionModels:
    """The region's models at the first of `aliases`, by the records of `store`."""
    digests = {version: trained.digest for version, trained in trained_versions(store, region="emea").items()}
    champion = promoted_models(store, region="emea").get("champion")
    return registry(at).load("emea", aliases, champion=champion, digests=digests)


def check_answer(answer: TrainingAnswer, version: str, learners: set[str]) -> None:
    """The best of `learners` beats baselines; one per horizon serves; far horizons have their reason.

    Of 38 hours of history, none has labels of two days, and one day has too few to learn from.
    """
    assert answer.version == version
    assert set(answer.dropped) == {"2d"}
    assert "no label within 2d has matured" in answer.dropped["2d"]
    assert answer.by_recency == {
        "1d": "38h of history with known labels, and a model needs 3d; compute features for more days"
    }
    by_horizon: dict[int, dict[str, ModelReport]] = {}
    for row in answer.models:
        by_horizon.setdefault(row.horizon_s, {})[row.model] = row
    assert {at: set(rows) - BASELINES for at, rows in by_horizon.items()} == {
        HOUR: learners,
        3 * HOUR: learners,
        24 * HOUR: set(),
    }
    for horizon_s, rows in by_horizon.items():
        assert all(rows[name].log_loss is None for name in BASELINES)
        (serves,) = (row.model for row in rows.values() if row.serves)
        if horizon_s == 24 * HOUR:
            assert serves == "recency"
        else:
            assert (rows[serves].auc or 0) > max(rows[name].auc or 1 for name in BASELINES) + 0.05


def serve(store: Tables, at: Mlflow, now_s: int, **versions: str) -> None:
    """Let `champion=…` and `steward=…` alone serve from `now_s` on, in MLflow and on our record."""
    known, row = registry(at), dict.fromkeys(("champion", "champion_digest", "steward", "steward_digest"))
    for alias in ("champion", "steward"):
        if alias in versions:
            known.point(alias, versions[alias])
            row |= {alias: versions[alias], f"{alias}_digest": bundle_digest(bundle_of(at, versions[alias]))}
        elif known.version_at("emea", alias):
            known.unpoint("emea", alias)
    action = "promote" if "champion" in versions else "refuse"
    what: dict[str, object] = {"action": action, "model_version": next(iter(versions.values()), "none")}
    what |= {"reasons": [], "comparisons": "[]", "may_evict": "steward" in versions}
    store.replace_rows(PROMOTIONS, [what | row], (day_label(now_s), as_of_label(now_s), "emea"))


def evaluate(
    store: Tables,
    challenger: str,
    as_of_s: int,
    *,
    saving: int,
    champion: str | None,
    order_saving: int | None = None,
    hours: float | None = None,
    capacity_fraction: float = 0.1,
) -> None:
    """A made-up evaluation of 28 days: the challenger saves `saving` bytes a day against every rival.

    `order_saving`: its order of eviction does that; None: it was not replayed. `hours`: core-hours a day that
    its plans save beside a steward, about, with the WAN bytes of the order; None: not replayed.
    """
    rng = np.random.default_rng(as_of_s)
    mine = 1000 + rng.integers(0, 100, 28)
    plans = {CHALLENGER_PLAN: challenger, LRU: None, S3FIFO_PLAN: None}
    if champion is not None:
        plans[CHAMPION_PLAN] = champion
    if order_saving is not None:
        plans |= {S3FIFO: None, STEWARD: None}
    if hours is not None:
        plans |= {STEWARD_PLAN: challenger}
    rows = []
    for policy, scored_by in plans.items():
        wan = mine if policy == CHALLENGER_PLAN else mine + saving + rng.integers(-10, 11, 28)
        if policy in (STEWARD, STEWARD_PLAN):
            wan = mine + saving - int(order_saving or 0) - (200 if policy == STEWARD_PLAN else 0)
        waits = 90.0 + rng.random(28) - (hours or 0.0) * (policy == STEWARD_PLAN)
        for i, wan_bytes in enumerate(wan.tolist()):
            zero = dict.fromkeys(("hit_bytes", "requests", "hits", "prefetch_bytes", "wasted_bytes"), 0)
            where = {"capacity_fraction": capacity_fraction, "on_day": day_label(as_of_s - (28 - i) * 86400)}
            what = {"model_version": challenger, "policy": policy, "scored_by": scored_by}
            rows.append({**what, **where, "wan_bytes": wan_bytes, **zero, "core_hours": float(waits[i])})
    store.replace_rows(EVALUATIONS, rows, (day_label(as_of_s), as_of_label(as_of_s), "emea"))
