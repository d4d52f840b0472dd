"""The doctor: what answers is ok, what is not used is off, what should answer and does not is bad."""

import json
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import http_answers
import pytest
from certificates import certificate
from folder_site import folder_site

from jobs.ground.settings.tree import Settings
from jobs.operator.operate import doctor
from jobs.operator.operate.asking import Check
from jobs.operator.operate.asking_mlflow import mlflow
from prefetch.xcache.rolling import Heartbeat

HEALTHY = {
    part: {"status": "healthy"} for part in ("metadatabase", "scheduler", "dag_processor", "triggerer")
}


@contextmanager
def answering(reply: object) -> Iterator[str]:
    """The URL of a server that gives every request the JSON `reply`, or these bytes."""

    class Replying(http_answers.Answers):
        def do_GET(self) -> None:
            self.say(200, reply if isinstance(reply, bytes) else json.dumps(reply).encode())

    with http_answers.answering(Replying) as url:
        yield url


def checked(tmp_path: Path, part: str, **env: str) -> Check:
    """The doctor's line for `part`."""
    checks = doctor.run(Settings.load(tables=str(tmp_path / "tables"), env=env))
    return next(check for check in checks if check.part == part)


@pytest.mark.parametrize(
    ("reply", "state", "words"),
    [
        ({"status": "ok", "servers_alive": 3}, "ok", "3 caches are alive"),
        ({"status": "degraded", "servers_alive": 0, "database": "unavailable"}, "bad", "unavailable"),
        ({"name": "another program"}, "off", "not as this service"),
        (b"[" * 100_000, "off", "not as this service"),
        (b'{"status": "ok", "servers_alive": "\\ud800"}', "off", "not as this service"),
        ({"status": "degraded", "servers_alive": 0, "database": "x" * 10**5}, "bad", "is degraded: xxx"),
    ],
)
def test_the_placement_service_is_asked(tmp_path: Path, reply: object, state: str, words: str) -> None:
    with answering(reply) as url:
        check = checked(tmp_path, "placement", CACHECAST_SERVE__PORT=url.rpartition(":")[2])
    assert (check.configured, check.state) == (url, state)
    assert words in check.detail
    assert len(check.detail) <= 300


@pytest.mark.parametrize("login", ["TOKEN", "FEDERATION_TOKENS"])
def test_a_placement_service_that_is_set_up_must_answer(tmp_path: Path, login: str) -> None:
    unused = {"CACHECAST_SERVE__PORT": "9"}
    assert checked(tmp_path, "placement", **unused).state == "off"
    missing = checked(tmp_path, "placement", **unused, **{f"CACHECAST_SERVE__{login}": "0123456789abcdef"})
    assert missing.state == "bad"
    assert "cachecast serve" in missing.detail


@pytest.mark.parametrize("is_file", [True, False])
def test_airflow_must_run_as_many_tasks_at_once_as_there_are_caches(tmp_path: Path, is_file: bool) -> None:
    """Else caches that hang hold up others, though each has a slot in the pools."""
    env = {"AIRFLOW_HOME": str(tmp_path)} | ({} if is_file else {"AIRFLOW__CORE__PARALLELISM": "4"})
    (tmp_path / "airflow.cfg").write_text(f"[core]\nparallelism = {4 if is_file else 99}\n")
    with answering(HEALTHY) as url:
        few = doctor.airflow(url, n_caches=5, env=env)
        assert few.state == "bad" and "parallelism = 4 is less than the 5 caches" in few.detail
        assert doctor.airflow(url, n_caches=4, env=env) == doctor.airflow(url, env=env)
        (tmp_path / "airflow.cfg").write_bytes(b"\xff[core")
        elsewhere = doctor.airflow(url, n_caches=5, env={"AIRFLOW_HOME": str(tmp_path)})
    assert elsewhere.state == "ok"


@pytest.mark.parametrize(
    ("reply", "state", "words"),
    [
        (HEALTHY, "ok", "healthy"),
        (HEALTHY | {"scheduler": {"status": "unhealthy"}, "triggerer": None}, "bad", "scheduler, triggerer"),
        ([], "bad", "not as this service"),
    ],
)
def test_airflow_is_asked_where_it_is_configured(
    tmp_path: Path, reply: object, state: str, words: str
) -> None:
    assert checked(tmp_path, "airflow").state == "off"
    with answering(reply) as url:
        check = checked(tmp_path, "airflow", CACHECAST_AIRFLOW__URL=url)
    assert check.state == state
    assert words in check.detail


def test_a_collector_is_seen_by_its_heartbeat(tmp_path: Path) -> None:
    assert checked(tmp_path, "collector").state == "off"
    site, folder = tmp_path / "site.toml", tmp_path / "captures"
    server = 'name = "xc1"\nkind = "xcache"\nurl = "root://127.0.0.1:9"\ncapacity = 1\n'
    site.write_text(f'[caches.xc1]\n{server}gstream = "{folder}"\n')
    variables = {"CACHECAST_CONF": str(site)}
    assert "no such folder" in checked(tmp_path, "collector", **variables).detail
    folder.mkdir()
    idle = checked(tmp_path, "collector", **variables)
    assert (idle.state, f"--out {folder}" in idle.detail) == ("bad", True)
    Heartbeat(0, 0, False).write(folder)
    assert checked(tmp_path, "collector", **variables).state == "ok"
    Heartbeat(0, 5, True).write(folder)
    assert "fill their quota" in checked(tmp_path, "collector", **variables).detail
    os.utime(folder / ".heartbeat", (1, 1))
    assert "has hung" in checked(tmp_path, "collector", **variables).detail


def test_a_directory_cache_needs_its_folder_and_its_origin(tmp_path: Path) -> None:
    origin, variables = tmp_path / "origin", {"CACHECAST_CONF": str(folder_site(tmp_path, cache="d"))}
    (tmp_path / "cache").mkdir()
    assert str(origin) in checked(tmp_path, "cache d", **variables).detail
    origin.mkdir()
    assert checked(tmp_path, "cache d", **variables).state == "ok"


def test_each_cache_is_asked_by_its_own_login(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url, site = f"roots://127.0.0.1:{server.getsockname()[1]}", tmp_path / "site.toml"
        sections = []
        for name in ("xc1", "xc2"):
            (keytab := tmp_path / f"{name}.keytab").touch(mode=0o600)
            lines = f'name = "{name}"\nkind = "xcache"\nurl = "{url}"\ncapacity = 1\n'
            files = f'keytab = "{keytab}"\ntoken = "{tmp_path / "missing"}"\n'
            sections.append(f"[caches.{name}]\n{lines}{files}")
        site.write_text("".join(sections))
        check = checked(tmp_path, "cache xc2", CACHECAST_CONF=str(site))
    assert "logs in by" not in check.detail and "cannot read token file" in check.detail


def test_what_no_command_could_use_is_no_good_cache(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url, site = f"root://127.0.0.1:{server.getsockname()[1]}/", tmp_path / "site.toml"
        site.write_text(f'[caches.x]\nname = "x"\nkind = "xcache"\nurl = "{url}"\ncapacity = 1\n')
        check = checked(tmp_path, "cache x", CACHECAST_CONF=str(site))
    assert check.state == "bad" and "without a path" in check.detail


def test_a_cache_s_host_needs_neither_spark_nor_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "has_spark", lambda: False)
    settings = Settings.load(tables=str(tmp_path / "tables"), env={"CACHECAST_SERVE__PORT": "9"})
    checks = list(doctor.run(settings))
    assert checks and not [check for check in checks if check.state == "bad" or check.part == "java"]


def test_a_slip_in_the_name_of_a_host_is_a_line_of_the_table(tmp_path: Path) -> None:
    check = checked(tmp_path, "spark", CACHECAST_SPARK__MASTER="spark://master..example.org:7077")
    assert (check.state, check.detail) == ("bad", "'master..example.org' is no name of a host")


@pytest.mark.parametrize(
    ("code", "body", "state"),
    [
        (500, b"Detected out-of-date database schema (found version a), postgresql://u:hush@h/db", "bad"),
        (401, b"log in", "ok"),
        (200, b"{}", "ok"),
    ],
)
def test_a_server_that_cannot_read_its_database_is_bad(code: int, body: bytes, state: str) -> None:
    class Answers(http_answers.Answers):
        def do_GET(self) -> None:
            self.say(*((200, b"OK") if self.path == "/health" else (code, body)))

    with http_answers.answering(Answers) as url:
        check = mlflow(url.replace("http://", "http://ada:hush@"))
    assert check.state == state
    assert ("mlflow db upgrade DATABASE_URI" in check.detail) == (state == "bad")
    assert "hush" not in f"{check.detail}{check.configured}"


TRUST = ("MLFLOW_TRACKING_SERVER_CERT_PATH", "REQUESTS_CA_BUNDLE", "MLFLOW_TRACKING_INSECURE_TLS")


@pytest.mark.parametrize("trust", TRUST)
def test_mlflow_is_believed_as_by_its_own_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trust: str
) -> None:
    class Answers(http_answers.Answers):
        def do_GET(self) -> None:
            self.say(200)

    pem = certificate(tmp_path)
    monkeypatch.setenv(trust, "true" if "INSECURE" in trust else str(pem))
    with http_answers.answering(Answers, pem=pem) as url:
        assert mlflow(url).state == "bad"  # it asks for a client's certificate
        monkeypatch.setenv("MLFLOW_TRACKING_CLIENT_CERT_PATH", str(pem))
        assert mlflow(url).state == "ok"
        monkeypatch.setenv("MLFLOW_TRACKING_CLIENT_CERT_PATH", str(tmp_path / "gone.pem"))
        assert "no certificate can be read" in mlflow(url).detail


@pytest.mark.parametrize("is_set", [True, False])
def test_rucio_is_believed_as_by_its_own_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_set: bool
) -> None:
    """Grids have authorities of their own, which no system knows."""

    class Answers(http_answers.Answers):
        def do_GET(self) -> None:
            self.say(200 if self.path == "/ping" else 404)

    pem = certificate(tmp_path)
    monkeypatch.setenv("X509_CERT_DIR", "" if is_set else str(pem))
    with http_answers.answering(Answers, pem=pem, shown_by_clients=False) as url:
        site = {"CACHECAST_RUCIO__URL": url}
        trust = {"CACHECAST_RUCIO__CA_CERT": str(pem)} if is_set else {}
        assert checked(tmp_path, "rucio", **site, **trust).state == "ok"
        monkeypatch.setenv("X509_CERT_DIR", "")
        assert checked(tmp_path, "rucio", **site).state == "bad"
        gone = checked(tmp_path, "rucio", **site, CACHECAST_RUCIO__CA_CERT=str(tmp_path / "gone.pem"))
    assert "no certificate can be read at" in gone.detail


def test_a_server_that_is_down_is_waited_for_once() -> None:
    asked = []

    class Answers(http_answers.Answers):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.say(503)

    with http_answers.answering(Answers) as url:
        assert mlflow(url).state == "bad"
    assert asked == ["/health"]


@pytest.mark.parametrize(
    ("revision", "state", "words"),
    [
        ("bd07f7e963c5", "bad", "mlflow db upgrade sqlite:////"),
        ("ffffffffffff", "bad", "a newer one wrote it: install that one"),
        (None, "ok", "a file on this machine"),
    ],
)
def test_the_schema_of_a_database_file_is_compared(
    tmp_path: Path, revision: str | None, state: str, words: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        database.executemany("INSERT INTO alembic_version VALUES (?)", [(revision,)] if revision else [])
        database.commit()
    check = mlflow(f"sqlite:///{tmp_path}/mlflow.db")
    assert check.state == state
    assert words in check.detail


def test_what_is_no_database_is_named_and_a_missing_one_will_be_made(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"not a database, though it is long enough to be one" * 100)
    check = mlflow(f"sqlite:///{tmp_path}/mlflow.db")
    assert (check.state, "is it a database of MLflow's?" in check.detail) == ("bad", True)
    assert mlflow(f"sqlite:///{tmp_path}/other.db").state == "ok"
    assert not (tmp_path / "other.db").exists()
