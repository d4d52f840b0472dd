"""Bundles in MLflow that somebody changed: nothing of them runs, and nothing of them serves."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import pytest
import yaml
from local_engines import LOCAL
from planted_region import (
    DAY,
    FIRST,
    HOUR,
    MLFLOW_WARNINGS,
    N_AS_OFS,
    SECOND,
    SPEC,
    Knobs,
    Mlflow,
    bundle_of,
    evaluate,
    fit,
    registry,
    serve,
    without_digest,
)

from features.errors import ModelError
from features.results import PROMOTIONS
from jobs.evaluate import promote
from jobs.store.promotions import named
from jobs.store.tables import Tables
from jobs.train import predict
from models.serving.bundle_files import BUNDLE_FILE, MAX_FILE_BYTES, bundle_digest, read_bundle
from models.serving.mlflow_session import mlflow
from models.serving.order import load_order
from models.serving.registry import Registry
from models.serving.scoring import ServedModels

pytestmark = MLFLOW_WARNINGS
NOT_TRAINED = "not those that were trained"


class Bomb:
    """Leaves a file when it is unpickled."""

    def __init__(self, left: Path) -> None:
        self.left = left

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.left),)


def armed(folder: Path, left: Path, flavour: str) -> None:
    """Make MLflow's own `load_model` unpickle a bomb, by the folder's MLmodel."""
    about = yaml.safe_load((folder / "MLmodel").read_text())
    pickled = {"serialization_format": "cloudpickle", "pickled_model": "model.pkl", "data": "model.pkl"}
    about["flavors"][flavour] = {
        **about["flavors"].get("lightgbm", {}),
        **pickled,
        "model_class": "x.NoBooster",
    }
    (folder / "MLmodel").write_text(yaml.safe_dump(about))
    (folder / "model.pkl").write_bytes(cloudpickle.dumps(Bomb(left)))


@pytest.mark.parametrize("flavour", ["lightgbm", "sklearn"])
def test_no_pickle_runs(own: Mlflow, tmp_path: Path, flavour: str) -> None:
    folder, left = bundle_of(own, SECOND), tmp_path / "left"
    armed(folder / "1h", left, flavour)
    with pytest.raises(ModelError, match=r"1h/model\.pkl"):
        registry(own).load_version(SECOND)
    assert read_bundle(folder)
    assert not left.exists()


def test_models_of_scikit_learn_are_refused(own: Mlflow) -> None:
    """As an older cachecast trained them."""
    folder = bundle_of(own, SECOND)
    (folder / "1h" / "model.lgb").rename(folder / "1h" / "model.skops")
    with pytest.raises(ModelError, match=r"1h/model\.skops.*an older cachecast trained it.*train again"):
        registry(own).load_version(SECOND)


def test_a_model_class_of_mlmodel_s_own_choice_means_nothing(own: Mlflow, tmp_path: Path) -> None:
    """Even under the name that is read: a pickle is no model text."""
    folder, left = bundle_of(own, SECOND), tmp_path / "left"
    armed(folder / "1h", left, "lightgbm")
    (folder / "1h" / "model.pkl").rename(folder / "1h" / "model.lgb")
    with pytest.raises(ModelError, match="LightGBM model is damaged"):
        read_bundle(folder)
    assert not left.exists()


def _code(folder: Path) -> None:
    (folder / "1h" / "code").mkdir()
    (folder / "1h" / "code" / "lightgbm.py").write_text("raise SystemExit")


def _large(folder: Path) -> None:
    os.truncate(folder / "1h" / "model.lgb", MAX_FILE_BYTES + 1)


def _other_trees(folder: Path) -> None:
    model = folder / "1h" / "model.lgb"
    model.write_text(model.read_text().replace("shrinkage=1", "shrinkage=2"))


def _other_words(folder: Path) -> None:
    about = folder / "3h" / "MLmodel"
    about.write_text(about.read_text() + "\n# changed\n")


def _short(folder: Path) -> None:
    model = folder / "1h" / "model.lgb"
    model.write_text(model.read_text()[:600])


CHANGES = {
    "code": (_code, "1h/code"),
    "large": (_large, "at most"),
    "trees": (_other_trees, NOT_TRAINED),
    "words": (_other_words, NOT_TRAINED),
    "short": (_short, NOT_TRAINED),
}


def champion_of(store: Tables, at: Registry) -> ServedModels:
    return at.load("emea", ["champion"], named(store, region="emea").get("champion"))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_champion_is_refused(own: Mlflow, change: str, tmp_path: Path) -> None:
    at, store = registry(own), Tables(str(tmp_path / "tables"))
    serve(store, own, 1, champion=SECOND)
    assert champion_of(store, at).version == SECOND
    do, why = CHANGES[change]
    do(bundle_of(own, SECOND))
    with pytest.raises(ModelError, match=why) as told:
        champion_of(store, at)
    assert "\n" not in str(told.value)


def test_files_and_digest_changed_together_are_refused(own: Mlflow, tmp_path: Path) -> None:
    """Who reaches MLflow's database can exchange both; our record has the digest of what was promoted."""
    at, store = registry(own), Tables(str(tmp_path / "tables"))
    serve(store, own, 1, champion=SECOND, steward=SECOND)
    assert champion_of(store, at).version == SECOND
    folder = bundle_of(own, SECOND)
    _other_trees(folder)
    with sqlite3.connect(own.uri.removeprefix("sqlite:///")) as database:
        exchange = "UPDATE params SET value = ? WHERE key = 'bundle_sha256'"
        assert database.execute(exchange, (bundle_digest(folder),)).rowcount
    database.close()
    at.load_version(SECOND)  # MLflow alone sees nothing wrong
    with pytest.raises(ModelError, match=NOT_TRAINED):
        champion_of(store, at)
    with pytest.raises(ModelError, match=NOT_TRAINED):
        load_order(at, "emea", 10**9, named=named(store, region="emea").get("steward"))


def test_a_changed_challenger_is_not_promoted(own: Mlflow, tmp_path: Path) -> None:
    store = Tables(str(tmp_path / "tables"))
    evaluate(store, SECOND, 40 * DAY, saving=300, champion=None)
    _other_trees(bundle_of(own, SECOND))
    with pytest.raises(ModelError, match=NOT_TRAINED):
        promote.decide(store, region="emea", mlflow=own, max_age_s=90 * DAY, now_s=1, min_days=21)
    assert registry(own).version_at("emea", "champion") is None


def test_a_champion_without_a_digest_serves_after_the_next_promote(own: Mlflow, tmp_path: Path) -> None:
    store, at = Tables(str(tmp_path / "tables")), registry(own)
    serve(store, own, 0, champion=FIRST)
    (row,) = store.read_arrow(PROMOTIONS).to_pylist()
    key = tuple(row[name] for name in PROMOTIONS.partition)
    store.replace_rows(PROMOTIONS, [row | {"champion_digest": None}], key)  # as an older cachecast wrote it
    without_digest(own)
    with pytest.raises(ModelError, match="cachecast promote"):
        champion_of(store, at)
    evaluate(store, SECOND, 40 * DAY, saving=0, champion=FIRST)
    found = promote.decide(store, region="emea", mlflow=own, max_age_s=90 * DAY, now_s=1, min_days=21)
    assert (found.action, found.champion) == ("refuse", FIRST)
    assert champion_of(store, at).version == FIRST
    with pytest.raises(ModelError, match="train again"):
        at.load_version(SECOND)
    evaluate(store, SECOND, 41 * DAY, saving=300, champion=FIRST)
    promote.decide(store, region="emea", mlflow=own, max_age_s=90 * DAY, now_s=2, min_days=21)
    assert champion_of(store, at).version == SECOND


def test_a_rollback_to_changed_files_is_told(own: Mlflow, tmp_path: Path) -> None:
    store, at = Tables(str(tmp_path / "tables")), registry(own)
    for now_s, version in enumerate((FIRST, SECOND), start=1):
        evaluate(store, version, (40 + now_s) * DAY, saving=300, champion=FIRST if now_s > 1 else None)
        promote.decide(store, region="emea", mlflow=own, max_age_s=90 * DAY, now_s=now_s, min_days=21)
    _other_trees(bundle_of(own, FIRST))
    with pytest.raises(ModelError, match=NOT_TRAINED):
        promote.take_back(store, region="emea", mlflow=own, now_s=3)
    assert at.version_at("emea", "champion") == FIRST
    assert promote.take_back(store, region="emea", mlflow=own, now_s=4).champion is None


@pytest.mark.service
@pytest.mark.usefixtures("trained")  # the first version of the server is that one, for other tests
def test_no_predictions_by_files_that_a_server_was_given_later(
    server: Mlflow, own_tables: Tables, tmp_path: Path
) -> None:
    small = Knobs(spool=str(tmp_path / "spool"), learners=("lightgbm", "hist_boosting"), trees=5)
    version = fit(own_tables, server, small, compare=True).version
    client = mlflow.tracking.MlflowClient(server.uri)
    run_id = str(client.get_model_version(*version.split("/")).run_id)
    assert registry(server).load_version(version).load().fitted

    def predictions() -> None:
        at = [(N_AS_OFS - 1) * HOUR]
        region, age = {"region": "emea", "spec": SPEC}, {"max_age_s": 1000 * HOUR}
        predict.score(LOCAL, own_tables, as_ofs=at, mlflow=server, **region, **age)  # type: ignore[arg-type]

    (tmp_path / BUNDLE_FILE).write_text("{}")
    client.log_artifact(run_id, str(tmp_path / BUNDLE_FILE), "bundle")
    with pytest.raises(ModelError, match=rf"no plan: caches run plain LRU.*{NOT_TRAINED}"):
        predictions()
    (tmp_path / "extra.py").write_text("raise SystemExit")
    client.log_artifact(run_id, str(tmp_path / "extra.py"), "bundle/1h/code")
    with pytest.raises(ModelError, match=r"no plan: caches run plain LRU.*1h/code"):
        predictions()
