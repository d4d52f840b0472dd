"""Trainings that MLflow was away for, uploads that broke off, and several at once."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import faulty_proxy
import pytest
from daemons import free_ports
from planted_region import DAY, MLFLOW_WARNINGS, TRAIN_UNTIL_S, Knobs, Mlflow, away, fit, planted, registry

from features.common.errors import ConflictError, InputError, ServiceError
from features.results import MODEL_METRICS, TRAININGS
from jobs.ground.store.tables import Tables
from jobs.loop.train import deliver
from jobs.loop.trainings import keep_training
from models.serving import spool
from models.serving.mlflow_session import MlflowClient
from models.serving.registry import Registry
from models.serving.runs import ID_TAG
from models.serving.spool import Training, upload

pytestmark = [pytest.mark.long, *MLFLOW_WARNINGS]
ROOT = Path(__file__).parents[3]


@dataclasses.dataclass(frozen=True)
class Site:
    """A spool with a training of a region of its own, and the tables."""

    spool: Path
    tables: Tables
    region: str

    @property
    def training(self) -> Training:
        (training,) = spool.waiting(self.spool)
        return training

    def resume(self, at: Mlflow) -> list[deliver.TrainingAnswer]:
        return deliver.resume(self.tables, spool=str(self.spool), mlflow=at)


@pytest.fixture(scope="module")
def spooled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tables, and the spool of a training that found no server."""
    folder = tmp_path_factory.mktemp("spooled")
    tables = planted(folder / "tables")
    with pytest.raises(ServiceError, match="cachecast train --resume"):
        fit(tables, away(patience=1), Knobs(spool=str(folder / "spool"), trees=5, order=False))
    assert tables.read_arrow(MODEL_METRICS).num_rows
    return folder


@pytest.fixture
def site(spooled: Path, tmp_path: Path) -> Site:
    shutil.copytree(spooled, tmp_path, dirs_exist_ok=True)
    (old,) = (tmp_path / "spool").glob("*/")
    region = f"r{abs(hash(str(tmp_path))) % 10**9}"
    old.with_suffix(".lock").unlink()
    folder = old.rename(old.with_name(f"{int(region[1:]):032x}"))
    about = json.loads((folder / "training.json").read_text())
    (folder / "training.json").write_text(json.dumps(about | {"region": region}))
    return Site(tmp_path / "spool", Tables(str(tmp_path / "tables")), region)


def states(at: Mlflow, training_id: str) -> list[str]:
    """The states of the runs that were written with a training."""
    client = MlflowClient(at.uri)
    experiment = client.get_experiment_by_name(at.experiment)
    runs = client.search_runs([experiment.experiment_id], f"tags.`{ID_TAG}` = '{training_id}'")
    return [run.info.status for run in runs]


@pytest.mark.service
def test_a_training_waits_for_a_server_that_is_away(server: Mlflow, site: Site) -> None:
    (answer,) = site.resume(server)
    assert (answer.version, answer.is_candidate) == (f"cachecast-{site.region}/1", True)
    assert registry(server).version_at(site.region, "candidate") == answer.version
    assert {
        row["run_id"]
        for row in site.tables.read_arrow(MODEL_METRICS).to_pylist()
        if row["region"] == site.region
    } == {row.run_id for row in answer.models}
    assert not list(site.spool.iterdir())
    with pytest.raises(InputError, match="no training waits"):
        site.resume(server)


@pytest.mark.service
def test_an_upload_that_broke_off_leaves_nothing_twice(server: Mlflow, site: Site) -> None:
    training = site.training
    with pytest.raises(ServiceError):  # MLflow refuses the name, after it has taken the runs
        upload(
            dataclasses.replace(training, region="no:name"),
            uri=server.uri,
            artifacts=server.artifacts,
            experiment=server.experiment,
        )
    answer = deliver.deliver(site.tables, training, server)
    assert states(server, training.id) == ["FINISHED"] * (1 + len(answer.models))


@pytest.mark.service
def test_what_a_killed_upload_left_is_mended_by_the_next(server: Mlflow, site: Site, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(
        f'[training]\nspool = "{site.spool}"\n[mlflow]\nexperiment = "{server.experiment}"\n'
    )
    command = [sys.executable, "-m", "jobs", "train", "--resume", "--json", "--conf", "site.toml"]
    command += ["--tables", site.tables.root]
    training = site.training
    with faulty_proxy.before(server.uri) as proxy:
        given = {
            "cwd": tmp_path,
            "env": os.environ | {"PYTHONPATH": str(ROOT), "CACHECAST_MLFLOW__URI": proxy.url},
        }
        killed = subprocess.Popen(command, **given, stdout=subprocess.PIPE)  # type: ignore[call-overload]
        until(lambda: sum(path.endswith("runs/create") for path in proxy.paths) > 3)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert {"RUNNING", "FINISHED"} <= set(states(server, training.id))
        done = subprocess.run(command, **given, capture_output=True, check=True)  # type: ignore[call-overload]
    (answer,) = json.loads(done.stdout)
    assert answer["is_candidate"]
    assert states(server, training.id) == ["FINISHED"] * (1 + len(answer["models"]))
    client = MlflowClient(server.uri, registry_uri=server.uri)
    assert len(client.search_model_versions(f"name = 'cachecast-{site.region}'")) == 1


def until(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.service
def test_two_that_resume_at_once_upload_once(
    server: Mlflow, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_uploading, may_go_on = threading.Event(), threading.Event()

    def slow(*args: object, **options: object) -> object:
        is_uploading.set()
        may_go_on.wait(60)
        return upload(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(deliver, "upload", slow)
    late = site.training
    first = threading.Thread(target=site.resume, args=(server,))
    first.start()
    is_uploading.wait(60)
    with pytest.raises(ConflictError, match="another delivery of a training"):
        site.resume(server)
    may_go_on.set()
    first.join()
    with pytest.raises(ConflictError, match="has delivered the training"):
        deliver.deliver(site.tables, late, server)
    assert registry(server).version_at(site.region, "candidate") == f"cachecast-{site.region}/1"
    assert not list(site.spool.iterdir())


@pytest.mark.service
def test_a_registered_model_that_another_made_just_now_is_used(
    server: Mlflow, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    MlflowClient(server.uri, registry_uri=server.uri).create_registered_model(f"cachecast-{site.region}")
    asked, real = itertools.count(), MlflowClient.search_registered_models

    def before_it_was_made(client: MlflowClient, named: str) -> object:
        return real(client, named) if next(asked) else []

    monkeypatch.setattr(MlflowClient, "search_registered_models", before_it_was_made)
    (answer,) = site.resume(server.model_copy(update={"patience": 60}))
    assert (answer.version, answer.is_candidate) == (f"cachecast-{site.region}/1", True)


@pytest.mark.service
def test_a_training_that_waited_too_long_is_no_candidate(server: Mlflow, site: Site) -> None:
    later = {"version": f"cachecast-{site.region}/9", "digest": "d", "until_s": TRAIN_UNTIL_S + DAY}
    keep_training(site.tables, region=site.region, **later)  # type: ignore[arg-type]
    (answer,) = site.resume(server)
    assert (answer.version, answer.is_candidate) == (f"cachecast-{site.region}/1", False)
    assert registry(server).version_at(site.region, "candidate") is None


@pytest.mark.service
def test_a_version_becomes_the_candidate_after_its_row(
    server: Mlflow, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object, **_options: object) -> None:
        rows = site.tables.read_arrow(TRAININGS).to_pylist()
        assert [row["model_version"] for row in rows if row["region"] == site.region]
        raise ServiceError("MLflow is gone")

    monkeypatch.setattr(Registry, "point", fails)
    with pytest.raises(ServiceError, match="cachecast train --resume"):
        site.resume(server)
    monkeypatch.undo()
    (answer,) = site.resume(server)
    assert registry(server).version_at(site.region, "candidate") == answer.version


def test_what_a_killed_training_left_in_the_spool_goes_after_a_week(tmp_path: Path) -> None:
    killed, at_work, other = (tmp_path / name for name in (f".{'a' * 32}", f".{'b' * 32}", ".others"))
    for folder in (killed, at_work, other):
        (folder / "runs").mkdir(parents=True)
    for folder, days in ((killed, 8), (at_work, 6), (other, 8)):
        os.utime(folder, (time.time() - days * DAY,) * 2)
    spool.Spool(tmp_path).discard()
    assert sorted(tmp_path.iterdir()) == sorted([at_work, other])


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_a_server_that_is_away_is_named_soon(host: str) -> None:
    start = time.monotonic()
    with pytest.raises(ServiceError, match=host):
        Registry(f"http://{host}:{free_ports(1)[0]}", "unused", "cachecast-test")
    assert time.monotonic() - start < 12
