"""A training into its spool: what is compared, searched, dropped and kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from features.errors import ModelError
from features.spec import FeatureSpec
from models.serving import spool
from models.training.training import LEARNERS, Effort, train

HOUR = 3600
SPEC = FeatureSpec(
    cycle_s=HOUR,
    windows_s=(HOUR, 24 * HOUR),
    half_lives_s=(HOUR,),
    horizons_s=(HOUR, 48 * HOUR),
    n_gaps=1,
    candidate_s=24 * HOUR,
    active_dataset_s=HOUR,
)
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
    read = (frame["decayed_1h"] > 0.7).to_numpy() & (rng.random(n) < 0.9)
    return frame.assign(
        as_of_s=np.repeat(np.arange(n_as_ofs) * HOUR, n_files),
        dataset=[f"d{i % 7}" for i in range(n)],
        n_access_within_1h=read.astype(float),
        n_access_within_2d=np.nan,
    )


def effort(**changes: object) -> Effort:
    values = {"test_share": 0.3, "learners": ("lightgbm",), "trees": 10, "seed": 1}
    return Effort(**{**values, "search_s": 60.0, "search_trials": 2, **changes})  # type: ignore[arg-type]


def test_a_training_is_complete_in_its_folder(tmp_path: Path) -> None:
    kept = spool.Spool(tmp_path)
    said: list[str] = []
    trained = train(
        rows(),
        kept,
        spec=SPEC,
        region="emea",
        until_s=24 * HOUR,
        effort=effort(),
        tags={"features_snapshot": "f"},
        on_progress=lambda _done, _total, what: said.append(what),
    )
    assert spool.waiting(tmp_path) == []
    kept.finish(
        "t", trained.bundle, params={"until": "then"}, tags={}, answer={"dropped": trained.bundle.dropped}
    )
    (found,) = spool.waiting(tmp_path)
    assert said == ["1h search", "1h lightgbm", "1h lightgbm_searched"]
    assert [run.name for run in found.runs][-1] == "lightgbm_searched 1h"
    assert len(found.runs) == 4 + 2
    assert "2d" in found.answer["dropped"]
    assert (found.folder / "bundle/1h/MLmodel").is_file()
    assert {row["part"] for row in trained.rows["slices"]} >= {"all", "warm", "tier AOD"}
    assert {"hour", "weekday"} <= set(trained.bundle.spread)  # they vary within an as_of here
    best = max(trained.reports, key=lambda report: report.auc or 0)
    assert (best.model[:8], (best.auc or 0) > 0.9) == ("lightgbm", True)


def test_a_training_without_any_horizon_says_why(tmp_path: Path) -> None:
    kept = spool.Spool(tmp_path)
    with pytest.raises(ModelError, match=r"no horizon can be trained.*1h: .*2d: "):
        train(
            rows(),
            kept,
            spec=SPEC,
            region="emea",
            until_s=HOUR,
            effort=effort(search_s=0.0),
            tags={},
            on_progress=lambda *_: None,
        )
    kept.discard()
    assert not list(tmp_path.iterdir())


def test_every_learner_of_the_settings_exists() -> None:
    for name, make in LEARNERS.items():
        assert make(effort()).name == name


def test_a_damaged_training_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "training.json").write_text('{"format": 1}')
    with pytest.raises(ModelError, match="delete it and train again"):
        spool.waiting(tmp_path)
