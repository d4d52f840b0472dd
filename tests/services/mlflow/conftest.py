"""MLflow with trainings: a real tracking server, and SQLite."""

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import mlflow_server
import pytest
from daemons import needed
from planted_accesses import plant_accesses, small_models
from planted_region import DAY, FIRST, SECOND, TRAIN_UNTIL_S, Knobs, Mlflow, fit, planted

from features.results import TRAININGS
from jobs.ground.store.tables import Tables
from jobs.loop.train.training import TrainingAnswer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mlflow]:
    """A tracking server of the run's."""
    for url in needed("an MLflow server", mlflow_server.running(tmp_path_factory.mktemp("mlflow"))):
        yield Mlflow(uri=url)


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Features and labels with a planted signal; a test that writes there takes `own_tables`."""
    return planted(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def own_tables(tables: Tables, tmp_path: Path) -> Tables:
    """A copy of the tables as they are now."""
    return Tables(str(shutil.copytree(tables.root, tmp_path / "own_tables")))


@pytest.fixture(scope="session")
def knobs(tmp_path_factory: pytest.TempPathFactory) -> Knobs:
    """The `[training]` settings with a spool of their own."""
    return Knobs(spool=str(tmp_path_factory.mktemp("spool")))


@pytest.fixture(scope="session")
def trained(server: Mlflow, tables: Tables, knobs: Knobs) -> TrainingAnswer:
    """The first training on the server, a comparison: version 1."""
    return fit(tables, server, knobs, compare=True)


def made_once(temporary: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of this run, filled by `make` in the process that needs it first.

    One that failed is left as it is, and the next process makes another.
    """
    own = temporary.getbasetemp()
    of_run = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    done = of_run / f"{name}.made"
    with (of_run / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder = temporary.mktemp(name)
            make(folder)
            done.symlink_to(folder)
    return done.resolve()


@pytest.fixture(scope="session")
def two_versions(tmp_path_factory: pytest.TempPathFactory) -> Mlflow:
    """MLflow in SQLite with two small versions of the region's models and orders, and nothing promoted."""
    return _in(made_once(tmp_path_factory, "two_versions", _train_two))


def _in(folder: Path) -> Mlflow:
    return Mlflow(uri=f"sqlite:///{folder}/mlflow.db", artifacts=str(folder / "artifacts"))


def _train_two(folder: Path) -> None:
    tables = planted(folder / "tables")
    plant_accesses(tables, until_s=TRAIN_UNTIL_S + DAY)
    small = Knobs(spool=str(folder / "spool"), trees=5)
    with pytest.MonkeyPatch.context() as monkeypatch:
        small_models(monkeypatch)
        answers = [fit(tables, _in(folder), small) for _ in range(2)]
    assert [answer.version for answer in answers] == [FIRST, SECOND]
    assert all(str(answer.order).startswith("within ") and answer.no_order is None for answer in answers)


@pytest.fixture
def own(local: Mlflow, tmp_path: Path) -> Mlflow:
    """A copy of `two_versions` with files of the test's own to change."""
    before = Path(local.artifacts).resolve()
    shutil.copytree(before, tmp_path / "artifacts")
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        moved = (before.as_uri(), (tmp_path / "artifacts").as_uri())
        database.execute("UPDATE runs SET artifact_uri = replace(artifact_uri, ?, ?)", moved)
    database.close()
    return local


@pytest.fixture
def store(tmp_path: Path) -> Tables:
    """The tables of a test, with the trainings of both versions beside `local`."""
    return Tables(str(tmp_path / "tables"))


@pytest.fixture
def local(two_versions: Mlflow, tmp_path: Path) -> Mlflow:
    """A copy of `two_versions` to change, and of its table trainings in the folder `tables`."""
    trainings = Path(two_versions.artifacts).parent / "tables" / TRAININGS.name
    shutil.copytree(trainings, tmp_path / "tables" / TRAININGS.name)
    shutil.copy(two_versions.uri.removeprefix("sqlite:///"), tmp_path / "mlflow.db")
    return two_versions.model_copy(update={"uri": f"sqlite:///{tmp_path}/mlflow.db"})
