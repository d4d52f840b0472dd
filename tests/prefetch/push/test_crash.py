"""Pushers that are really killed or paused, and a second one, lose nothing and fetch nothing twice."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from cases import IS_THOROUGH

from prefetch.actions import Action
from prefetch.directory import DirectoryTarget
from prefetch.journal.journal import Item, Journal
from prefetch.journal.lease import LEASE_S
from prefetch.push.push import PushLimits, push

N_FILES = 120 if IS_THOROUGH else 48
CHILD = """
import os, sys, time
from pathlib import Path
from prefetch.directory import DirectoryTarget
from prefetch.journal import journal as opened
from prefetch.push.push import PushLimits, push

opened._PATIENCE_S = 10  # for twice as long others wait for one that is paused within a transaction
folder = Path(sys.argv[1])
log = os.open(folder / "fetches.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

class Logged(DirectoryTarget):
    def _copy(self, source, path, deadline):
        os.write(log, f"start {path.name}\\n".encode())
        time.sleep(0.04)
        size = super()._copy(source, path, deadline)
        os.write(log, f"end {path.name}\\n".encode())
        time.sleep(0.04)
        return size

target = Logged("d", folder / "origin", folder / "cache")
journal, later_s = opened.Journal(sys.argv[2]), float(sys.argv[3])
limits = PushLimits(parallel=3, attempts=99)
push(target, journal, cache="d", now_s=lambda: time.time() + later_s, limits=limits)
"""


PARALLEL = 3


@pytest.fixture
def journal(any_journal: Journal, tmp_path: Path) -> Journal:
    """The journal of a plan of `N_FILES` prefetches into the folder `tmp_path`."""
    now = int(time.time())
    origin = tmp_path / "origin"
    origin.mkdir()
    plan = list[Item]()
    for n in range(N_FILES):
        (origin / f"f{n}").write_bytes(os.urandom(5000))
        what = (f"i{n}", "d", now, f"t:f{n}", f"/f{n}", Action.PREFETCH, n, 5000, 5000, now + 3600)
        plan.append(Item(*what, basis="known"))
    any_journal.plans.record_plan(plan, now_s=now)
    return any_journal


def test_killed_at_random_points(journal: Journal, url: str, tmp_path: Path) -> None:
    n_kills = _run_and_kill(tmp_path, url, journal, random.Random(1))
    assert n_kills >= 2
    _check_all_is_there_once(tmp_path, journal, n_stops=n_kills)
    target = DirectoryTarget("d", tmp_path / "origin", tmp_path / "cache")
    again = push(target, journal, cache="d", limits=PushLimits())
    assert (again.pushed, again.already_done) == (0, 0)


def test_a_second_pusher_does_nothing_until_the_first_one_is_dead(
    journal: Journal, url: str, tmp_path: Path
) -> None:
    first = _pusher(tmp_path, url)
    _await_done(journal, first, 5)
    _pause_between_writes(first, url)
    _, refused = (second := _pusher(tmp_path, url)).communicate()
    assert second.returncode == 1 and f"process {first.pid} on " in refused
    assert journal.reports.counts()["running"] > 0
    first.kill()
    first.communicate()
    _, errors = (third := _pusher(tmp_path, url)).communicate()
    assert third.returncode == 0, errors
    _check_all_is_there_once(tmp_path, journal, n_stops=1)


def test_a_paused_pusher_that_lost_its_lease_writes_nothing(
    journal: Journal, url: str, tmp_path: Path
) -> None:
    paused = _pusher(tmp_path, url)
    _await_done(journal, paused, 5)
    _pause_between_writes(paused, url)
    _, errors = (second := _pusher(tmp_path, url, later_s=LEASE_S + 1)).communicate()
    assert second.returncode == 0, errors
    before = list(journal.reports.receipts())
    paused.send_signal(signal.SIGCONT)
    _, lost = paused.communicate()
    # PostgreSQL ends the connection of one that is paused within a transaction: others wait for its locks.
    assert paused.returncode == 1 and ("lost its lease to" in lost or "does not answer" in lost)
    assert list(journal.reports.receipts()) == before
    events = [line.split() for line in (tmp_path / "fetches.log").read_text().splitlines()]
    assert sum(what == "start" for what, _ in events) <= N_FILES + PARALLEL
    assert journal.reports.counts()["done"] == N_FILES


def _check_all_is_there_once(folder: Path, journal: Journal, *, n_stops: int) -> None:
    assert {state: n for state, n in journal.reports.counts().items() if n} == {"done": N_FILES}
    for n in range(N_FILES):
        assert (folder / "cache/files" / f"f{n}").read_bytes() == (folder / "origin" / f"f{n}").read_bytes()
    events = [line.split() for line in (folder / "fetches.log").read_text().splitlines()]
    ended = Counter(name for what, name in events if what == "end")
    assert max(ended.values()) == 1
    fetched: set[str] = set()
    for what, name in events:
        assert name not in fetched, f"{name} was fetched again after it was there"
        fetched |= {name} if what == "end" else set()
    # Only what was in flight at a stop, at most `PARALLEL` files, may be started again.
    assert sum(what == "start" for what, _ in events) <= N_FILES + PARALLEL * n_stops


def _pusher(folder: Path, url: str, *, later_s: float = 0.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(folder), url, str(later_s)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def _pause_between_writes(child: subprocess.Popen[str], url: str) -> None:
    """SQLite's one lock stays with a process that is paused within a transaction: nobody writes then."""
    while child.poll() is None:
        child.send_signal(signal.SIGSTOP)
        if "://" in url or _is_writable(url):
            return
        child.send_signal(signal.SIGCONT)
        time.sleep(0.01)


def _is_writable(file: str) -> bool:
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
        connection.execute("rollback")
        return True


def _await_done(journal: Journal, child: subprocess.Popen[str], n_done: int) -> None:
    while child.poll() is None and journal.reports.counts()["done"] < n_done:
        time.sleep(0.01)


def _run_and_kill(folder: Path, url: str, journal: Journal, chance: random.Random) -> int:
    n_kills = 0
    for _ in range(60):
        done_before = journal.reports.counts()["done"]
        if done_before == N_FILES:
            return n_kills
        child = _pusher(folder, url)
        _await_done(journal, child, done_before + 2 + chance.randrange(6))
        time.sleep(chance.random() * 0.03)
        child.send_signal(signal.SIGKILL)
        _, errors = child.communicate()
        assert child.returncode in (0, -signal.SIGKILL), errors
        n_kills += child.returncode != 0
    raise AssertionError("the pushes do not get on")
