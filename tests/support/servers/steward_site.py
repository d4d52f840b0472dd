"""A real XCache with a collector and stewards beside it, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from daemons import NoServer

from features.errors import ServiceError
from jobs.local.ports import free_ports
from jobs.local.xrootd import Loopback, loopback
from prefetch.journal.journal import Journal
from prefetch.steward.figures import Figures, read
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.session import RemoteFile

MIB = 2**20
CAPACITY = 20 * MIB
_OPEN_S = 900.0
"""For so long a job may have a file open, on a machine that is busy."""
_PURGED = re.compile(r"Purge\(\) Finished, removed (\d+) data files")
COMMAND = [sys.executable, "-c", "from jobs.cli.main import main; main()"]


class Site:
    """A cache that purges above `CAPACITY`, its collector and its stewards, each a process of its own.

    `disk_bytes`: the cache has a disk of this size to itself, and its steward keeps below nine tenths of it.
    """

    def __init__(self, folder: Path, servers: Loopback, port: int, disk_bytes: int | None) -> None:
        self.folder, self.servers = folder, servers
        self.target = XCacheTarget("cache", servers.cache_url, servers.namespace)
        self.captures, self.conf = folder / "captures", folder / "conf"
        self._port = port
        self._running: list[subprocess.Popen[bytes]] = []
        (self.conf / "caches").mkdir(parents=True)
        (self.conf / "base.toml").write_text(
            f'[tables]\nroot = "{folder}/tables"\n[push]\njournal = "{folder}/journal.db"\ntimeout = "10s"\n'
            f'[steward]\nstate = "{folder}/steward"\nlook = "2s"\npolicy = "lru"\n'
        )
        (self.conf / "caches" / "cache.toml").write_text(
            f'name = "cache"\nkind = "xcache"\nurl = "{servers.cache_url}"\n'
            f'capacity = "{disk_bytes or CAPACITY}B"\nwatermarks = [0.5, {0.9 if disk_bytes else 1.0}]\n'
            f'namespace = "{servers.namespace}"\ngstream = "{self.captures}"\n'
        )
        with contextlib.closing(Journal(f"{folder}/journal.db")) as journal:
            journal.make()
        self.collector = self.collect()

    def collect(self) -> subprocess.Popen[bytes]:
        """A collector, which listens when this returns."""
        words = ["collect", "--port", str(self._port), "--out", str(self.captures), "--conf", str(self.conf)]
        return self._start(words, "listening")

    def steward(self) -> subprocess.Popen[bytes]:
        """A steward, which knows the cache when this returns."""
        return self._start(["steward", "--cache", "cache", "--conf", str(self.conf)], "began")

    def refused(self) -> str:
        """What a steward says that does not begin."""
        words = ["steward", "--cache", "cache", "--conf", str(self.conf)]
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        return done.stderr

    def files(self, what: str, n_files: int) -> list[str]:
        """Files of 1 MiB at the origin."""
        names = [f"/store/mc/{what}{number:02}.root" for number in range(n_files)]
        for name in names:
            self.servers.add_file(name, os.urandom(MIB))
        return names

    def read(self, name: str) -> None:
        """Read a file as a job does."""
        with RemoteFile(f"{self.servers.cache_url}/{name}", time.monotonic() + 60) as remote:
            assert remote.read_all() == MIB

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """A job that has a file open while the block runs, and reads it again at the end."""
        with RemoteFile(f"{self.servers.cache_url}/{name}", time.monotonic() + _OPEN_S) as remote:
            assert remote.read_all() == MIB
            yield
            assert remote.read_all() == MIB

    def held(self) -> set[str]:
        """Last parts of the names of files on disk."""
        return {path.name for path in self.servers.namespace.rglob("*.root")}

    def purged(self) -> tuple[int, int]:
        """By the cache's own log: how often it has looked whether to purge, and the files that it purged."""
        log = self.servers.cache.log.read_text(errors="replace")
        return log.count("Purge() Started"), sum(map(int, _PURGED.findall(log)))

    @property
    def figures(self) -> Figures:
        """What the steward reported last."""
        found = read(self.folder / "steward" / "cache.json")
        assert found is not None
        return found

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End one process of this site."""
        process.terminate()
        process.wait(30)

    def end(self) -> None:
        """End what was started here."""
        for process in self._running:
            process.send_signal(signal.SIGCONT)
            self.stop(process)

    def _start(self, words: list[str], when: str) -> subprocess.Popen[bytes]:
        """A command of ours; its log says `when` it works."""
        log = self.folder / f"{words[0]}{len(self._running)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen([*COMMAND, *words], stderr=out)
        self._running.append(process)
        assert eventually(lambda: when in log.read_text() or process.poll() is not None, 60)
        assert process.poll() is None, log.read_text()
        return process


@contextlib.contextmanager
def running(disk_bytes: int | None = None) -> Iterator[Site]:
    """A site of its own; `disk_bytes`: on a file system of this size, which needs root."""
    with tempfile.TemporaryDirectory(prefix="xc-") as folder:
        Path(folder).chmod(0o755)
        (port,) = free_ports(1)
        limits = (4 * MIB, 8 * MIB, CAPACITY) if disk_bytes is None else None
        try:
            with (
                _disk(Path(folder) / "lb" / "ns", disk_bytes),
                loopback(
                    Path(folder) / "lb",
                    files_limit=limits,
                    gstream_port=port,
                    reports_opens=True,
                    more="pfc.trace info\n",
                ) as servers,
            ):
                site = Site(Path(folder), servers, port, disk_bytes)
                try:
                    yield site
                finally:
                    site.end()
        except ServiceError as error:
            raise NoServer(str(error)) from None


@contextlib.contextmanager
def _disk(folder: Path, n_bytes: int | None) -> Iterator[None]:
    """A file system of so many bytes at `folder`, in memory; None: no other one than around it."""
    if n_bytes is None:
        yield
        return
    folder.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes},mode=755", "none", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoServer(f"no disk of its own: {done.stderr.strip()}")
    try:
        shutil.chown(folder, "xrootd")
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def eventually(so: Callable[[], bool], within_s: float = 20.0) -> bool:
    """Whether `so` becomes true in time."""
    deadline = time.monotonic() + within_s
    while not so() and time.monotonic() < deadline:
        time.sleep(0.1)
    return bool(so())


def name_of(lfn: str) -> str:
    """The last part of a file's name."""
    return lfn.rpartition("/")[2]
