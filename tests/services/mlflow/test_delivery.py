"""Trainings that MLflow was away for, and uploads that broke off."""

import dataclasses
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from planted_region import DAY, MLFLOW_WARNINGS, Knobs, Mlflow, away, fit, planted, registry

from features.common.errors import ServiceError
from features.results import MODEL_METRICS, TRAININGS
from jobs.ground.store.tables import Tables
from jobs.loop.train import training
from jobs.loop.train.training import TrainingAnswer, deliver
from models.serving import spool
from models.serving.mlflow_session import MlflowClient
from models.serving.registry import Registry
from models.serving.runs import ID_TAG
from models.serving.spool import Training, upload
from models.training.training import Trained

pytestmark = [pytest.mark.long, *MLFLOW_WARNINGS]


@dataclasses.dataclass(frozen=True)
class Site:
    """The tables, and a training of a region of its own that MLflow does not have."""

    tables: Tables
    training: Training
    trained: Trained

    @property
    def region(self) -> str:
        return self.training.region

    def deliver(self, at: Mlflow) -> TrainingAnswer:
        return deliver(self.tables, self.training, self.trained, at)


@pytest.fixture(scope="module")
def undelivered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Training, Trained, Tables]:
    """A training that found no server, kept where the error says, and the tables."""
    folder = tmp_path_factory.mktemp("undelivered")
    tables = planted(folder / "tables")
    arguments: list[Any] = []

    def deliver_noted(of: Tables, done: Training, trained: Trained, at: Mlflow) -> TrainingAnswer:
        arguments.extend((done, trained))
        return deliver(of, done, trained, at)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(training, "deliver", deliver_noted)
        with pytest.raises(ServiceError, match=r"are kept in .*train again") as error:
            fit(tables, away(patience=1), Knobs(spool=str(folder / "spool"), trees=5, order=False))
    assert str(arguments[0].folder) in str(error.value)
    assert (arguments[0].folder / "bundle" / "bundle.json").is_file()
    assert tables.read_arrow(MODEL_METRICS)["run_id"].null_count == tables.read_arrow(MODEL_METRICS).num_rows
    return arguments[0], arguments[1], tables


@pytest.fixture
def site(undelivered: tuple[Training, Trained, Tables], tmp_path: Path) -> Site:
    done, trained, tables = undelivered
    shutil.copytree(tables.root, tmp_path / "tables")
    region = f"r{abs(hash(str(tmp_path))) % 10**9}"
    folder = Path(shutil.copytree(done.folder, tmp_path / "spool" / f"{int(region[1:]):032x}"))
    bundle = dataclasses.replace(trained.bundle, region=region)
    return Site(
        Tables(str(tmp_path / "tables")),
        dataclasses.replace(done, folder=folder, region=region),
        dataclasses.replace(trained, bundle=bundle),
    )


def states(at: Mlflow, training_id: str) -> list[str]:
    """The states of the runs that were written with a training."""
    client = MlflowClient(at.uri)
    experiment = client.get_experiment_by_name(at.experiment)
    runs = client.search_runs([experiment.experiment_id], f"tags.`{ID_TAG}` = '{training_id}'")
    return [run.info.status for run in runs]


@pytest.mark.service
def test_a_training_that_mlflow_has_is_the_candidate_and_leaves_no_folder(server: Mlflow, site: Site) -> None:
    answer = site.deliver(server)
    assert answer.version == f"cachecast-{site.region}/1"
    assert registry(server).version_at(site.region, "candidate") == answer.version
    rows = site.tables.read_arrow(MODEL_METRICS).to_pylist()
    named = {row["run_id"] for row in rows if row["region"] == site.region}
    assert named == {row.run_id for row in answer.models}
    assert not site.training.folder.exists()


@pytest.mark.service
def test_an_upload_that_broke_off_leaves_nothing_twice(server: Mlflow, site: Site) -> None:
    with pytest.raises(ServiceError):  # MLflow refuses the name, after it has taken the runs
        upload(
            dataclasses.replace(site.training, region="no:name"),
            uri=server.uri,
            artifacts=server.artifacts,
            experiment=server.experiment,
        )
    answer = site.deliver(server)
    assert states(server, site.training.id) == ["FINISHED"] * (1 + len(answer.models))


@pytest.mark.service
def test_a_version_becomes_the_candidate_after_its_row(
    server: Mlflow, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object, **_options: object) -> None:
        rows = site.tables.read_arrow(TRAININGS).to_pylist()
        assert [row["model_version"] for row in rows if row["region"] == site.region]
        raise ServiceError("MLflow is gone")

    monkeypatch.setattr(Registry, "point", fails)
    with pytest.raises(ServiceError, match="MLflow is gone; the trained models are kept in"):
        site.deliver(server)
    assert site.training.folder.is_dir()


def test_what_a_killed_training_left_in_the_spool_and_what_mlflow_refused_goes_after_a_week(
    tmp_path: Path,
) -> None:
    names = (f".{'a' * 32}", f".{'b' * 32}", "c" * 32, ".others")
    killed, at_work, refused, other = (tmp_path / name for name in names)
    for folder, days in ((killed, 8), (at_work, 6), (refused, 8), (other, 8)):
        (folder / "runs").mkdir(parents=True)
        os.utime(folder, (time.time() - days * DAY,) * 2)
    spool.Spool(tmp_path).discard()
    assert sorted(tmp_path.iterdir()) == sorted([at_work, other])


def test_a_training_that_finishes_while_another_begins_does_not_end_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, at_work = Path.iterdir, tmp_path / f".{'b' * 32}"
    at_work.mkdir()

    def renamed_meanwhile(folder: Path) -> list[Path]:
        paths = list(listed(folder))
        at_work.rename(tmp_path / ("b" * 32))
        return paths

    monkeypatch.setattr(Path, "iterdir", renamed_meanwhile)
    spool.Spool(tmp_path).discard()
    assert [path.name for path in listed(tmp_path)] == ["b" * 32]


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_a_server_that_is_away_is_named_soon(host: str) -> None:
    start = time.monotonic()
    with pytest.raises(ServiceError, match=host):
        Registry(f"http://{host}:9", "unused", "cachecast-test")
    assert time.monotonic() - start < 60
