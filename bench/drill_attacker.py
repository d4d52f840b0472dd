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
from its log, and left out. What must hold is what `attack_report.judged` says.

Needs the environment that `make verify` makes: .venv/bin/python bench/drill_attacker.py
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVERS = ROOT / "tests" / "support" / "servers"
sys.path[:0] = [str(ROOT), str(SERVERS)]

import xrootd_versions  # noqa: E402
from attack_report import (  # noqa: E402
    BLIND_WITHIN_S,
    DISK_BYTES,
    KEPT_BYTES,
    TOO_SMALL,
    Phase,
    judged,
    row,
    table,
)
from attacked_cache import (  # noqa: E402
    FETCH_EVERY_S,
    FULL,
    Disk,
    Jobs,
    forged,
    mapped,
    read_any,
    read_at,
)
from daemons import free_ports  # noqa: E402
from forger import KINDS  # noqa: E402
from steward_site import MIB, Site, name_of, running  # noqa: E402
from waiting import eventually  # noqa: E402

from features.common.errors import CachecastError, ServiceError  # noqa: E402

N_FILES, N_PINS = 140, 3
RECOVERS_WITHIN_S = 180.0
"""What a flood has left is read first, on a machine that is busy."""
SEED_FILES = 50
LOG_CHARS = 20_000
"""Of the stewards' logs, that are printed where a promise is broken."""


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
        forger = str(ROOT / "bench" / "forger.py")
        words = [sys.executable, forger, str(site.port), str(site.captures), str(seed)]
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

    def _jobs_attack(self, attack: Callable[[str], tuple[str, bytes]], seconds: float) -> None:
        """Read files that somebody has put at the origin."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            free = [name for name in sorted(self.site.held()) if f"/store/mc/{name}" not in self.pinned]
            name, content = attack(f"/store/mc/{self.chance.choice(free)}")
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
MAPPED = "all files mapped by a process"
BY_JOBS: dict[str, Callable[[str], tuple[str, bytes]]] = {
    "records that jobs bring": lambda name: (f"{name}.cinfo", forged(MIB)),
    "names of 249 bytes": lambda name: (f"/store/mc/{name_of(name)[:20]:x>244}.root", bytes(MIB)),
}
"""A file that somebody puts at the origin and reads, by the name of one that the cache has."""
PHASES = (*KINDS, *BY_JOBS, MAPPED, *MISSING, SECOND, BEGUN_ANEW)


def main() -> int:
    """Drill, print the table, and say by the exit code whether all promises held."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--minutes", type=float, default=10.0, help="of the attack, about")
    options.add_argument("--seed", type=int, default=random.randrange(10**6), help="of all that is random")
    options.add_argument("--only", nargs="*", choices=PHASES, help="these phases")
    here = list(xrootd_versions.programs())
    options.add_argument("--xrootd", choices=here, default=here[0] if here else None, help="of the servers")
    arguments = options.parse_args()
    print(f"XRootD {arguments.xrootd}, seed {arguments.seed}\n", flush=True)
    phases = list(arguments.only or PHASES)
    random.Random(arguments.seed).shuffle(phases)
    seconds = max(5.0, arguments.minutes * 60 / len(phases))
    try:
        with xrootd_versions.in_use(arguments.xrootd or xrootd_versions.NONE), running(DISK_BYTES) as site:
            drill = Drill(site, arguments.minutes, arguments.seed)
            try:
                for name in phases:
                    drill.phase(name, seconds)
                    print(json.dumps({"done": name}), file=sys.stderr, flush=True)
                drill.recover()
                drill.misconfigured()
            finally:
                drill.end()
            rows = [row(phase, drill.disk, drill.jobs.losses, drill.pinned) for phase in drill.phases]
            broken = drill.broken + judged(drill.disk, rows)
            if broken:
                print(site.log("steward")[-LOG_CHARS:], file=sys.stderr)
    except ServiceError as error:
        print(f"not done: {error}")
        return 1
    jobs = drill.jobs
    print(table(rows))
    print(
        f"\n{jobs.n_reads} reads, {jobs.n_held} files held open, {jobs.n_raced} opened as they went;", end=" "
    )
    print(f"{drill.disk.n_purged} files purged by XCache itself, which are not counted.")
    print("\n".join(["", "Broken:", *(f"- {line}" for line in broken)]) if broken else "\nAll promises held.")
    for loss in jobs.losses[:5]:
        print(f"- {loss.what}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
