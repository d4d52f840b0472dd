"""The cache that the demo pushes to: a real XCache on loopback where XRootD is installed, else a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from jobs.demo.site import MARKS, Site
from jobs.demo.xcache import make_files, xcache
from jobs.local.xrootd import available
from prefetch.directory.cache import DirectoryTarget

NAME = "cache"
"""The name of the loopback server (`xrootd -n`), which its records carry."""

PARALLEL = 8


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


class _Folder:
    kind = "a directory-backed cache (no XRootD server here)"

    def __init__(self, target: DirectoryTarget, origin: Path) -> None:
        self._target, self._origin, self.gstream = target, origin, target.gstream

    def add_files(self, sizes: dict[str, int]) -> None:
        make_files(self._origin, sizes)

    def read(self, name: str) -> None:
        self._target.read(name)

    def purge(self) -> None:
        self._target.purge(MARKS.low, MARKS.high, MARKS.capacity_bytes)


@contextlib.contextmanager
def _loopback(site: Site) -> Iterator[DemoCache]:
    gstream = site.out / "gstream.txt"
    with xcache(gstream, MARKS) as cache:
        site.add_cache(name=NAME, kind="xcache", url=cache.url, namespace=cache.namespace, gstream=gstream)
        yield cache


@contextlib.contextmanager
def _folder(site: Site) -> Iterator[DemoCache]:
    origin, root = site.out / "origin", site.out / "cache"
    origin.mkdir()
    site.add_cache(name=NAME, kind="directory", url=str(root), origin=origin)
    yield _Folder(DirectoryTarget(NAME, origin, root), origin)
