"""A cache beside an attack: its disk, which is looked at all the time, and the jobs that read through it."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

from cinfo_writer import dump  # noqa: E402
from steward_site import MIB, Site, name_of  # noqa: E402
from XRootD import client  # noqa: E402

from features.common.errors import InputError  # noqa: E402
from jobs.local_site.local.xrootd import Loopback  # noqa: E402
from prefetch.xcache.cinfo import AccessRecord, CInfo  # noqa: E402
from prefetch.xcache.client import BLOCK_BYTES  # noqa: E402
from prefetch.xcache.session import RemoteFile  # noqa: E402

_NUMBERS = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
N_READERS, N_HOLDERS = 3, 3
FULL = 58
"""Jobs fetch until the cache has so many files: more than the steward keeps, fewer than the cache does."""
FETCH_EVERY_S = 0.5
LOOK_S = 0.05
PURGE_TAKES_S = 5.0
"""From the first file that the cache purges by itself until its log says so, and that is read."""


class Gone(NamedTuple):
    """Files that went between two looks at the disk; `left`: bytes on disk after it."""

    at_s: float
    names: tuple[str, ...]
    n_bytes: int
    left: int


class Loss(NamedTuple):
    """A promise to a job that was broken."""

    at_s: float
    what: str


class Disk(threading.Thread):
    """Looks at the cache's disk and at the steward's process, all the time, and keeps what it saw."""

    def __init__(self, site: Site) -> None:
        super().__init__(daemon=True)
        self.gone, self.received, self.n_purged = list[Gone](), 0, 0
        self.targets, self.alarms = list[tuple[float, int]](), list[tuple[float, dict[str, str]]]()
        self.rss, self.steward_pid = list[tuple[float, int]](), 0
        self.fault: Exception | None = None
        self.unreadable = ""
        self._site, self._ending = site, threading.Event()
        self._files = self._look()

    @property
    def used(self) -> int:
        """Bytes in use on the cache's disk, with its records."""
        status = os.statvfs(self._site.servers.namespace)
        return (status.f_blocks - status.f_bavail) * status.f_frsize

    def run(self) -> None:
        """Look until `end`."""
        try:
            for number in itertools.count():
                if self._ending.wait(LOOK_S):
                    return
                self._take(self._look())
                if number % 10 == 0:
                    self._ask_steward()
                    self._leave_out_purged()
        except Exception as error:  # noqa: BLE001  `judged` counts it as a broken promise
            self.fault = error

    def end(self) -> None:
        """Look no more."""
        self._ending.set()
        self.join()

    @property
    def alarms_now(self) -> dict[str, str]:
        """What the steward reported last; raises what ended the looks at the disk."""
        if self.fault is not None:
            raise self.fault
        return self.alarms[-1][1] if self.alarms else {}

    def inode(self, name: str) -> int | None:
        """The file that a name leads to now."""
        with contextlib.suppress(FileNotFoundError):
            return (self._site.servers.namespace / name[1:]).stat().st_ino
        return None

    def _look(self) -> dict[tuple[str, int], int]:
        disk_bytes = {}
        for path in self._site.servers.namespace.rglob("*.root"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                disk_bytes[path.name, status.st_ino] = status.st_blocks * 512
        return disk_bytes

    def _take(self, now: dict[tuple[str, int], int]) -> None:
        before, self._files = self._files, now
        self.received += sum(max(0, n_bytes - before.get(key, 0)) for key, n_bytes in now.items())
        if lost := before.keys() - now.keys():
            n_bytes = sum(before[key] for key in lost)
            self.gone.append(Gone(time.monotonic(), tuple(name for name, _ in lost), n_bytes, self.used))

    def _leave_out_purged(self) -> None:
        """What the cache has purged by itself, by its log, was not the steward's."""
        n_purged = self._site.purged()[1]
        if n_purged > self.n_purged:
            self.n_purged = n_purged
            since_s = time.monotonic() - PURGE_TAKES_S
            self.gone = [eviction for eviction in self.gone if eviction.at_s < since_s]

    def _ask_steward(self) -> None:
        now = time.monotonic()
        try:
            figures = self._site.figures
            self.targets.append((now, figures.target_bytes))
            self.alarms.append((now, dict(figures.alarms)))
        except AssertionError:  # none yet
            pass
        except InputError as error:
            self.unreadable = str(error)
        with contextlib.suppress(OSError, IndexError):
            status = Path(f"/proc/{self.steward_pid}/status").read_text()
            self.rss.append((now, int(status.partition("VmRSS:")[2].split()[0]) * 1024))


class Jobs:
    """Jobs that read through the cache; each read must give what the origin has.

    They fetch while the cache has fewer than `most` files.
    """

    def __init__(self, site: Site, disk: Disk, names: list[str], chance: random.Random) -> None:
        self.most = FULL
        self.losses, self.n_reads, self.n_held, self.n_raced = list[Loss](), 0, 0, 0
        self._site, self._disk, self._names, self._chance = site, disk, names, chance
        self._stop, self._fetching, self._fetched_at = threading.Event(), threading.Lock(), 0.0
        works = [self._read] * N_READERS + [self._hold] * N_HOLDERS
        self._threads = [threading.Thread(target=self._work, args=(work,), daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Finish what is being read."""
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def _work(self, work: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                work()
            except OSError as error:
                self.losses.append(Loss(time.monotonic(), f"a read failed: {error}"))

    def _read(self) -> None:
        with self._open(self._choose()):
            self.n_reads += 1
        self._stop.wait(self._chance.uniform(0.05, 0.3))

    def _hold(self) -> None:
        name = self._choose()
        with self._open(name):
            self._stop.wait(1.0)
            inode = self._disk.inode(name)
            if inode is None:  # chosen to go before it was opened
                self.n_raced += 1
                return
            self.n_held += 1
            until = time.monotonic() + self._chance.uniform(5, 60)
            while time.monotonic() < until and not self._stop.wait(0.2):
                if self._disk.inode(name) != inode:
                    self.losses.append(Loss(time.monotonic(), f"open: {name_of(name)} is gone"))
                    return

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[None]:
        """A file open while the block runs, read to its end before and after it."""
        url, file = f"{self._site.servers.cache_url}/{name}", client.File()
        expected = (self._site.servers.origin_root / name[1:]).read_bytes()
        is_new = name_of(name) not in self._site.held()
        with self._fetching if is_new else contextlib.nullcontext():
            _done(file.open(url, timeout=120))
            _same(file, expected, name)
        try:
            yield
            _same(file, expected, name)
        finally:
            file.close(timeout=120)

    def _choose(self) -> str:
        """A file that the cache has; now and then one that it has not, while there is room."""
        held = self._site.held()
        with self._fetching:
            is_due = time.monotonic() - self._fetched_at >= FETCH_EVERY_S
            if is_due and len(held) < self.most:
                self._fetched_at = time.monotonic()
                return self._chance.choice(self._names)
        return self._chance.choice([name for name in self._names if name_of(name) in held] or self._names)


def _done(answer: tuple[object, object]) -> object:
    status, body = answer
    if not status.ok:  # type: ignore[attr-defined]
        raise OSError(status.message)  # type: ignore[attr-defined]
    return body


def _same(file: client.File, expected: bytes, name: str) -> None:
    if _done(file.read(0, len(expected) + 1, timeout=120)) != expected:
        raise OSError(f"{name} has other bytes than at its origin")


def read_at(other: Loopback, name: str) -> None:
    """Read a file of its own through another cache, as a job does."""
    other.add_file(name, bytes(MIB))
    with RemoteFile(f"{other.cache_url}/{name}", time.monotonic() + 60) as remote:
        remote.read_all()


def read_any(site: Site, name: str) -> None:
    """Read a file of any size as a job does."""
    with RemoteFile(f"{site.servers.cache_url}/{name}", time.monotonic() + 60) as remote:
        remote.read_all()


def forged(n_bytes: int) -> bytes:
    """A record that says that a file was used last in 2001, and that `n_bytes` of it are on disk."""
    blocks = b"\xff" * (n_bytes // BLOCK_BYTES // 8)
    access = AccessRecord(10**9, 10**9 + 10, 1, 10, 0, 0, 0, n_bytes, 0)
    return dump(CInfo(BLOCK_BYTES, n_bytes, 10**9, 0, 1, 0, blocks, (access,)))


@contextlib.contextmanager
def mapped(site: Site) -> Iterator[None]:
    """This process has mapped all files, and closed them, as Python's own maps do not."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *_NUMBERS]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    maps = []
    for path in site.servers.namespace.rglob("*.root"):
        with path.open("rb") as file:
            maps.append(libc.mmap(None, MIB, mmap.PROT_READ, mmap.MAP_PRIVATE, file.fileno(), 0))
    try:
        yield
    finally:
        for at in maps:
            libc.munmap(at, MIB)
