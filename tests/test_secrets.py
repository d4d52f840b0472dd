"""Secrets stay out of all that cachecast says or writes, also where a server sends them back (some 40 s)."""

import base64
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import http_answers
import pytest
from cachecast_main import cachecast
from commands import COMMAND
from folder_site import folder_site
from placement_server import serving, token_of

from features.common.errors import ConfigError, secrets_of, without_login, without_secrets
from jobs.ground.settings.tree import Settings
from prefetch.actions import Action
from prefetch.journal.journal import Item, Journal

ROOT = Path(__file__).parents[1]
PASSWORD = "pass-4711/word"
IN_URL = "pass-4711%2Fword"
TOKEN = "token-0815-of-the-operators"
SALT = "salt-1234-of-the-users"
KEY = "feedc0de" * 8
HOOK = "hook-9999-path"
SECRETS = (PASSWORD, IN_URL, TOKEN, SALT, KEY, HOOK)


class Echo(http_answers.Answers):
    """The nastiest server: it refuses, and its answer repeats all that it was sent."""

    status, is_healthy = 401, False

    def answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        request = {"path": self.path, "sent": dict(self.headers), "body": self.rfile.read(length).decode()}
        decoded = [base64.b64decode(v[6:]).decode() for v in self.headers.values() if v.startswith("Basic ")]
        body = json.dumps({"error_code": "DENIED", "message": f"{request} {decoded}"}).encode()
        is_health = self.path == "/health" and self.is_healthy
        self.say(
            200 if is_health else self.status,
            body,
            content_type="application/json",
            ExceptionClass="CannotAuthenticate",
            ExceptionMessage=" ".join(f"{request} {decoded}".split()),
        )

    do_GET = do_POST = do_PUT = answer


@pytest.fixture(scope="module")
def echo() -> Iterator[int]:
    """The port of an `Echo`."""
    with http_answers.answering(Echo) as url:
        yield int(url.rpartition(":")[2])


@pytest.fixture(scope="module")
def nobody() -> int:
    """A port at which nobody listens, below those that servers of other tests take."""
    return 9


def output_of(folder: Path, *words: str, **env: str) -> str:
    """All that a command says, run as an operator would; what it leaves is in `folder`.

    With a level for the log of the XRootD client, which writes from C, it is a process of its own.
    """
    variables = {
        "CACHECAST_TABLES__ROOT": str(folder / "tables"),
        "CACHECAST_METRICS__FOLDER": str(folder / "metrics"),
        "CACHECAST_PUSH__JOURNAL": str(folder / "journal.db"),
        "CACHECAST_MLFLOW__URI": f"sqlite:///{folder}/mlflow.db",
        "CACHECAST_MLFLOW__PATIENCE": "1s",
        "CACHECAST_USERS__SALT": SALT,
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    }
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | variables | env
    command = [*COMMAND, *words]
    done = (
        subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200)
        if "XRD_LOGLEVEL" in env
        else cachecast(*words, **env)
    )
    text = done.stdout + done.stderr
    assert "Traceback" not in text, text
    assert text.strip()
    return text


def leaks(folder: Path, text: str, *but: Path) -> list[str]:
    """Secrets, as they are or in base64, in `text` or in any file of `folder` that they were not put into."""
    files = [path for path in folder.rglob("*") if path.is_file() and path not in but]
    content = [text.encode(), *(path.read_bytes() for path in files)]
    coded = [base64.b64encode(f"{user}:{PASSWORD}".encode()) for user in ("ops", "")]
    return [
        form.decode() for form in (*(s.encode() for s in SECRETS), *coded) if any(form in c for c in content)
    ]


def conf(folder: Path, text: str) -> str:
    path = folder / "site.toml"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize("place", ["echo", "nobody", "no-port"])
def test_mlflow_by_a_url_with_a_password(tmp_path: Path, echo: int, nobody: int, place: str) -> None:
    port = {"echo": echo, "nobody": nobody, "no-port": "x"}[place]
    uri = f"http://ops:{IN_URL}@127.0.0.1:{port}"
    text = output_of(tmp_path, "doctor", "--json", CACHECAST_MLFLOW__URI=uri)
    training = ("predict", "--as-of", "2026-03-01T00:00:00Z")
    text += output_of(tmp_path, *training, CACHECAST_MLFLOW__URI=uri)
    text += output_of(tmp_path, "status", "--json", CACHECAST_MLFLOW__URI=uri, MLFLOW_TRACKING_TOKEN=TOKEN)
    assert "127.0.0.1" in text
    assert leaks(tmp_path, text) == []


def test_mlflow_that_sends_back_what_it_was_sent_or_is_away(
    tmp_path: Path, echo: int, nobody: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from models.serving.mlflow_session import connect  # noqa: PLC0415  takes seconds to import

    for status, is_healthy, port in ((401, 0, 0), (401, 1, 0), (500, 1, 0), (500, 1, nobody)):
        monkeypatch.setattr(Echo, "status", status)
        monkeypatch.setattr(Echo, "is_healthy", is_healthy)
        with pytest.raises(Exception, match="MLflow at") as caught:
            connect(f"http://ops:{IN_URL}@127.0.0.1:{port or echo}", str(tmp_path), "x")
        assert leaks(tmp_path, f"{caught.value!r} {caught.value.__cause__!r}") == []


@pytest.mark.parametrize("query", ["sslmode=disable", f"password={IN_URL}"])
def test_a_journal_that_is_away(tmp_path: Path, nobody: int, query: str) -> None:
    url = f"postgresql+psycopg://ops:{IN_URL}@127.0.0.1:{nobody}/db?{query}"
    site = str(folder_site(tmp_path, cache="xc"))
    words = ("push", "status", "--cache", "xc", "--json", "--conf", site)
    text = output_of(tmp_path, *words, CACHECAST_PUSH__JOURNAL=url)
    text += output_of(tmp_path, "status", "--json", "--conf", site, CACHECAST_PUSH__JOURNAL=url)
    assert "does not answer" in text
    assert leaks(tmp_path, text) == []


def test_a_queue_by_url_with_a_token(
    tmp_path: Path, echo: int, nobody: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ""
    for status, port in ((401, echo), (200, echo), (200, nobody)):
        monkeypatch.setattr(Echo, "status", status)
        url = f"http://127.0.0.1:{port}/jobs?key={TOKEN}"
        words = ("queue", "--name", "q", "--input", url, "--as-of", "2026-03-01T00:00:00Z")
        text += output_of(tmp_path, *words, CACHECAST_QUEUE__TOKEN=PASSWORD)
    assert "401" in text
    # What a server answers is kept as samples of refused entries: it is the server's to tell.
    assert leaks(tmp_path / "metrics", text) == []


def test_rucio_with_a_password(tmp_path: Path, echo: int, nobody: int) -> None:
    site = conf(
        tmp_path,
        '[caches.xc]\nname = "xc"\nkind = "xcache"\nurl = "root://127.0.0.1:1"\ncapacity = "1GB"\n'
        f'rse = "XC"\nnamespace = "{tmp_path}"\n',
    )
    text = ""
    for port in (echo, nobody):
        env = {"URL": f"http://127.0.0.1:{port}", "ACCOUNT": "root", "USERNAME": "ops", "PASSWORD": PASSWORD}
        env |= {"ATTEMPTS": "1", "TIMEOUT": "5s", "AUTH_TYPE": "userpass"}
        variables = {f"CACHECAST_RUCIO__{key}": value for key, value in env.items()}
        text += output_of(tmp_path, "rucio", "check", "--json", "--conf", site, **variables)
    assert "refuses account" in text and "does not answer" in text
    assert leaks(tmp_path, text) == []


def test_a_push_by_a_keytab(tmp_path: Path, nobody: int) -> None:
    keytab = tmp_path / "sss.keytab"
    keytab.write_text(f"0 u:nobody g:nogroup n:cachecast N:1 c:1 e:0 f:0 k:{KEY}\n")
    site = conf(
        tmp_path,
        f'[caches.xc]\nname = "xc"\nkind = "xcache"\nurl = "root://127.0.0.1:{nobody}"\ncapacity = "1GB"\n'
        f'namespace = "{tmp_path}"\nkeytab = "{keytab}"\n[push]\nattempts = 1\ntimeout = "5s"\n',
    )
    now = int(time.time())
    journal = Journal(str(tmp_path / "journal.db"))
    journal.plans.record_plan(
        [Item("1", "xc", now, "t:/f", "/f", Action.PREFETCH, 1, 1, 1, now + 3600, basis="known")],
        now_s=time.time(),
    )
    journal.close()
    text = output_of(tmp_path, "push", "resume", "--cache", "xc", "--conf", site)
    keytab.chmod(0o600)
    text += output_of(tmp_path, "push", "resume", "--cache", "xc", "--conf", site, XRD_LOGLEVEL="Debug")
    assert "chmod 0600" in text
    assert leaks(tmp_path, text, keytab) == []


def test_the_placement_service(tmp_path: Path, nobody: int) -> None:
    away = f"postgresql+psycopg://ops:{IN_URL}@127.0.0.1:{nobody}/db?password={IN_URL}"
    text = ""
    for database in (str(tmp_path / "placement.db"), away):
        with serving(database, token=TOKEN) as server:
            for bearer in (TOKEN, token_of("xc1"), f"{TOKEN}x", None):
                with server.client(bearer) as client:
                    answers = [
                        client.put("/serve", json={"client": "A", "cache_site": TOKEN}),
                        client.delete("/liveness/A/b"),
                        client.get(f"/operator/caches/{PASSWORD}"),
                        *(client.get(path) for path in ("/metrics", "/health", "/liveness")),
                    ]
                # An answer may repeat the question to who asked it; headers are not repeated.
                text += "".join(answer.text.replace(f"there is no site '{TOKEN}'", "") for answer in answers)
            assert server.process is not None
            server.process.terminate()
            server.process.wait(timeout=180)
            text += server.log.read_text()
    assert "Traceback" not in text
    assert leaks(tmp_path, text) == []
    assert token_of("xc1") not in text


@pytest.mark.parametrize(
    "env",
    [
        {"CACHECAST_AIRFLOW__WEBHOOK": f"https://host:port/{HOOK}"},
        {"CACHECAST_AIRFLOW__WEBHOOK": f"https://host/{HOOK} x"},
        {"CACHECAST_AIRFLOW__WEBHOOK": f"ftp://host/{HOOK}"},
        {"CACHECAST_TABLES__ROOT": f"s3a://ops:{IN_URL}@bucket/tables"},
        {"CACHECAST_RUCIO__URL": f"https://ops:{IN_URL}@rucio"},
        {"CACHECAST_SERVE__TOKEN": f"[{TOKEN}"},
        {"CACHECAST_USERS__SALT": f"{{{SALT}"},
        {"CACHECAST_USERS__SALTY": SALT},
        {"CACHECAST_RUCIO__PASSWORD": f'["{PASSWORD}"]'},
        {"CACHECAST_PUSH__PARALLEL": TOKEN},
    ],
    ids=lambda env: next(iter(env)),
)
def test_a_wrong_setting_does_not_show_its_value(env: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.load(env=env)
    assert not [secret for secret in SECRETS if secret in str(caught.value)]


def test_settings_in_words_show_no_secret() -> None:
    secret = {"SERVE__TOKEN": TOKEN, "RUCIO__PASSWORD": PASSWORD, "USERS__SALT": SALT, "QUEUE__TOKEN": TOKEN}
    secret["AIRFLOW__WEBHOOK"] = f"https://host/{HOOK}"
    settings = Settings.load(env={f"CACHECAST_{key}": value for key, value in secret.items()})
    assert not [
        secret for secret in SECRETS if secret in f"{settings!r} {settings} {settings.model_dump_json()}"
    ]


def test_forms_of_a_secret_are_blotted_out() -> None:
    url = f"https://ops:{IN_URL}@host:8443/path?key={TOKEN}"
    coded = base64.b64encode(f"ops:{PASSWORD}".encode()).decode()
    text = without_secrets(f"{url} {PASSWORD} {coded}", *secrets_of(url), TOKEN)
    assert not [secret for secret in (*SECRETS, coded) if secret in text]
    assert without_login(url) == "https://host:8443/path"
    assert without_secrets("as it was", "", "x") == "as it was"
    assert secrets_of("hdfs://nn:8020/tables") == ()
