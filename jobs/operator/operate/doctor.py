"""`cachecast doctor`: what is configured, and whether it answers."""

import configparser
import contextlib
import dataclasses
import multiprocessing
import os
import ssl
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from features.common import files
from features.common.errors import (
    CachecastError,
    ConfigError,
    InputError,
    ServiceError,
    TargetUnavailable,
    bounded,
)
from features.common.hosts import is_loopback
from features.schema import FILES
from jobs.ground.caches.inventory import last, target
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.sections import ServeSettings
from jobs.ground.settings.sources import RucioSettings
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.spark import has_spark, java
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import arrivals
from jobs.loop.ingest.sources.urls import GUESSED
from jobs.operator.operate.asking import TIMEOUT_S, Check, accepts, answers, believing, health
from jobs.operator.operate.asking_mlflow import mlflow
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.rolling import check_heartbeat
from prefetch.xcache.server import ServerVersion

_SPARK_PORT, _XROOTD_PORT = 7077, 1094
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where to ask one that listens everywhere
_AIRFLOW_PARTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")


def run(settings: Settings) -> Iterator[Check]:
    """Every check, in the order of the loop."""
    yield _tables(settings.tables.root)
    if has_spark():
        yield _java()
    yield _spark(settings.spark.master)
    yield mlflow(settings.mlflow.uri)
    yield _rucio(settings.rucio)
    if settings.users.salt.get_secret_value():
        yield Check("users", "salted", "ok", "users are recorded as salted hashes")
    else:
        off = "users are not recorded; set [users] salt in secrets.toml"
        yield Check("users", "no salt", "off", off)
    if not settings.caches:
        yield Check("caches", "none", "off", "add one file per cache; see docs/operate.md")
    for cache in settings.caches.values():
        yield _cache(cache)
        yield _names(settings, cache)
    yield _hosts(settings.tables.root)
    yield from collectors(settings.caches.values())
    yield placement(settings.serve)
    yield airflow(settings.airflow.url, n_caches=len(settings.caches))


def _tables(root: str) -> Check:
    try:
        tables = Tables(root)
        tables.check_writable()
        names = tables.names()
    except CachecastError as error:
        return Check("tables", root, "bad", str(error))
    return Check("tables", root, "ok", f"{len(names)} tables" if names else "will be made by the first pull")


def _hosts(root: str) -> Check:
    """Whether each cache has one name in its records."""
    try:
        n, faults = arrivals.named(Tables(root))
    except CachecastError as error:
        return Check("hosts", "accesses", "bad", str(error))
    if not n:
        return Check("hosts", "accesses", "off", "no records of caches themselves yet")
    state, detail = ("bad", "; ".join(faults)) if faults else ("ok", "each has one name in its records")
    return Check("hosts", f"{n} caches", state, detail)


def _java() -> Check:
    try:
        program = java()
    except ServiceError as error:
        return Check("java", "java", "bad", str(error))
    banner = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    return Check("java", program, "ok", banner.splitlines()[0] if banner else "no version given")


def _spark(master: str) -> Check:
    if not has_spark():
        return Check("spark", master, "off", "not installed; a cache's host needs none")
    if master.startswith("spark://"):
        return accepts("spark", master, _SPARK_PORT)
    return Check("spark", master, "ok", "in this process" if master.startswith("local") else "not tried here")


def _rucio(rucio: RucioSettings) -> Check:
    """Whether Rucio answers, by the authorities that its own client believes."""
    if not (url := rucio.url):
        return Check("rucio", "none", "off", "set [rucio] url")
    trusted = rucio.ca_cert or os.environ.get("X509_CERT_DIR", "").strip()
    try:
        tls = believing(trusted) if trusted else None
    except OSError as error:
        return Check("rucio", url, "bad", f"no certificate can be read at {trusted}: {error.strerror}")
    return answers("rucio", url, f"{url.rstrip('/')}/ping", tls=tls)


def _cache(cache: CacheSettings) -> Check:
    part = f"cache {cache.name}"
    if (why := files.silent(cache.folders, within_s=TIMEOUT_S)) is not None:
        return Check(part, cache.url, "bad", why)
    if cache.kind == "directory":
        missing = [str(path) for path in (Path(cache.url), cache.origin) if path and not path.is_dir()]
        detail = (
            f"no such folder: {', '.join(missing)}" if missing else f"a folder, filled from {cache.origin}"
        )
        return Check(part, cache.url, "bad" if missing else "ok", detail)
    check = accepts(part, cache.url, _XROOTD_PORT)
    return check if check.state == "bad" else _with_version(check, cache)


def _names(settings: Settings, cache: CacheSettings) -> Check:
    """How many files of the newest inventory the catalogue knows by the names that their paths have there."""
    part, now_s = f"names {cache.name}", int(time.time())
    try:
        tables = Tables.of(settings)
        held, paths = last(tables, cache.name, at_s=now_s)["did"], Paths.last(tables, cache, at_s=now_s)
        if not tables.exists(FILES):
            return Check(part, "contents", "off", "no catalogue yet: pull one")
        files = tables.read_arrow(FILES, columns=["did"])["did"].combine_chunks()
    except CachecastError as error:
        return Check(part, "contents", "bad", str(error))
    by_hash = files.filter(pc.invert(pc.match_substring(files, ":/")))[:1]
    if paths.known(by_hash).null_count:
        detail = f"its paths of files like {by_hash[0]} are not known: set caches.{cache.name}.prefix"
        return Check(part, "contents", "bad", detail)
    n_known = pc.sum(pc.is_in(held, value_set=files)).as_py() or 0
    n_unknown = pc.sum(pc.match_substring_regex(held, f"^(?:{'|'.join(GUESSED)}):/")).as_py()
    detail = f"the catalogue knows {n_known} of {len(held)} files of the newest inventory"
    if n_unknown:
        detail += f"; the paths of {n_unknown} tell no scope: set [names] scopes, and pull again"
    return Check(part, "contents", "bad" if len(held) and not n_known else "ok", detail)


def _with_version(check: Check, cache: CacheSettings) -> Check:
    """A check that the server accepts connections, with its version and what that changes."""
    try:
        if cache.keytab or cache.proxy or cache.token:
            # A process has one login, which no other cache's server is to see.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                version = process.submit(_version, cache).result()
        else:
            version = _version(cache)
    except (ConfigError, TargetUnavailable, BrokenProcessPool) as error:
        return dataclasses.replace(check, state="bad", detail=f"{check.detail}, but {error}")
    return dataclasses.replace(check, detail=f"{check.detail}; {version.described()}")


def _version(cache: CacheSettings) -> ServerVersion:
    at = target(cache)
    assert isinstance(at, XCacheTarget)
    return at.server_version()


def placement(serve: ServeSettings) -> Check:
    """Whether the placement service answers; without any login it may be unused."""
    host = _ANY_ADDRESS.get(serve.host, serve.host)
    scheme, name = "https" if serve.tls_cert else "http", f"[{host}]" if ":" in host else host
    at = f"{scheme}://{name}:{serve.port}"
    context = ssl.create_default_context()
    if is_loopback(host):
        # The certificate names this machine as others know it.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reply = health(f"{at}/health", tls=context)
    if isinstance(reply, dict) and "servers_alive" in reply:
        if reply.get("status") == "ok":
            return Check(
                "placement", at, "ok", bounded(f"answers; {reply['servers_alive']} caches are alive", 200)
            )
        return Check("placement", at, "bad", bounded(f"is degraded: {reply.get('database')}", 200))
    why = reply if isinstance(reply, str) else "answers, but not as this service"
    logins = (serve.token_file, serve.cache_tokens, serve.federation_tokens, serve.issuers, serve.client_ca)
    if serve.token.get_secret_value() or any(logins):
        return Check("placement", at, "bad", f"{why}; start it: cachecast serve")
    return Check("placement", at, "off", f"{why}; no [serve] token is set either")


def collectors(caches: Iterable[CacheSettings]) -> Iterator[Check]:
    """Whether a collector writes to each folder that a cache's `gstream` names."""
    named = {cache.gstream for cache in caches if cache.gstream is not None}
    # A capture or a stream of one cache is written by others; one that hangs is named with its cache.
    answering = {path for path in named if files.silent([path], within_s=TIMEOUT_S) is None}
    folders = sorted(path for path in answering if not path.is_file())
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


def airflow(url: str, *, n_caches: int = 0, env: Mapping[str, str] = os.environ) -> Check:
    """Whether Airflow's API server answers, its other parts are healthy, and no cache waits for another."""
    if not url:
        return Check("airflow", "none", "off", "set [airflow] url")
    reply = health(f"{url.rstrip('/')}/api/v2/monitor/health")
    if isinstance(reply, str):
        return Check("airflow", url, "bad", reply)
    if sick := sick_parts(reply, _AIRFLOW_PARTS):
        return Check("airflow", url, "bad", f"answers; not healthy: {', '.join(sick)}")
    settings = configparser.ConfigParser(interpolation=None, strict=False)
    file = (
        env.get("AIRFLOW_CONFIG") or Path(env.get("AIRFLOW_HOME") or "~/airflow").expanduser() / "airflow.cfg"
    )
    with contextlib.suppress(OSError, ValueError, configparser.Error):
        settings.read(file)
    text = env.get("AIRFLOW__CORE__PARALLELISM") or settings.get("core", "parallelism", fallback=None) or ""
    most = int(text) if text.isdecimal() else None
    if most is not None and 0 < most < n_caches:
        few = f"healthy; [core] parallelism = {most} is less than the {n_caches} caches, of which those that "
        return Check("airflow", url, "bad", f"{few}hang may then hold up others: raise it")
    return Check("airflow", url, "ok", "healthy")


def sick_parts(reply: Mapping[str, Any] | str, parts: Iterable[str]) -> list[str]:
    """Those of Airflow's `parts` that its `health` does not report as healthy."""
    states = {} if isinstance(reply, str) else reply
    healthy = [
        p for p, state in states.items() if isinstance(state, dict) and state.get("status") == "healthy"
    ]
    return [part for part in parts if part not in healthy]
