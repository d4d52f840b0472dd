"""The doctor's checks of what runs beside the jobs: the placement service, collectors and Airflow."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from features.common import strict_json
from features.common.errors import InputError, bounded
from features.common.hosts import is_loopback
from jobs.operate.probes import Check, accepts, health
from jobs.settings.serve import ServeSettings
from jobs.settings.tree import CacheSettings
from prefetch.xcache import heartbeat

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
        heartbeat.check(folder)
    except InputError as error:
        return Check("collector", str(folder), "bad", str(error))
    return Check("collector", str(folder), "ok", "a collector writes here")


def airflow(url: str) -> Check:
    """Whether Airflow's API server answers, and says that its other parts are healthy."""
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
