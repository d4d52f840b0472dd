"""A real XCache with a collector and stewards beside it, each a process of its own."""

import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from commands import COMMAND
from daemons import NoServer, open_folder
from waiting import eventually

from features.common.errors import TargetUnavailable
from jobs.local_site.demo.site import MARKS
from jobs.local_site.demo.xcache import XCache
from jobs.local_site.local.process import free_ports
from jobs.local_site.local.xrootd import Loopback, loopback
from prefetch.actions import Action
from prefetch.journal.journal import Item, Journal
from prefetch.journal.tables import KNOWN
from prefetch.push.push import PushLimits, push
from prefetch.steward.figures import StewardFigures, read
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.events import FileClose
from prefetch.xcache.gstream import CaptureReader
from prefetch.xcache.session import RemoteFile

MIB = 2**20
CAPACITY = 20 * MIB
MOST_FILES = 15
"""A steward that has just begun keeps so many files of a MiB in a cache of `CAPACITY`."""
TEST_FILES = "/store/probe/"
"""Only monitoring reads what is there."""
_OPEN_S = 900.0
"""For so long a job may have a file open, on a machine that is busy."""
STARTS_WITHIN_S = 240.0
"""A command may read hundreds of megabytes of captures first, on a machine that is busy."""
_NAMELESS = "xrootd.monitor all auth fstat 1s ops xfr 5 dest fstat user info 127.0.0.1:{}\n"
_SPACES = "oss.space data {}\noss.space meta {}\npfc.spaces data meta\n"
_PURGED = re.compile(r"Finished, removed (\d+) data files")
_LOOKED = re.compile(r"Purge\(\) Started|purge not required|scheduling purge task")
"""In the log of a cache: 5.5.3 has the first, newer ones the others."""
_WITHOUT_PTRACE = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")


class Site:
    """A cache that purges above `CAPACITY`, its collector and its stewards, each a process of its own.

    `disk_bytes`: the cache has a disk of this size to itself, and its steward keeps below nine tenths of it.
    """

    def __init__(
        self, folder: Path, servers: Loopback, port: int, disk_bytes: int | None, spaces: Sequence[Path] = ()
    ) -> None:
        self.folder, self.servers, self._spaces = folder, servers, spaces
        self.target = XCacheTarget("cache", servers.cache_url, servers.namespace, spaces=spaces)
        self.captures, self.conf = folder / "captures", folder / "conf"
        self._job = XCache(servers, self.captures, MARKS)
        self.port, self._n_started = port, 0
        self._running: list[subprocess.Popen[bytes]] = []
        # The server takes space for a new file twice, and looks for what is free once a minute.
        self._marks = (0.2, 0.4) if spaces else (0.5, 0.9 if disk_bytes else 1.0)
        (self.conf / "caches").mkdir(parents=True)
        self.configure(capacity_bytes=disk_bytes or CAPACITY)
        self._make_journal()
        self.collector = self.collect()

    def configure(
        self,
        *,
        capacity_bytes: int = CAPACITY,
        journal: str | None = None,
        quota: str = "1GB",
        test_files: str = f"{TEST_FILES}*",
        namespace: Path | None = None,
    ) -> None:
        """Write the configuration; what was started before keeps what it has read.

        `quota`: of captures; `namespace`: None: the cache's own.
        """
        folder = self.folder
        (self.conf / "base.toml").write_text(
            f'[tables]\nroot = "{folder}/tables"\n[collect]\nquota = "{quota}"\n'
            f'[push]\njournal = "{journal or self.journal}"\ntimeout = "10s"\n'
            f'[plan]\ntest_files = ["{test_files}"]\n'
            f'[steward]\nstate = "{folder}/steward"\nlook = "2s"\npolicy = "lru"\n'
        )
        (self.conf / "caches" / "cache.toml").write_text(
            f'name = "cache"\nkind = "xcache"\nurl = "{self.servers.cache_url}"\n'
            f'capacity = "{capacity_bytes}B"\nwatermarks = {list(self._marks)}\n'
            f'namespace = "{namespace or self.servers.namespace}"\ngstream = "{self.captures}"\n'
            f"spaces = {[str(space) for space in self._spaces]}\n"
            'steward = true\nevict_guard = "0s"\n'
        )

    @property
    def journal(self) -> Path:
        """Where plans and pins are kept."""
        return self.folder / "journal.db"

    def pin(self, *names: str, for_s: int = 3600, journal: str | None = None) -> None:
        """Pin files for so long, as a push does for a plan; `journal`: another one than the site's."""
        at_s = int(time.time())
        items = self._items(Action.PIN, names, at_s, at_s + for_s)
        limits = PushLimits(timeout_s=20, evict_guard_s=0)
        with contextlib.closing(Journal(journal or str(self.journal))) as pushes:
            pushes.plans.record_plan(items, now_s=time.time())
            assert push(self.target, pushes, cache="cache", limits=limits).failed == 0
            assert {pin.name for pin in pushes.reports.pins("cache", now_s=time.time())} >= set(names)

    def evict(self, *names: str, at_once: bool = False) -> dict[str, Any]:
        """Push a plan that evicts files, by command; what it answers."""
        at_s = int(time.time())
        with contextlib.closing(Journal(str(self.journal))) as journal:
            journal.plans.record_plan(self._items(Action.EVICT, names, at_s, at_s + 3600), now_s=time.time())
        words = ["push", "resume", "--cache", "cache", "--json", "--conf", str(self.conf)]
        words += ["--evict-now", "--force"] if at_once else []
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=300, check=False)
        return dict(json.loads(done.stdout))

    def _items(self, action: Action, names: Sequence[str], at_s: int, expires_at_s: int) -> list[Item]:
        return [
            Item(
                *(f"{action}{name}{at_s}", "cache", at_s, f"t:{name}", name),
                *(action, rank, MIB, 0, expires_at_s),
                basis=KNOWN,
            )
            for rank, name in enumerate(names, 1)
        ]

    def collect(self, port: int | None = None) -> subprocess.Popen[bytes]:
        """A collector, which listens when this returns; at another `port` it hears nobody."""
        words = ["collect", "--port", str(port or self.port), "--out", str(self.captures)]
        return self._start([*words, "--conf", str(self.conf)], "listening")

    def steward(self, *, sees_processes: bool = True, began: bool = True) -> subprocess.Popen[bytes]:
        """A steward, which knows the cache when this returns, unless it need not have `began`.

        `sees_processes` False: of an account that reads the cache's disk, and not what processes have open.
        """
        blinkers = () if sees_processes else _WITHOUT_PTRACE
        words = ["steward", "--cache", "cache", "--conf", str(self.conf)]
        return self._start(words, "began" if began else "", blinkers)

    def forge(self, *datagrams: bytes) -> None:
        """Send datagrams to the collector, as anybody on its host can."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for datagram in datagrams:
                sender.sendto(datagram, ("127.0.0.1", self.port))

    @contextlib.contextmanager
    def second_cache(self) -> Iterator[Loopback]:
        """Another XCache of the same name, which reports to the same collector; nobody has configured it."""
        with loopback(self.folder / "lb2", gstream_port=self.port, reports_opens=True) as servers:
            yield servers

    def empty(self) -> None:
        """Begin anew: no steward and no files, captures, journal or figures of before; the servers stay."""
        self.end()
        self.configure()
        for folder in (self.captures, self.folder / "steward", self.folder / "tables"):
            shutil.rmtree(folder, ignore_errors=True)
        self.lose_journal()
        self._make_journal()
        self.collector = self.collect()
        self.make_heard()

    def make_heard(self) -> None:
        """Have the server report to the new collector, and empty it.

        Seen on 5.5.3, 5.9.9 and 6.2.1: after a packet that no process received, the kernel refuses the next
        one, and the server drops it. A 5.5.3 sometimes reports nothing more at all, for a reason that was not
        found; a steward says so (steward-blind). It is started again then.
        """
        name = f"{TEST_FILES}heard.root"
        self.servers.add_file(name, os.urandom(MIB))

        def heard() -> bool:
            self.read(name)
            return eventually(lambda: name in self._closed(), 3)

        if not eventually(heard, 30):
            self.servers.restart_cache()
            assert eventually(heard)
        assert eventually(self.is_emptied), self.held()

    def is_emptied(self) -> bool:
        """Ask for all files to go; those that the cache still has in hand go when asked again.

        Not those of an inventory, which no server vouches for whose files go meanwhile.
        """
        root = self.servers.namespace
        with contextlib.suppress(TargetUnavailable, FileNotFoundError):
            for record in root.rglob("*.root.cinfo"):
                self.target.evict(f"/{record.relative_to(root).with_suffix('')}", timeout_s=20)
        return not self.held()

    def knows_pins(self, *names: str) -> bool:
        """Whether a steward has read in the journal that these files are pinned."""
        pins = self.figures_file.with_suffix(".pins")
        return pins.exists() and set(names) <= json.loads(pins.read_text()).keys()

    def refused(self) -> str:
        """What a steward says that does not begin."""
        words = ["steward", "--cache", "cache", "--conf", str(self.conf)]
        done = subprocess.run(
            [*COMMAND, *words], capture_output=True, text=True, timeout=STARTS_WITHIN_S, check=False
        )
        assert done.returncode == 1
        return done.stderr

    def files(self, what: str, n_files: int) -> list[str]:
        """Files of 1 MiB at the origin."""
        names = [f"/store/mc/{what}{number:02}.root" for number in range(n_files)]
        for name in names:
            self.servers.add_file(name, os.urandom(MIB))
        return names

    def read(self, name: str) -> None:
        """Read a file as a job does that closes it once it is on the disk: else its report may come late."""
        assert self._job.read_and_settle(name) == MIB

    def read_all(self, names: list[str]) -> list[str]:
        """Read files one after the other; the same names."""
        for name in names:
            self.read(name)
        return names

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """A job that has a file open while the block runs, and reads it again at the end."""
        with RemoteFile(f"{self.servers.cache_url}/{name}", time.monotonic() + _OPEN_S) as remote:
            assert remote.read_all() == MIB
            yield
            assert remote.read_all() == MIB

    def reported(self, *names: str) -> None:
        """Wait until the collector has heard of a close of each of these files."""
        assert eventually(lambda: self._closed() >= set(names)), set(names) - self._closed()

    def _closed(self) -> set[str]:
        captures = sorted(self.captures.glob("gstream-*"))
        events = (event for path in captures for event in CaptureReader(path).events())
        return {event.lfn for event in events if isinstance(event, FileClose)}

    def held(self) -> set[str]:
        """Last parts of the names of files on disk."""
        return {path.name for path in self.servers.namespace.rglob("*.root")}

    def makes_room(self, most_files: int = MOST_FILES) -> bool:
        """Whether a steward comes down to so many files of a MiB."""
        return eventually(lambda: len(self.held()) <= most_files)

    def purged(self) -> tuple[int, int]:
        """By the cache's own log: how often it has looked whether to purge, and the files that it purged."""
        log = self.servers.cache.log.read_text(errors="replace")
        return len(_LOOKED.findall(log)), sum(map(int, _PURGED.findall(log)))

    @property
    def figures(self) -> StewardFigures:
        """What the steward reported last; it is waited for the first report of a new one."""

        def reported() -> StewardFigures | None:
            figures = read(self.figures_file)
            return figures if figures is not None and figures.high_bytes else None

        figures = eventually(reported)
        assert figures is not None
        return figures

    @property
    def figures_file(self) -> Path:
        """Where the steward reports of itself."""
        return self.folder / "steward" / "cache" / "cache.json"

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End one process of this site."""
        process.terminate()
        process.wait(120)

    def end(self) -> None:
        """End what was started here."""
        for process in self._running:
            process.send_signal(signal.SIGCONT)
            self.stop(process)
        self._running.clear()

    def lose_journal(self) -> None:
        """Remove the files of the journal; a reader that ends takes its own with it."""
        for path in self.folder.glob("journal.db*"):
            path.unlink(missing_ok=True)

    def _make_journal(self) -> None:
        with contextlib.closing(Journal(str(self.journal))) as journal:
            journal.make()

    def log(self, what: str) -> str:
        """All that the processes of one command have logged, the first first."""
        logs = sorted(self.folder.glob(f"{what}*.log"), key=lambda path: path.stat().st_ctime)
        return "".join(path.read_text() for path in logs)

    def _start(self, words: list[str], when: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """A command of ours; its log says `when` it works."""
        self._n_started += 1
        log = self.folder / f"{words[0]}{self._n_started}.log"
        with log.open("wb") as out:
            process = subprocess.Popen([*before, *COMMAND, *words], stderr=out)
        self._running.append(process)
        works = eventually(lambda: when in log.read_text() or process.poll() is not None, STARTS_WITHIN_S)
        assert works and process.poll() is None, log.read_text()
        return process


@contextlib.contextmanager
def running(
    disk_bytes: int | None = None, *, names_bytes: int | None = None, names_files: bool = True
) -> Iterator[Site]:
    """A site of its own; `disk_bytes`: on a file system of this size, which needs root.

    `names_bytes`: links and records lie on another one, of this size (`oss.space`). `names_files` False: the
    server's `xrootd.monitor` has no `lfn`.
    """
    with open_folder() as folder:
        (port,) = free_ports(1)
        base = folder / "lb"
        data, meta = base / "data", base / "ns" / "meta"
        more = "" if names_bytes is None else _SPACES.format(data, meta)
        limits = (4 * MIB, 8 * MIB, CAPACITY) if disk_bytes is None else None
        with (
            memory_disk(base / "ns", disk_bytes if names_bytes is None else names_bytes),
            memory_disk(data, None if names_bytes is None else disk_bytes),
            loopback(
                base,
                files_limit=limits,
                gstream_port=port,
                reports_opens=names_files,
                more=f"pfc.trace info\n{more}" + ("" if names_files else _NAMELESS.format(port)),
            ) as servers,
        ):
            site = Site(folder, servers, port, disk_bytes, (data, meta) if more else ())
            try:
                site.make_heard()
                yield site
            finally:
                site.end()


@contextlib.contextmanager
def memory_disk(folder: Path, n_bytes: int | None) -> Iterator[None]:
    """A file system of so many bytes at `folder`, in memory; None: no other one than around it."""
    if n_bytes is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    is_root = os.geteuid() == 0
    as_root = [] if is_root else ["sudo", "-n"]
    owner = pwd.getpwnam("xrootd").pw_uid if is_root else os.geteuid()  # whom servers run as
    how = f"size={n_bytes},nr_inodes=0,mode=755,uid={owner}"
    words = [*as_root, "mount", "-t", "tmpfs", "-o", how, "none", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoServer(f"no disk of its own: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run([*as_root, "umount", "-l", str(folder)], check=True)


def name_of(lfn: str) -> str:
    """The last part of a file's name."""
    return lfn.rpartition("/")[2]
