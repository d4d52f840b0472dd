"""What servers answer, and the doctor's checks of the placement service, collectors, Airflow and Spark."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import importlib.metadata
import importlib.util
import os
import socket
import sqlite3
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from alembic.script import ScriptDirectory
from sqlalchemy import make_url

from features.common import strict_json
from features.common.errors import InputError, bounded
from features.common.hosts import is_loopback
from features.common.redaction import without_login
from jobs.ground.settings.serve import ServeSettings
from jobs.ground.settings.tree import CacheSettings
from prefetch.xcache.rolling import check_heartbeat

TIMEOUT_S = 3.0
MAX_BYTES = 2**20
"""Longest answer that is read."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the doctor's table: `state` is ok, off (not configured) or bad."""

    part: str
    configured: str
    state: str
    detail: str


def accepts(part: str, configured: str, url: urllib.parse.SplitResult, default_port: int) -> Check:
    """Whether the host and port of `url` accept a connection."""
    try:
        host, port = url.hostname or "localhost", url.port or default_port
    except ValueError:
        return Check(part, configured, "bad", "not a URL with a port")
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S):
            return Check(part, configured, "ok", f"{host}:{port} accepts connections")
    except OSError as error:
        return Check(part, configured, "bad", f"{host}:{port}: {error.strerror or type(error).__name__}")


def answers(part: str, configured: str, url: str) -> Check:
    """Whether `url` answers with success."""
    found = fetched(url)
    if isinstance(found, str):
        return Check(part, configured, "bad", found)
    return Check(part, configured, "ok", "answers (200)")


def health(url: str, *, tls: ssl.SSLContext | None = None) -> dict[str, Any] | str:
    """The JSON object at `url`, or why there is none."""
    found = fetched(url, tls=tls)
    if isinstance(found, str):
        return found
    try:
        told = strict_json.loads(found)
    except ValueError:
        told = None
    return told if isinstance(told, dict) else "answers, but not as this service"


def fetched(url: str, *, tls: ssl.SSLContext | None = None) -> bytes | str:
    """What `url` answers, or why it does not."""
    if not url.startswith(("http://", "https://")):
        return "not an http(s) URL"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=tls) as reply:  # noqa: S310 - see above
            content: bytes = reply.read(MAX_BYTES)
            return content
    except urllib.error.HTTPError as error:
        return f"answers {error.code}{_OUT_OF_DATE if _is_out_of_date(error) else ''}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"does not answer ({type(error).__name__})"


def _is_out_of_date(error: urllib.error.HTTPError) -> bool:
    try:
        return b"out-of-date database schema" in error.read(MAX_BYTES)
    except (OSError, http.client.HTTPException):
        return False


def mlflow(uri: str) -> Check:
    """Whether MLflow answers, and can read its database."""
    if uri.startswith("sqlite:"):
        fault = _schema_fault(uri)
        return Check("mlflow", uri, "bad" if fault else "ok", fault or "a file on this machine")
    shown = without_login(uri)  # its health needs no login
    found = answers("mlflow", shown, f"{shown.rstrip('/')}/health")
    asked = fetched(f"{shown.rstrip('/')}/api/2.0/mlflow/experiments/search?max_results=1")
    # Any other refusal may be for want of a login.
    is_bad = found.state == "ok" and isinstance(asked, str) and _OUT_OF_DATE in asked
    return dataclasses.replace(found, state="bad", detail=str(asked)) if is_bad else found


def _schema_fault(uri: str) -> str | None:
    """Why this MLflow cannot read its database file; None if it can, or will make it."""
    file, package = Path(str(make_url(uri).database or "")), importlib.util.find_spec("mlflow")
    if package is None or package.origin is None or not file.is_file():
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            has_any = database.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
            ).fetchone()
            stated = (
                database.execute("SELECT version_num FROM alembic_version").fetchone() if has_any else None
            )
    except sqlite3.Error as error:
        return bounded(f"cannot be read ({error}); is it a database of MLflow's?", 200)
    # MLflow itself takes seconds to be imported.
    steps = ScriptDirectory(str(Path(package.origin).parent / "store" / "db_migrations"))
    wanted, known = steps.get_heads(), {step.revision for step in steps.walk_revisions()}
    if stated is None or [stated[0]] == wanted:
        return None
    version, schema = importlib.metadata.version("mlflow"), bounded(str(stated[0]), 40)
    if stated[0] in known:
        older = f"schema {schema} is older than MLflow {version} reads"
        return f"{older}: back it up, then run: mlflow db upgrade {uri}"
    return (
        f"schema {schema} is unknown to MLflow {version}, so a newer one wrote it: install that one here, or "
        "restore the backup made before its upgrade (mlflow db upgrade leads forward only)"
    )


_OUT_OF_DATE = (
    ": its database schema is not that of its version; back the database up, then run beside the server: "
    "mlflow db upgrade DATABASE_URI"
)
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where to ask one that listens everywhere
_SPARK, _SPARK_PORT = "airflow spark", 7077
_AIRFLOW_PARTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")


def placement(serve: ServeSettings) -> Check:
    """Whether the placement service answers; without any token it may be unused."""
    host = _ANY_ADDRESS.get(serve.host, serve.host)
    scheme, shown = "https" if serve.tls_cert else "http", f"[{host}]" if ":" in host else host
    at = f"{scheme}://{shown}:{serve.port}"
    found = health(f"{at}/health", tls=_tls(host))
    if isinstance(found, dict) and "servers_alive" in found:
        if found.get("status") == "ok":
            return Check(
                "placement", at, "ok", bounded(f"answers; {found['servers_alive']} caches are alive", 200)
            )
        return Check("placement", at, "bad", bounded(f"is degraded: {found.get('database')}", 200))
    why = found if isinstance(found, str) else "answers, but not as this service"
    if serve.token.get_secret_value() or serve.token_file or serve.cache_tokens:
        return Check("placement", at, "bad", f"{why}; start it: cachecast serve")
    return Check("placement", at, "off", f"{why}; no [serve] token is set either")


def _tls(host: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if is_loopback(host):
        # The certificate names this machine as others know it.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def collectors(caches: Iterable[CacheSettings]) -> Iterator[Check]:
    """Whether a collector writes to each folder that a cache's `gstream` names."""
    named = {cache.gstream for cache in caches if cache.gstream is not None}
    # A capture or a stream of one cache is written by others.
    folders = sorted(path for path in named if not path.is_file())
    if not folders:
        yield Check("collector", "none", "off", "set gstream of a cache; see docs/hosts.md")
    yield from map(_collector, folders)


def _collector(folder: Path) -> Check:
    start = f"cachecast collect --port PORT --out {folder}"
    if not folder.is_dir():
        return Check("collector", str(folder), "bad", f"no such folder; start it: {start}")
    try:
        check_heartbeat(folder)
    except InputError as error:
        return Check("collector", str(folder), "bad", str(error))
    return Check("collector", str(folder), "ok", "a collector writes here")


def airflow(url: str) -> Check:
    """Whether Airflow's API server answers and reports its other parts as healthy."""
    if not url:
        return Check("airflow", "none", "off", "set [airflow] url")
    found = health(f"{url.rstrip('/')}/api/v2/monitor/health")
    if isinstance(found, str):
        return Check("airflow", url, "bad", found)
    sick = [part for part in _AIRFLOW_PARTS if _status(found.get(part)) != "healthy"]
    if sick:
        return Check("airflow", url, "bad", f"answers; not healthy: {', '.join(sick)}")
    return Check("airflow", url, "ok", "healthy")


def spark_connection(name: str, env: Mapping[str, str] = os.environ) -> Iterator[Check]:
    """Whether the Spark master of Airflow's connection `name` answers, if this environment defines it."""
    variable = f"AIRFLOW_CONN_{name.upper()}"
    if not name:
        return
    if variable not in env:
        where = f"{variable} is not set here; `airflow connections get {name}` asks Airflow"
        yield Check(_SPARK, name, "off", where)
        return
    try:
        master = urlsplit(_master(env[variable]))
    except (ValueError, KeyError):
        yield Check(_SPARK, name, "bad", f"{variable} is neither a URI nor JSON with a host")
        return
    if master.scheme == "spark" and master.hostname:
        yield accepts(_SPARK, name, master, _SPARK_PORT)
    else:
        yield Check(_SPARK, name, "ok", "no standalone master: not tried here")


def _master(connection: str) -> str:
    """The master that spark-submit is given: Airflow keeps it as host, or as scheme, host and port."""
    if not connection.lstrip().startswith("{"):
        return connection
    told = strict_json.loads(connection)
    host, port = str(told["host"]), told.get("port")
    whole = host if "://" in host or not port else f"{told.get('conn_type')}://{host}"
    return f"{whole}:{port}" if port else whole


def _status(part: object) -> object:
    return part.get("status") if isinstance(part, dict) else None
