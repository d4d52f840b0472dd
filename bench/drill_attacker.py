"""Drill of an attacker: a steward beside a real XCache while somebody sends its collector whatever he likes.

bench/drill_attacker.py [--minutes N] [--seed N] [--xrootd VERSION] [--only PHASE ...]
exit code 1 if a promise breaks

An origin, an XCache with a disk for 64 files of 1 MiB, a collector and a steward are processes, and so is
the attacker. Jobs read all the time: short reads, reads that last, and files that a plan pins. Each phase is
one attack of `bench/forger.py`, or of jobs (`BY_JOBS`); or reports are missing, another XCache reports to the
same collector, the steward is killed and begins anew, or its settings name a capacity ten times too small.
The order of the phases and all that is forged follow from the seed.

What happens is measured on the cache's disk twenty times a second, never by the steward's figures; of these
only the target is taken. Jobs fetch no more than the cache has room for; what it purges by itself is known
from its log, and left out. What must hold is what `judged` says.

Needs the environment that `make verify` makes: .venv/bin/python bench/drill_attacker.py
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SERVERS = ROOT / "tests" / "support" / "servers"
sys.path[:0] = [str(ROOT), str(SERVERS)]

import xrootd_versions  # noqa: E402
from daemons import NoServer, free_ports  # noqa: E402
from forger import KINDS  # noqa: E402
from steward_site import (  # noqa: E402
    MIB,
    Site,
    eventually,
    forged,
    mapped,
    name_of,
    read_any,
    read_at,
    running,
)
from XRootD import client  # noqa: E402

from features.common.errors import CachecastError, InputError  # noqa: E402

N_FILES, N_PINS, N_READERS, N_HOLDERS = 140, 3, 3, 3
DISK_BYTES = 64 * MIB
KEPT_BYTES = int(0.9 * DISK_BYTES)
"""Nine tenths of the disk: the steward has to evict before the cache's own purge does."""
FULL = 58
"""Jobs fetch until the cache has so many files: more than the steward keeps, fewer than the cache does."""
FETCH_EVERY_S = 0.5
LOOK_S = 0.05
PURGE_TAKES_S = 5.0
"""From the first file that the cache purges by itself until its log says so, and that is read."""
BLIND_WITHIN_S = 15.0
"""So soon after its last report a steward must have stopped."""
RECOVERS_WITHIN_S = 180.0
"""What a flood has left is read first, on a machine that is busy."""
PUBLISHED_WITHIN_S = 2.0
"""After its target has changed a steward publishes it so soon, and it is read here."""
RSS_MORE_BYTES = 48 * MIB
"""What a steward of so few files may take more than when it began."""
SEED_FILES = 50
LOG_CHARS = 20_000
"""Of the stewards' logs, that are printed where a promise is broken."""


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
        found = {}
        for path in self._site.servers.namespace.rglob("*.root"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                found[path.name, status.st_ino] = status.st_blocks * 512
        return found

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
            self.gone = [one for one in self.gone if one.at_s < since_s]

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
    status, found = answer
    if not status.ok:  # type: ignore[attr-defined]
        raise OSError(status.message)  # type: ignore[attr-defined]
    return found


def _same(file: client.File, expected: bytes, name: str) -> None:
    if _done(file.read(0, len(expected) + 1, timeout=120)) != expected:
        raise OSError(f"{name} has other bytes than at its origin")


class Phase(NamedTuple):
    """What was done, from when to when, and the datagrams sent for it; `blind`: no report could come."""

    name: str
    begin_s: float
    end_s: float
    n_sent: int
    blind: bool


class Drill:
    """A site under attack."""

    def __init__(self, site: Site, minutes: float, seed: int) -> None:
        self.site, self.chance, self.phases = site, random.Random(seed), list[Phase]()
        self.broken = list[str]()
        site.configure(capacity_bytes=DISK_BYTES)
        names = site.files("x", N_FILES)
        for name in names[:SEED_FILES]:
            site.read(name)
        self.pinned, free = names[:N_PINS], names[N_PINS:]
        site.pin(*self.pinned, for_s=int(minutes * 60) + 3600)
        time.sleep(2.5)
        words = [
            sys.executable,
            str(ROOT / "bench" / "forger.py"),
            str(site.port),
            str(site.captures),
            str(seed),
        ]
        self._forger = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._steward = site.steward()
        time.sleep(1)
        self.disk = Disk(site)
        self.disk.steward_pid = self._steward.pid
        self.disk.start()
        self.jobs = Jobs(site, self.disk, free, random.Random(seed + 1))

    def attack(self, kind: str, seconds: float) -> int:
        """Let the attacker send for so long."""
        assert self._forger.stdin is not None and self._forger.stdout is not None
        self._forger.stdin.write(f"{kind}\t{seconds}\n")
        self._forger.stdin.flush()
        return int(self._forger.stdout.readline())

    def phase(self, name: str, seconds: float) -> None:
        """Carry out one phase."""
        began, n_sent, blind = time.monotonic(), 0, name in MISSING
        if blind:
            seconds = max(seconds, BLIND_WITHIN_S + 15)
            with MISSING[name](self.site):
                began, n_sent = time.monotonic(), self.attack("a mix of all", seconds)
                ended = time.monotonic()
        elif name == SECOND:
            self._second_cache(seconds)
        elif name in BY_JOBS:
            self._jobs_attack(BY_JOBS[name], seconds)
        elif name == MAPPED:
            with mapped(self.site):
                time.sleep(seconds)
        elif name == BEGUN_ANEW:
            self._steward.kill()
            self._begin()
            n_sent = self.attack("a mix of all", seconds)
        else:
            n_sent = self.attack(name, seconds)
        if self._steward.poll() is not None:
            self.broken.append(f"{name}: the steward ended with {self._steward.returncode}")
            self._begin()
        self.phases.append(Phase(name, began, ended if blind else time.monotonic(), n_sent, blind))

    def recover(self) -> None:
        """Nobody attacks any more: the steward must evict what is then too much."""
        began = time.monotonic()
        for name in self.site.files("y", 25):
            if len(self.site.held()) > FULL:
                break
            self.site.read(name)
        if not eventually(lambda: self._evicts_since(began), RECOVERS_WITHIN_S):
            self.broken.append(
                f"{RECOVERS_WITHIN_S:.0f} s after the attack too much is on disk: {self.disk.alarms_now}"
            )
        self.phases.append(Phase("nobody attacks any more", began, time.monotonic(), 0, False))

    def _evicts_since(self, at_s: float) -> bool:
        """Whether files went, and no more are left than the steward keeps."""
        gone = self.disk.gone
        return bool(gone) and gone[-1].at_s > at_s and self.disk.used <= KEPT_BYTES

    def misconfigured(self) -> None:
        """Begin anew with a capacity ten times too small, while nothing is fetched."""
        self.jobs.most = 0
        self.site.stop(self._steward)
        self.site.configure(capacity_bytes=DISK_BYTES // 10)
        began = time.monotonic()
        self._begin()
        eventually(lambda: "steward-implausible" in self.disk.alarms_now, 20)
        time.sleep(10)
        self.phases.append(Phase(TOO_SMALL, began, time.monotonic(), 0, False))

    def end(self) -> None:
        """End what was started here."""
        self._forger.stdin.close()  # type: ignore[union-attr]
        self._forger.wait(30)
        self.jobs.end()
        self.disk.end()

    def _begin(self) -> None:
        self._steward = self.site.steward()
        self.disk.steward_pid = self._steward.pid

    def _jobs_attack(self, made: Callable[[str], tuple[str, bytes]], seconds: float) -> None:
        """Read files that somebody has put at the origin."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            free = [name for name in sorted(self.site.held()) if f"/store/mc/{name}" not in self.pinned]
            name, content = made(f"/store/mc/{self.chance.choice(free)}")
            self.site.servers.add_file(name, content)
            with contextlib.suppress(CachecastError):
                read_any(self.site, name)
            time.sleep(FETCH_EVERY_S)

    def _second_cache(self, seconds: float) -> None:
        """Read through another cache of the same name."""
        with self.site.second_cache() as other:
            until = time.monotonic() + seconds
            for number in itertools.count():
                read_at(other, f"/store/mc/other{number}.root")
                if time.monotonic() > until:
                    return
                time.sleep(0.5)


@contextlib.contextmanager
def stopped(site: Site) -> Iterator[None]:
    """The collector has its lock, and writes nothing."""
    site.collector.send_signal(signal.SIGSTOP)
    yield
    site.collector.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def full(site: Site) -> Iterator[None]:
    """The collector's folder is full."""
    with _another_collector(site, lambda: site.configure(capacity_bytes=DISK_BYTES, quota="1B"), site.port):
        yield


@contextlib.contextmanager
def elsewhere(site: Site) -> Iterator[None]:
    """The server's monitoring goes where nobody listens."""
    with _another_collector(site, lambda: None, free_ports(1)[0]):
        yield


@contextlib.contextmanager
def _another_collector(site: Site, change: Callable[[], None], port: int) -> Iterator[None]:
    site.stop(site.collector)
    change()
    site.collector = site.collect(port)
    yield
    site.stop(site.collector)
    site.configure(capacity_bytes=DISK_BYTES)
    site.collector = site.collect()


MISSING = {
    "collector stopped": stopped,
    "collector's quota full": full,
    "monitoring sent elsewhere": elsewhere,
}
SECOND, BEGUN_ANEW = "a second XCache reports", "steward killed, begins anew"
RESTARTS = "restarts in its name"
MAPPED = "all files mapped by a process"
BY_JOBS: dict[str, Callable[[str], tuple[str, bytes]]] = {
    "records that jobs bring": lambda name: (f"{name}.cinfo", forged(MIB)),
    "names of 249 bytes": lambda name: (f"/store/mc/{name_of(name)[:20]:x>244}.root", bytes(MIB)),
}
"""A file that somebody puts at the origin and reads, by the name of one that the cache has."""
TOO_SMALL = "capacity ten times too small"


class Row(NamedTuple):
    """A phase, and what happened in it."""

    phase: Phase
    n_evicted: int
    n_open_lost: int
    n_pins_lost: int
    beyond_bytes: int
    n_while_blind: int
    blind_s: float
    peak_rss: int


def row(drill: Drill, phase: Phase) -> Row:
    """What happened in a phase."""
    disk = drill.disk
    during = [one for one in disk.gone if phase.begin_s <= one.at_s < phase.end_s]
    pins = {name_of(name) for name in drill.pinned}
    blind = [at_s for at_s, alarms in disk.alarms if "steward-blind" in alarms and _within(phase, at_s)]
    return Row(
        phase,
        n_evicted=sum(len(one.names) for one in during),
        n_open_lost=sum(_within(phase, loss.at_s) for loss in drill.jobs.losses),
        n_pins_lost=sum(name in pins for one in during for name in one.names),
        beyond_bytes=sum(beyond(disk, one) for one in during),
        n_while_blind=sum(phase.blind and one.at_s > phase.begin_s + BLIND_WITHIN_S for one in during),
        blind_s=len(blind) * 10 * LOOK_S,
        peak_rss=max((rss for at_s, rss in disk.rss if _within(phase, at_s)), default=0),
    )


def beyond(disk: Disk, one: Gone) -> int:
    """Bytes that went though the disk was below the target already: the last one published, or the next."""
    times = [at_s for at_s, _ in disk.targets]
    at = bisect.bisect(times, one.at_s)
    near = [target for at_s, target in disk.targets[max(0, at - 1) :] if at_s < one.at_s + PUBLISHED_WITHIN_S]
    return max(0, min(one.n_bytes, min(near, default=0) - MIB - one.left))


def _within(phase: Phase, at_s: float) -> bool:
    return phase.begin_s <= at_s < phase.end_s


def judged(drill: Drill, rows: list[Row]) -> list[str]:
    """The promises that were broken."""
    disk, broken = drill.disk, list(drill.broken)
    for one in rows:
        found = {
            "open files or reads lost": one.n_open_lost,
            "pins lost": one.n_pins_lost,
            "bytes evicted below the target": one.beyond_bytes,
            "files evicted while no report could come": one.n_while_blind,
        }
        broken += [f"{one.phase.name}: {n} {what}" for what, n in found.items() if n]
        if one.phase.blind and not one.blind_s:
            broken.append(f"{one.phase.name}: no alarm steward-blind")
    before = [one for one in rows if one.phase.name != TOO_SMALL]
    if (grown := max(one.peak_rss for one in before) - disk.rss[0][1]) > RSS_MORE_BYTES:
        broken.append(f"the steward grew by {grown // MIB} MiB")
    evicted = sum(one.n_bytes for one in disk.gone) // MIB
    room = (KEPT_BYTES - min(target for _, target in disk.targets if target > DISK_BYTES // 10)) // MIB
    if evicted > disk.received // MIB + room:
        broken.append(f"{evicted} MiB evicted, {disk.received // MIB} received, and {room} of room")
    told = [alarms for _, alarms in disk.alarms]
    if any(one.phase.name == RESTARTS for one in rows) and not any("two senders" in str(one) for one in told):
        broken.append("no alarm says that there are two senders of one name")
    small = [one for one in rows if one.phase.name == TOO_SMALL]
    if small and not any("steward-implausible" in one for one in told):
        broken.append("no alarm steward-implausible")
    if small and small[0].n_evicted > 2:
        broken.append(f"{TOO_SMALL}: {small[0].n_evicted} files went")
    if disk.unreadable:
        broken.append(disk.unreadable)
    return broken + ([] if disk.fault is None else [f"the drill itself failed: {disk.fault!r}"])


def table(rows: list[Row]) -> str:
    """The rows in Markdown."""
    heads = (
        *("attack", "s", "datagrams sent", "evictions", "open files lost", "pins lost"),
        *("MiB evicted beyond need", "evictions while blind", "s with the alarm", "peak RSS, MiB"),
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in rows:
        phase = one.phase
        cells = (
            *(phase.name, f"{phase.end_s - phase.begin_s:.0f}", phase.n_sent, one.n_evicted, one.n_open_lost),
            *(one.n_pins_lost, f"{one.beyond_bytes / MIB:.1f}", one.n_while_blind, f"{one.blind_s:.0f}"),
            one.peak_rss // MIB,
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


PHASES = (*KINDS, *BY_JOBS, MAPPED, *MISSING, SECOND, BEGUN_ANEW)


def main() -> int:
    """Drill, print the table, and say by the exit code whether all promises held."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--minutes", type=float, default=10.0, help="of the attack, about")
    options.add_argument("--seed", type=int, default=random.randrange(10**6), help="of all that is random")
    options.add_argument("--only", nargs="*", choices=PHASES, help="these phases")
    here = list(xrootd_versions.programs())
    options.add_argument("--xrootd", choices=here, default=here[0] if here else None, help="of the servers")
    chosen = options.parse_args()
    print(f"XRootD {chosen.xrootd}, seed {chosen.seed}\n", flush=True)
    phases = list(chosen.only or PHASES)
    random.Random(chosen.seed).shuffle(phases)
    seconds = max(5.0, chosen.minutes * 60 / len(phases))
    try:
        with xrootd_versions.in_use(chosen.xrootd or xrootd_versions.NONE), running(DISK_BYTES) as site:
            drill = Drill(site, chosen.minutes, chosen.seed)
            try:
                for name in phases:
                    drill.phase(name, seconds)
                    print(json.dumps({"done": name}), file=sys.stderr, flush=True)
                drill.recover()
                drill.misconfigured()
            finally:
                drill.end()
            rows = [row(drill, phase) for phase in drill.phases]
            broken = judged(drill, rows)
            if broken:
                print(site.log("steward")[-LOG_CHARS:], file=sys.stderr)
    except NoServer as error:
        print(f"not done: {error}")
        return 1
    jobs = drill.jobs
    print(table(rows))
    print(
        f"\n{jobs.n_reads} reads, {jobs.n_held} files held open, {jobs.n_raced} opened as they went;", end=" "
    )
    print(f"{drill.disk.n_purged} files purged by XCache itself, which are not counted.")
    print("\n".join(["", "Broken:", *(f"- {one}" for one in broken)]) if broken else "\nAll promises held.")
    for loss in jobs.losses[:5]:
        print(f"- {loss.what}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
