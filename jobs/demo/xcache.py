"""A real XCache on loopback for the demo: jobs read through it, it purges, and reports what it served."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from features.common.errors import ServiceError
from jobs.demo.site import Marks
from jobs.local.xrootd import Loopback, folder_for_all, loopback
from prefetch.xcache.collector import Collector
from prefetch.xcache.events import FileClose
from prefetch.xcache.gstream import CaptureReader, read_capture
from prefetch.xcache.server import parse_version
from prefetch.xcache.session import RemoteFile, version_of

READ_TIMEOUT_S = 60.0
PURGE_TIMEOUT_S = 180.0
REPORT_TIMEOUT_S = 3.0
"""The others, about one in a thousand, met a block on its way to the disk: they come when the server ends."""

_DATAGRAM_BYTES = 2048
"""Of the g-stream: it has room for three reports or four, and is sent when it is full."""
_LOOK_S = 0.2
_BLOCK_LOOK_S, _BLOCK_TIMEOUT_S = 0.002, 0.5


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
        """The folder of its files."""
        return self._servers.namespace

    def add_files(self, sizes: dict[str, int]) -> None:
        """Put files of these names and sizes at the origin."""
        make_files(self._servers.origin_root, sizes)

    def read(self, name: str) -> None:
        """Read all of a file, as a job does."""
        with RemoteFile(f"{self.url}/{name}", time.monotonic() + READ_TIMEOUT_S) as file:
            file.read_all()

    def read_and_settle(self, name: str) -> int:
        """Read all of a file, and close it when it is on the cache's disk; its size in bytes.

        XCache reports a close that meets a block on its way to the disk half a minute late.
        """
        deadline = time.monotonic() + _BLOCK_TIMEOUT_S
        with RemoteFile(f"{self.url}/{name}", time.monotonic() + READ_TIMEOUT_S) as file:
            n_bytes = file.read_all()
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
        while self.used_bytes() > self.marks.high_bytes:
            if time.monotonic() > deadline:
                raise ServiceError(f"the cache did not purge within {PURGE_TIMEOUT_S:.0f} s")
            time.sleep(_LOOK_S)

    def used_bytes(self) -> int:
        """Bytes of its files on disk."""
        walk = os.walk(self.namespace)
        paths = (Path(folder, name) for folder, _, names in walk for name in names)
        return sum(_on_disk(path) for path in paths if path.suffix == ".root")

    def await_reports(self, n_bytes: int, stopping: threading.Event) -> None:
        """Wait until it has reported `n_bytes` that jobs read, or for a while, or until `stopping`."""
        deadline = time.monotonic() + REPORT_TIMEOUT_S
        with contextlib.closing(CaptureReader(self.gstream)) as capture:
            while n_bytes > 0 and time.monotonic() < deadline and not stopping.wait(_LOOK_S):
                n_bytes -= sum(one.read_bytes for one in capture.poll() if not one.is_ours)


@contextlib.contextmanager
def xcache(gstream: Path, marks: Marks, *, reports_opens: bool = False) -> Iterator[XCache]:
    """A running XCache with an origin of its own. `reports_opens`: as a steward needs it."""
    limits = (int(0.9 * marks.low_bytes), marks.low_bytes, marks.high_bytes)
    with (
        tempfile.TemporaryDirectory(prefix="cachecast-", ignore_cleanup_errors=True) as folder,
        Collector(gstream) as collector,
        loopback(
            Path(folder),
            files_limit=limits,
            gstream_port=collector.port,
            gstream_bytes=_DATAGRAM_BYTES,
            reports_opens=reports_opens,
        ) as servers,
    ):
        yield XCache(servers, gstream, marks)


def reported_reads(gstream: Path) -> list[FileClose]:
    """Reads of jobs that the capture at `gstream` reports. Raises InputError if it cannot be read."""
    return [one for one in read_capture(gstream).records if not one.is_ours]


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
