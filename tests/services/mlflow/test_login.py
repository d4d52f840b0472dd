"""MLflow with a login, as the shipped unit starts it: nothing without one, and readers change nothing."""

import configparser
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import mlflow_server
import pytest
from daemons import needed
from planted_region import MLFLOW_WARNINGS

from features.common.errors import ServiceError
from models.serving.mlflow_session import mlflow
from models.serving.registry import Registry

pytestmark = [*MLFLOW_WARNINGS, pytest.mark.service]
DEPLOY = Path(__file__).parents[3] / "conf" / "deploy"
OWNER, READER = ("cachecast", "the-owners-secret-1"), ("reader", "the-readers-secret-2")
MODEL = "cachecast-emea"


class Asked(NamedTuple):
    """The server, and its folder."""

    url: str
    folder: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """A server with the options of the unit, its own user, and one who may read."""
    folder = tmp_path_factory.mktemp("login")
    settings = configparser.ConfigParser()
    settings.read(DEPLOY / "mlflow-auth.ini")
    settings["mlflow"]["database_uri"] = f"sqlite:///{folder}/auth.db"
    with (folder / "auth.ini").open("w") as file:
        settings.write(file)
    unit = (DEPLOY / "systemd" / "cachecast-mlflow.service").read_text()
    words = re.findall(r"--app-name \S+", unit)[0].split()
    env = {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_AUTH_ADMIN_PASSWORD": OWNER[1],
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "k" * 32,
    }
    for url in needed("MLflow with a login", mlflow_server.running(folder, *words, **env)):
        answer = httpx.post(
            f"{url}/api/2.0/mlflow/users/create",
            json={"username": READER[0], "password": READER[1]},
            auth=OWNER,
            timeout=60,
        )
        assert answer.is_success, answer.text
        yield Asked(url, folder)


def login(monkeypatch: pytest.MonkeyPatch, user: tuple[str, str]) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", user[0])
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", user[1])


def test_without_a_login_nothing_is_read_or_written(server: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(server.folder))
    for path in ("registered-models/search", "experiments/search?max_results=1"):
        assert httpx.get(f"{server.url}/api/2.0/mlflow/{path}", timeout=60).status_code == 401
    artifact = f"{server.url}/api/2.0/mlflow-artifacts/artifacts/0/run/artifacts/bundle.json"
    put = httpx.put(artifact, content=b"x", timeout=60)
    assert put.status_code == 401
    with pytest.raises(ServiceError, match="401"):
        Registry(server.url, "", "cachecast")
    login(monkeypatch, (OWNER[0], "another-secret-3"))
    with pytest.raises(ServiceError, match="401") as caught:
        Registry(server.url, "", "cachecast")
    assert "another-secret-3" not in str(caught.value)


def test_a_reader_reads_a_model_and_moves_nothing(server: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    login(monkeypatch, OWNER)
    known = Registry(server.url, "", "cachecast")
    client = mlflow.tracking.MlflowClient(server.url, registry_uri=server.url)
    experiment = client.get_experiment_by_name("cachecast")
    run = client.create_run(experiment.experiment_id)
    client.log_text(run.info.run_id, "a bundle", "bundle/bundle.json")
    client.create_registered_model(MODEL)
    client.create_model_version(MODEL, f"runs:/{run.info.run_id}/bundle", run_id=run.info.run_id)
    known.point("champion", f"{MODEL}/1")

    login(monkeypatch, READER)
    known = Registry(server.url, "", "cachecast")
    assert known.version_at("emea", "champion") == f"{MODEL}/1"
    with known._bundle(f"{MODEL}/1") as folder:
        assert (folder / "bundle.json").read_text() == "a bundle"
    with pytest.raises(ServiceError, match="403"):
        known.point("champion", f"{MODEL}/1")
    with pytest.raises(ServiceError, match="403"):
        known.unpoint("emea", "champion")
    log = (server.folder / "server.log").read_text()
    assert not any(secret in log for _, secret in (OWNER, READER))
