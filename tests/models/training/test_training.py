"""A training into its spool: what is compared, dropped and kept."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from features.common.errors import ModelError
from features.common.units import duration_label
from features.spec import FeatureSpec
from models.learning.frame import model_matrix
from models.serving import spool
from models.serving.bundle import RegionModels
from models.serving.bundle_files import BUNDLE_FOLDER, read_bundle
from models.serving.runs import Run
from models.serving.spool import Card
from models.training.training import Effort, Trained, train

HOUR = 3600
SPEC = FeatureSpec(cycle_s=HOUR, horizons_s=(HOUR, 48 * HOUR), candidate_s=24 * HOUR, active_dataset_s=HOUR)
# MLflow's and its libraries' own deprecations; ours still fail.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow"),
    pytest.mark.filterwarnings("ignore::FutureWarning:mlflow"),
]


def rows(n_as_ofs: int = 24, n_files: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    n = n_as_ofs * n_files
    frame = pd.DataFrame({name: rng.random(n) for name in SPEC.numeric_columns})
    frame = frame.assign(**dict.fromkeys(SPEC.categorical_columns, ["AOD", "RAW"] * (n // 2)))
    read = (frame["decayed_2h"] > 0.7).to_numpy() & (rng.random(n) < 0.9)
    return frame.assign(
        as_of_s=np.repeat(np.arange(n_as_ofs) * HOUR, n_files),
        dataset=[f"d{i % 7}" for i in range(n)],
        n_access_within_1h=read.astype(float),
        n_access_within_2d=np.nan,
    )


EFFORT = Effort(test_share=0.3, learners=("lightgbm",), trees=10, seed=1)


def trained_on(frame: pd.DataFrame, folder: spool.Spool, **changes: Any) -> Trained:
    """A training of the region on all that is known after a day; `changes`: other values."""
    arguments: dict[str, Any] = {
        "spec": SPEC,
        "until_s": 24 * HOUR,
        "effort": EFFORT,
        "tags": {},
        "on_progress": lambda *_: None,
    }
    return train(frame, folder, region="emea", **(arguments | changes))


def test_a_training_is_complete_in_its_folder(tmp_path: Path) -> None:
    folder = spool.Spool(tmp_path)
    steps: list[str] = []
    trained = trained_on(
        rows(),
        folder,
        tags={"features_snapshot": "f"},
        on_progress=lambda _done, _total, what: steps.append(what),
    )
    assert {path.name[0] for path in tmp_path.iterdir()} == {"."}
    card = Card(rows(), [], {}, trained.gains)
    finished = folder.finish(trained.bundle, Run("t", "training"), card=card)
    assert list(tmp_path.iterdir()) == [finished.folder]
    assert sorted(steps) == ["1h learned", "2d learned"]
    assert len(finished.run.children) == 4 + 1
    assert "2d" in trained.bundle.dropped
    assert (finished.folder / "bundle/1h.lgb").is_file()
    assert {row["model"] for row in trained.reliability} == {"lightgbm"}
    assert {"hour", "weekday"} <= set(trained.bundle.spread)  # they vary within an as_of here
    best = max(trained.reports, key=lambda report: report.auc or 0)
    assert (best.model[:8], (best.auc or 0) > 0.9) == ("lightgbm", True)


def test_a_training_without_any_horizon_says_why(tmp_path: Path) -> None:
    folder = spool.Spool(tmp_path)
    with pytest.raises(ModelError, match=r"no horizon can be trained.*1h: .*2d: "):
        trained_on(rows(), folder, until_s=0)
    folder.discard()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("horizon_s", "n_read", "why"),
    [
        (12 * HOUR, 400, "1d of history with known labels, and a model needs 36h"),
        (HOUR, 99, "of 1440 rows with known labels 99 were read, and a model needs 100 of either kind"),
    ],
    ids=["short past", "few reads"],
)
def test_recency_serves_a_horizon_with_few_labels(
    tmp_path: Path, horizon_s: int, n_read: int, why: str
) -> None:
    spec, within = dataclasses.replace(SPEC, horizons_s=(horizon_s,)), duration_label(horizon_s)
    frame = rows().sort_values("recency_s", ignore_index=True)
    frame["recency_s"] *= 24 * HOUR
    frame["as_of_s"] = np.arange(len(frame)) % 24 * HOUR
    frame[f"n_access_within_{within}"] = (frame.index < n_read).astype(float)
    folder, until_s = spool.Spool(tmp_path), 24 * HOUR
    trained = trained_on(frame, folder, spec=spec)
    assert list(trained.bundle.by_recency) == [within]
    assert why in trained.bundle.by_recency[within]
    assert [report.model for report in trained.reports if report.serves] == ["recency"]
    assert len(trained.reports) == 4  # the baselines
    ended = folder.finish(trained.bundle, Run("t", "training"), card=Card(frame, [], {}, {}))
    assert [run.name for run in ended.run.children if run.tags["serves"] == "true"] == [f"recency {within}"]
    bundle, fitted = read_bundle(ended.folder / BUNDLE_FOLDER)
    assert bundle == trained.bundle
    matrix = model_matrix(frame[frame["as_of_s"] + horizon_s <= until_s], spec, bundle.vocabulary)
    ((model, p),) = RegionModels(bundle, fitted, "1").probabilities(matrix.to_numpy())
    assert (model.learner, model.trained_until_s) == ("recency", until_s)
    assert (np.diff(p[np.argsort(matrix["recency_s"].to_numpy())]) <= 0).all()
    assert p.sum() == pytest.approx(min(n_read, n_read * len(matrix) / len(frame)), rel=0.1)


def test_recency_serves_a_horizon_where_it_ranks_better(tmp_path: Path) -> None:
    frame = rows()
    later = frame["as_of_s"] >= 15 * HOUR
    frame.loc[later, "n_access_within_1h"] = (frame["recency_s"] < 0.3).astype(float)[later]
    trained = trained_on(frame, spool.Spool(tmp_path))
    auc = {report.model: report.auc or 0 for report in trained.reports}
    assert auc["lightgbm"] < 0.9
    assert auc["recency"] > 0.95
    assert [report.model for report in trained.reports if report.serves] == ["recency"]
    assert [model.learner for model in trained.bundle.models] == ["recency"]
    reason = trained.bundle.by_recency["1h"]
    assert f"an AUC of {auc['lightgbm']:.3f}, and recency {auc['recency']:.3f}" in reason
