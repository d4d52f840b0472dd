"""The cache that the demo pushes to: a real XCache on loopback where XRootD is installed, else a folder."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from features.errors import ServiceError
from jobs.demo.site import CAPACITY, Site
from jobs.local.xrootd import Loopback, available, loopback
from prefetch.directory.cache import DirectoryTarget
from prefetch.xcache.collector import Collector
from prefetch.xcache.session import RemoteFile

NAME = "cache"
"""The name of the loopback server (`xrootd -n`), which its records carry."""

PARALLEL = 8
READ_TIMEOUT_S = 60.0
PURGE_TIMEOUT_S = 30.0
LOW, HIGH = 0.90, 0.95


class DemoCache(Protocol):
    """A running cache, its origin, and the jobs that read through it."""

    kind: str
    gstream: Path

    def add_files(self, sizes: dict[str, int]) -> None:
        """Put files of these names and sizes at the origin."""
        ...

    def read(self, name: str) -> None:
        """Read all of a file through the cache, as a job does."""
        ...

    def purge(self) -> None:
        """Make the cache purge as it does when it exceeds its limit."""
        ...


def read_all(cache: DemoCache, names: Sequence[str]) -> None:
    """Read files in order, a few at once, as jobs do."""
    with ThreadPoolExecutor(PARALLEL, "job") as jobs:
        list(jobs.map(cache.read, names))


@contextlib.contextmanager
def running(site: Site) -> Iterator[DemoCache]:
    """The demo's cache, configured in `site`; it ends with the block."""
    with _loopback(site) if available() is None else _folder(site) as cache:
        yield cache


class _Loopback:
    kind = "a real XCache on loopback"

    def __init__(self, servers: Loopback, gstream: Path) -> None:
        self._servers, self.gstream = servers, gstream

    def add_files(self, sizes: dict[str, int]) -> None:
        _make_files(self._servers.origin_root, sizes)

    def read(self, name: str) -> None:
        with RemoteFile(f"{self._servers.cache_url}/{name}", time.monotonic() + READ_TIMEOUT_S) as file:
            file.read_all()

    def purge(self) -> None:
        # A running XCache checks once a minute and spares files used since. At its start it purges at once
        # and spares none, which is quicker here and a harder test of the pins.
        self._servers.restart_cache()
        deadline = time.monotonic() + PURGE_TIMEOUT_S
        while self._used_bytes() > HIGH * CAPACITY:
            if time.monotonic() > deadline:
                raise ServiceError(f"the cache did not purge within {PURGE_TIMEOUT_S:.0f} s of its start")
            time.sleep(0.2)

    def _used_bytes(self) -> int:
        walk = os.walk(self._servers.namespace)
        paths = (Path(folder, name) for folder, _, names in walk for name in names)
        return sum(_on_disk(path) for path in paths if path.suffix == ".root")


class _Folder:
    kind = "a directory-backed cache (no XRootD server here)"

    def __init__(self, target: DirectoryTarget, origin: Path) -> None:
        self._target, self._origin, self.gstream = target, origin, target.gstream

    def add_files(self, sizes: dict[str, int]) -> None:
        _make_files(self._origin, sizes)

    def read(self, name: str) -> None:
        self._target.read(name)

    def purge(self) -> None:
        self._target.purge(LOW, HIGH, CAPACITY)


def _on_disk(path: Path) -> int:
    try:
        return 512 * path.stat().st_blocks
    except FileNotFoundError:  # purged meanwhile
        return 0


def _make_files(root: Path, sizes: dict[str, int]) -> None:
    for name, size in sizes.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)  # sparse: the origin needs no disk space


@contextlib.contextmanager
def _loopback(site: Site) -> Iterator[DemoCache]:
    gstream = site.out / "gstream.txt"
    limits = (int(LOW * CAPACITY * 0.9), int(LOW * CAPACITY), int(HIGH * CAPACITY))
    with (
        tempfile.TemporaryDirectory(prefix="cachecast-", ignore_cleanup_errors=True) as folder,
        Collector(gstream) as collector,
        loopback(Path(folder), files_limit=limits, gstream_port=collector.port) as servers,
    ):
        site.add_cache(
            name=NAME, kind="xcache", url=servers.cache_url, namespace=servers.namespace, gstream=gstream
        )
        yield _Loopback(servers, gstream)


@contextlib.contextmanager
def _folder(site: Site) -> Iterator[DemoCache]:
    origin, root = site.out / "origin", site.out / "cache"
    origin.mkdir()
    site.add_cache(name=NAME, kind="directory", url=str(root), origin=origin)
    yield _Folder(DirectoryTarget(NAME, origin, root), origin)
