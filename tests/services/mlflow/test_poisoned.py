"""Bundles in MLflow that somebody changed: nothing of them runs, and nothing of them serves."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from planted_region import (
    DAY,
    FIRST,
    HOUR,
    MLFLOW_WARNINGS,
    N_AS_OFS,
    SECOND,
    Knobs,
    Mlflow,
    bundle_of,
    evaluate,
    fit,
    loaded,
    registry,
    serve,
    settings_of,
)

from features.common.errors import ModelError
from features.results import TRAININGS
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate import promote
from jobs.loop.train import predict
from jobs.loop.trainings import as_trained, promoted_models, trained_versions
from models.serving.bundle_files import BUNDLE_FILE, MAX_FILE_BYTES, bundle_digest, read_bundle
from models.serving.mlflow_session import mlflow
from models.serving.registry import load_order
from models.serving.versions import ModelVersion

pytestmark = MLFLOW_WARNINGS
NOT_TRAINED = "not those that were trained"


class Bomb:
    """Leaves a file when it is unpickled."""

    def __init__(self, left: Path) -> None:
        self.left = left

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.left),)


def trained_as(store: Tables, version: str) -> ModelVersion:
    return as_trained(trained_versions(store, region="emea"), version)


def test_no_pickle_is_read(own: Mlflow, store: Tables, tmp_path: Path) -> None:
    """Neither under its own name nor under that of a model: a pickle is no model text."""
    folder, left = bundle_of(own, SECOND), tmp_path / "left"
    bomb = folder / "model.pkl"
    bomb.write_bytes(pickle.dumps(Bomb(left)))
    with pytest.raises(ModelError, match=r"model\.pkl"):
        registry(own).load_version(trained_as(store, SECOND))
    assert read_bundle(folder)
    bomb.rename(folder / "1h.lgb")
    with pytest.raises(ModelError, match="LightGBM model is cut short"):
        read_bundle(folder)
    assert not left.exists()


@pytest.mark.parametrize("name", ["model.lgb", "model.skops", "MLmodel"])
def test_models_of_another_version_are_refused(own: Mlflow, store: Tables, name: str) -> None:
    folder = bundle_of(own, SECOND)
    (folder / "1h").mkdir()
    (folder / "1h.lgb").rename(folder / "1h" / name)
    with pytest.raises(ModelError, match=rf"1h/{name}.*another version of cachecast.*train, evaluate"):
        registry(own).load_version(trained_as(store, SECOND))


def _code(folder: Path) -> None:
    (folder / "code").mkdir()
    (folder / "code" / "lightgbm.py").write_text("raise SystemExit")


def _large(folder: Path) -> None:
    os.truncate(folder / "1h.lgb", MAX_FILE_BYTES + 1)


def _other_trees(folder: Path) -> None:
    model = folder / "1h.lgb"
    model.write_text(model.read_text().replace("shrinkage=1", "shrinkage=2"))


def _other_words(folder: Path) -> None:
    about = folder / BUNDLE_FILE
    about.write_text(about.read_text() + "\n")


def _short(folder: Path) -> None:
    model = folder / "1h.lgb"
    model.write_text(model.read_text()[:600])


CHANGES = {
    "code": (_code, "code/lightgbm.py"),
    "large": (_large, "at most"),
    "trees": (_other_trees, NOT_TRAINED),
    "words": (_other_words, NOT_TRAINED),
    "short": (_short, NOT_TRAINED),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_champion_is_refused(own: Mlflow, store: Tables, change: str) -> None:
    serve(store, own, 1, champion=SECOND)
    assert loaded(store, own, "champion").version == SECOND
    do, why = CHANGES[change]
    do(bundle_of(own, SECOND))
    with pytest.raises(ModelError, match=why) as caught:
        loaded(store, own, "champion")
    assert "\n" not in str(caught.value)


def test_what_mlflow_keeps_of_the_files_counts_nothing(own: Mlflow, store: Tables) -> None:
    """Whoever reaches MLflow's database can exchange all that it has; our records have what was trained."""
    at = registry(own)
    serve(store, own, 1, champion=SECOND, steward=SECOND)
    assert loaded(store, own, "champion").version == SECOND
    _other_trees(bundle_of(own, SECOND))
    at.tag(SECOND, {"bundle_sha256": bundle_digest(bundle_of(own, SECOND))})
    for alias in ("champion", "candidate"):
        with pytest.raises(ModelError, match=NOT_TRAINED):
            loaded(store, own, alias)
    with pytest.raises(ModelError, match=NOT_TRAINED):
        load_order(at, "emea", named=promoted_models(store, region="emea").get("steward"))


def test_a_version_that_was_not_trained_here_serves_nobody(own: Mlflow, store: Tables) -> None:
    """Whoever reaches MLflow can register a version, and point `candidate` to it."""
    client = mlflow.tracking.MlflowClient(own.uri, registry_uri=own.uri)
    run_id = str(client.get_model_version(*SECOND.split("/")).run_id)
    version = client.create_model_version("cachecast-emea", str(bundle_of(own, SECOND)), run_id)
    client.set_registered_model_alias("cachecast-emea", "candidate", version.version)
    with pytest.raises(ModelError, match=r"does not name cachecast-emea/3.*train, evaluate and promote"):
        loaded(store, own, "candidate")
    evaluate(store, "cachecast-emea/3", 40 * DAY, saving=300, champion=None)
    with pytest.raises(ModelError, match="does not name cachecast-emea/3"):
        promote.promote(settings_of(store, own), now_s=1)
    assert registry(own).version_at("emea", "champion") is None


def test_a_changed_challenger_is_not_promoted(own: Mlflow, store: Tables) -> None:
    evaluate(store, SECOND, 40 * DAY, saving=300, champion=None)
    _other_trees(bundle_of(own, SECOND))
    with pytest.raises(ModelError, match=NOT_TRAINED):
        promote.promote(settings_of(store, own), now_s=1)
    assert registry(own).version_at("emea", "champion") is None


def test_a_champion_that_no_training_names_gives_way_to_the_next_winner(own: Mlflow, store: Tables) -> None:
    serve(store, own, 0, champion=FIRST)
    rows = [row for row in store.read_arrow(TRAININGS).to_pylist() if row["model_version"] == SECOND]
    store.replace_rows(TRAININGS, rows, tuple(rows[0][name] for name in TRAININGS.partition))
    evaluate(store, SECOND, 40 * DAY, saving=300, champion=None)
    decision = promote.promote(settings_of(store, own), now_s=1)
    assert (decision.action, decision.champion) == ("promote", SECOND)
    assert f"the table trainings does not name the champion {FIRST}" in decision.reasons[0]
    assert loaded(store, own, "champion").version == SECOND


def test_a_rollback_to_changed_files_is_told(own: Mlflow, store: Tables) -> None:
    at = registry(own)
    for now_s, version in enumerate((FIRST, SECOND), start=1):
        evaluate(store, version, (40 + now_s) * DAY, saving=300, champion=FIRST if now_s > 1 else None)
        promote.promote(settings_of(store, own), now_s=now_s)
    _other_trees(bundle_of(own, FIRST))
    with pytest.raises(ModelError, match=NOT_TRAINED):
        promote.rollback(settings_of(store, own), now_s=3)
    assert at.version_at("emea", "champion") == FIRST
    assert promote.rollback(settings_of(store, own), now_s=4).champion is None


@pytest.mark.service
@pytest.mark.usefixtures("trained")  # the first version of the server is that one, for other tests
def test_no_predictions_by_files_that_a_server_was_given_later(
    server: Mlflow, own_tables: Tables, tmp_path: Path
) -> None:
    small = Knobs(spool=str(tmp_path / "spool"), learners=("lightgbm", "hist_boosting"), trees=5)
    version = fit(own_tables, server, small, compare=True).version
    client = mlflow.tracking.MlflowClient(server.uri)
    run_id = str(client.get_model_version(*version.split("/")).run_id)
    assert registry(server).load_version(trained_as(own_tables, version)).fitted

    def predictions() -> None:
        site = settings_of(own_tables, server, max_age_s=1000 * HOUR)
        predict.run(site, as_ofs=[(N_AS_OFS - 1) * HOUR])

    (tmp_path / BUNDLE_FILE).write_text("{}")
    client.log_artifact(run_id, str(tmp_path / BUNDLE_FILE), "bundle")
    with pytest.raises(ModelError, match=rf"no plan: caches run plain LRU.*{NOT_TRAINED}"):
        predictions()
    (tmp_path / "extra.py").write_text("raise SystemExit")
    client.log_artifact(run_id, str(tmp_path / "extra.py"), "bundle/code")
    with pytest.raises(ModelError, match=r"no plan: caches run plain LRU.*code/extra"):
        predictions()
