"""The caches of the demo: a real XCache on loopback where XRootD is installed, else a folder."""

import contextlib
import datetime as dt
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from features.common.errors import ServiceError
from features.schema import ACCESSES
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row
from jobs.local_site.demo.site import MARKS, Marks, Site
from jobs.local_site.local.daemon import folder_for_all
from jobs.local_site.local.xrootd import Loopback, available, loopback
from jobs.loop.ingest.local_engine import LocalEngine
from jobs.loop.ingest.pull_input import pull
from prefetch.directory import DirectoryTarget
from prefetch.xcache.gstream import CaptureReader
from prefetch.xcache.receiver import collecting
from prefetch.xcache.server import parse_version
from prefetch.xcache.session import RemoteFile, version_of

READ_TIMEOUT_S = 60.0
PURGE_TIMEOUT_S = 180.0
REPORT_TIMEOUT_S = 3.0  # one in a thousand, which met a block on its way to the disk, comes at the end
_DATAGRAM_BYTES = 2048  # of the g-stream: it has room for three reports or four, and is sent when it is full
_LOOK_S, _SETTLED_S = 0.2, 1.0
_BLOCK_LOOK_S, _BLOCK_TIMEOUT_S = 0.002, 1.0
NAME = "cache"  # the name of the loopback server (`xrootd -n`), which its records carry
PARALLEL = 8


class XCache:
    """A running XCache with the limits `marks`, whose reports go to the capture at `gstream`."""

    kind = "a real XCache on loopback"

    def __init__(self, servers: Loopback, gstream: Path, marks: Marks) -> None:
        self.gstream, self.marks = gstream, marks
        self._servers = servers

    @property
    def url(self) -> str:
        """Where jobs read: `root://127.0.0.1:port`."""
        return self._servers.cache_url

    @property
    def namespace(self) -> Path:
        return self._servers.namespace

    def add_files(self, sizes: dict[str, int]) -> None:
        make_files(self._servers.origin_root, sizes)

    def read(self, name: str) -> None:
        with RemoteFile(f"{self.url}/{name}", time.monotonic() + READ_TIMEOUT_S) as file:
            file.read_all()

    def read_and_settle(self, name: str) -> int:
        """Read all of a file, and close it when it is on the cache's disk; its size in bytes.

        XCache reports a close that meets a block on its way to the disk half a minute late.
        """
        with RemoteFile(f"{self.url}/{name}", time.monotonic() + READ_TIMEOUT_S) as file:
            n_bytes = file.read_all()
            deadline = time.monotonic() + _BLOCK_TIMEOUT_S
            while _on_disk(Path(f"{self.namespace}{name}")) < n_bytes and time.monotonic() < deadline:
                time.sleep(_BLOCK_LOOK_S)
            time.sleep(_BLOCK_LOOK_S)
        return n_bytes

    def purge(self) -> None:
        """Make it purge if it is above its high watermark."""
        # A running XCache checks once a minute and spares files used since. Before 5.8 it also purges when it
        # starts, and spares none, which is quicker here and a harder test of the pins.
        if parse_version(version_of(self.url) or "").purges_at_start:
            self._servers.restart_cache()
        deadline = time.monotonic() + PURGE_TIMEOUT_S
        used_before, used = -1, self.used_bytes()
        # A purge goes on below the mark at which it began: a plan must not count what it takes next.
        while used > self.marks.high_bytes or used != used_before:
            if time.monotonic() > deadline:
                raise ServiceError(f"the cache did not purge within {PURGE_TIMEOUT_S:.0f} s")
            time.sleep(_SETTLED_S)
            used_before, used = used, self.used_bytes()

    def used_bytes(self) -> int:
        paths = (Path(folder, name) for folder, _, names in os.walk(self.namespace) for name in names)
        return sum(_on_disk(path) for path in paths if path.suffix == ".root")

    def await_reports(self, n_bytes: int, stopping: threading.Event) -> None:
        """Wait until it has reported `n_bytes` that jobs read, or for a while, or until `stopping`."""
        deadline = time.monotonic() + REPORT_TIMEOUT_S
        with contextlib.closing(CaptureReader(self.gstream)) as capture:
            while n_bytes > 0 and time.monotonic() < deadline and not stopping.wait(_LOOK_S):
                n_bytes -= sum(close.read_bytes for close in capture.poll() if not close.is_ours)


@contextlib.contextmanager
def xcache(gstream: Path, marks: Marks, *, reports_opens: bool = False) -> Iterator[XCache]:
    """A running XCache with an origin of its own. `reports_opens`: as a steward needs it."""
    limits = (int(0.9 * marks.low_bytes), marks.low_bytes, marks.high_bytes)
    with (
        tempfile.TemporaryDirectory(prefix="cachecast-", ignore_cleanup_errors=True) as folder,
        collecting(gstream) as port,
        loopback(
            Path(folder),
            files_limit=limits,
            gstream_port=port,
            gstream_bytes=_DATAGRAM_BYTES,
            reports_opens=reports_opens,
        ) as servers,
    ):
        yield XCache(servers, gstream, marks)


def reported_reads(gstream: Path) -> list[Row]:
    """`bytes_hit` and `bytes_missed` of the reads of jobs that the capture at `gstream` reports.

    Raises InputError if it cannot be read.
    """
    columns = ["known_at", "accessed_at", "event_id", "bytes_hit", "bytes_missed"]
    with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
        tables = Tables(folder)
        pull(
            LocalEngine(),
            tables,
            source="xcache_gstream",
            path=str(gstream),
            day=dt.datetime.now(dt.UTC).date(),
        )
        rows = tables.read_arrow(ACCESSES, columns=columns)
    reads: list[Row] = rows.sort_by([(name, "ascending") for name in columns[:3]]).to_pylist()
    return reads


def make_files(root: Path, sizes: dict[str, int]) -> None:
    """Files of these names and sizes below `root`, sparse: an origin needs no disk space."""
    for name, size in sizes.items():
        path = root / name.lstrip("/")
        folder_for_all(path.parent)
        with path.open("wb") as file:
            file.truncate(size)
        path.chmod(0o644)


def _on_disk(path: Path) -> int:
    try:
        return 512 * path.stat().st_blocks
    except FileNotFoundError:  # purged meanwhile
        return 0


class _Folder:
    """The same as far as the demo needs it: a folder, filled from another."""

    kind = "a directory-backed cache (no XRootD server here)"

    def __init__(self, target: DirectoryTarget, origin: Path) -> None:
        self._target, self._origin, self.gstream = target, origin, target.gstream

    def add_files(self, sizes: dict[str, int]) -> None:
        make_files(self._origin, sizes)

    def read(self, name: str) -> None:
        self._target.read(name)

    def purge(self) -> None:
        self._target.purge(MARKS.low, MARKS.high, MARKS.capacity_bytes)


DemoCache: TypeAlias = XCache | _Folder


def read_all(cache: DemoCache, names: Sequence[str]) -> None:
    """Read files in order, a few at once, as jobs do."""
    with ThreadPoolExecutor(PARALLEL, "job") as jobs:
        list(jobs.map(cache.read, names))


@contextlib.contextmanager
def running(site: Site) -> Iterator[DemoCache]:
    """The demo's cache, configured in `site`; it ends with the block."""
    if available() is not None:
        origin, root = site.out / "origin", site.out / "cache"
        origin.mkdir()
        site.add_cache(name=NAME, kind="directory", url=str(root), origin=origin)
        yield _Folder(DirectoryTarget(NAME, origin, root), origin)
        return
    gstream = site.out / "gstream.txt"
    with xcache(gstream, MARKS) as cache:
        site.add_cache(name=NAME, kind="xcache", url=cache.url, namespace=cache.namespace, gstream=gstream)
        yield cache
