"""`cachecast doctor`: what is configured, and whether it answers."""

from __future__ import annotations

import dataclasses
import http.client
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from features.errors import CachecastError, ServiceError
from features.redaction import without_login
from jobs.settings.tree import CacheSettings, Settings
from jobs.spark.java import java
from jobs.store.tables import Tables

TIMEOUT_S = 3.0


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of the doctor's table: `state` is ok, off (not configured) or bad."""

    part: str
    configured: str
    state: str
    detail: str


def run(settings: Settings) -> list[Check]:
    """Every check, in the order of the loop."""
    return list(_checks(settings))


def _checks(settings: Settings) -> Iterator[Check]:
    yield _tables(settings.tables.root)
    yield _java()
    yield _spark(settings.spark.master)
    yield _mlflow(settings.mlflow.uri)
    yield _rucio(settings.rucio.url)
    yield _salt(settings.users.salt.get_secret_value())
    if not settings.caches:
        yield Check("caches", "none", "off", "add one file per cache; see docs/operate.md")
    for cache in settings.caches.values():
        yield _cache(cache)


def _tables(root: str) -> Check:
    try:
        tables = Tables(root)
        tables.check_writable()
        names = tables.names()
    except CachecastError as error:
        return Check("tables", root, "bad", str(error))
    return Check("tables", root, "ok", f"{len(names)} tables" if names else "will be made by the first pull")


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
    return _tcp("spark", master, urllib.parse.urlsplit(master))


def _mlflow(uri: str) -> Check:
    if uri.startswith("sqlite:"):
        return Check("mlflow", uri, "ok", "a file on this machine")
    shown = without_login(uri)  # its health needs no login
    return _http("mlflow", shown, f"{shown.rstrip('/')}/health")


def _rucio(url: str) -> Check:
    if not url:
        return Check("rucio", "none", "off", "set [rucio] url")
    return _http("rucio", url, f"{url.rstrip('/')}/ping")


def _salt(salt: str) -> Check:
    if not salt:
        return Check("users", "no salt", "off", "users are not recorded; set CACHECAST_USERS__SALT")
    return Check("users", "salted", "ok", "users are recorded as salted hashes")


def _cache(cache: CacheSettings) -> Check:
    part = f"cache {cache.name}"
    if cache.kind == "directory":
        there = Path(cache.url).is_dir()
        return Check(part, cache.url, "ok" if there else "bad", "a folder" if there else "no such folder")
    return _tcp(part, cache.url, urllib.parse.urlsplit(cache.url), default_port=1094)


def _tcp(part: str, configured: str, url: urllib.parse.SplitResult, default_port: int = 7077) -> Check:
    try:
        host, port = url.hostname or "localhost", url.port or default_port
    except ValueError:
        return Check(part, configured, "bad", "not a URL with a port")
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_S):
            return Check(part, configured, "ok", f"{host}:{port} accepts connections")
    except OSError as error:
        return Check(part, configured, "bad", f"{host}:{port}: {error.strerror or type(error).__name__}")


def _http(part: str, configured: str, url: str) -> Check:
    if not url.startswith(("http://", "https://")):
        return Check(part, configured, "bad", "not an http(s) URL")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as reply:  # noqa: S310 - the scheme is checked above
            return Check(part, configured, "ok", f"answers ({reply.status})")
    except urllib.error.HTTPError as error:
        return Check(part, configured, "bad", f"answers {error.code}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Check(part, configured, "bad", f"does not answer ({type(error).__name__})")
