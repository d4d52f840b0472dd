"""`cachecast doctor`: what is configured, and whether it answers."""

from __future__ import annotations

import dataclasses
import subprocess
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc

from features.common.errors import CachecastError, ConfigError, ServiceError, TargetUnavailable
from features.schema import FILES
from jobs.ground.caches.inventory import last, log_in
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.spark.java import java
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import senders
from jobs.loop.ingest.sources.file_names import GUESSED
from jobs.operator.operate import services
from jobs.operator.operate.services import Check, accepts, answers
from prefetch.xcache.server import parse_version
from prefetch.xcache.session import ThreadConnections, version_of

_SPARK_PORT, _XROOTD_PORT = 7077, 1094


def run(settings: Settings) -> list[Check]:
    """Every check, in the order of the loop."""
    return list(_checks(settings))


def _checks(settings: Settings) -> Iterator[Check]:
    yield _tables(settings.tables.root)
    yield _java()
    yield _spark(settings.spark.master)
    yield services.mlflow(settings.mlflow.uri)
    yield _rucio(settings.rucio.url)
    yield _salt(settings.users.salt.get_secret_value())
    if not settings.caches:
        yield Check("caches", "none", "off", "add one file per cache; see docs/operate.md")
    for cache in settings.caches.values():
        yield _cache(cache)
        yield _names(settings, cache)
    yield _hosts(settings.tables.root)
    yield from services.collectors(settings.caches.values())
    yield services.placement(settings.serve)
    yield services.airflow(settings.airflow.url)
    yield from services.spark_connection(settings.airflow.spark)


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
        n, faults = senders.named(Tables(root))
    except CachecastError as error:
        return Check("hosts", "accesses", "bad", str(error))
    if not n:
        return Check("hosts", "accesses", "off", "no records of caches themselves yet")
    state, told = ("bad", "; ".join(faults)) if faults else ("ok", "each has one name in its records")
    return Check("hosts", f"{n} caches", state, told)


def _java() -> Check:
    try:
        program = java()
    except ServiceError as error:
        return Check("java", "java", "bad", str(error))
    banner = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    return Check("java", program, "ok", banner.splitlines()[0] if banner else "no version given")


def _spark(master: str) -> Check:
    if not master.startswith("spark://"):
        return Check(
            "spark", master, "ok", "in this process" if master.startswith("local") else "not tried here"
        )
    return accepts("spark", master, urllib.parse.urlsplit(master), _SPARK_PORT)


def _rucio(url: str) -> Check:
    if not url:
        return Check("rucio", "none", "off", "set [rucio] url")
    return answers("rucio", url, f"{url.rstrip('/')}/ping")


def _salt(salt: str) -> Check:
    if not salt:
        return Check("users", "no salt", "off", "users are not recorded; set [users] salt in secrets.toml")
    return Check("users", "salted", "ok", "users are recorded as salted hashes")


def _cache(cache: CacheSettings) -> Check:
    part = f"cache {cache.name}"
    if cache.kind == "directory":
        missing = [str(path) for path in (Path(cache.url), cache.origin) if path and not path.is_dir()]
        told = f"no such folder: {', '.join(missing)}" if missing else f"a folder, filled from {cache.origin}"
        return Check(part, cache.url, "bad" if missing else "ok", told)
    found = accepts(part, cache.url, urllib.parse.urlsplit(cache.url), _XROOTD_PORT)
    return found if found.state == "bad" else _with_version(found, cache)


def _names(settings: Settings, cache: CacheSettings) -> Check:
    """How many files of the newest inventory the catalogue knows by the names that their paths have there."""
    part, now_s = f"names {cache.name}", int(time.time())
    try:
        tables = Tables(settings.tables.root)
        held, paths = last(tables, cache.name, at_s=now_s)["did"], Paths.last(tables, cache, at_s=now_s)
        if not tables.exists(FILES):
            return Check(part, "contents", "off", "no catalogue yet: pull one")
        files = tables.read_arrow(FILES, columns=["did"])["did"].combine_chunks()
    except CachecastError as error:
        return Check(part, "contents", "bad", str(error))
    by_hash = files.filter(pc.invert(pc.match_substring(files, ":/")))[:1]
    if paths.known(by_hash).null_count:
        told = f"its paths of files like {by_hash[0]} are not known: set caches.{cache.name}.prefix"
        return Check(part, "contents", "bad", told)
    n_known = pc.sum(pc.is_in(held, value_set=files)).as_py() or 0
    n_unknown = pc.sum(pc.match_substring_regex(held, f"^(?:{'|'.join(GUESSED)}):/")).as_py()
    told = f"the catalogue knows {n_known} of {len(held)} files of the newest inventory"
    if n_unknown:
        told += f"; the paths of {n_unknown} tell no scope: set [names] scopes, and pull again"
    return Check(part, "contents", "bad" if len(held) and not n_known else "ok", told)


def _with_version(found: Check, cache: CacheSettings) -> Check:
    """A check that the server accepts connections, with its version and what that changes."""
    try:
        log_in(cache)
        answer = version_of(ThreadConnections(cache.url).spare)
    except (ConfigError, TargetUnavailable) as error:
        return dataclasses.replace(found, state="bad", detail=str(error))
    if answer is None:
        told = f"{found.detail}, but does not tell its version: no XRootD, or it does not know us"
        return dataclasses.replace(found, state="bad", detail=told)
    return dataclasses.replace(found, detail=f"{found.detail}; {parse_version(answer).described()}")
