"""A push that is really killed, again and again, loses nothing and fetches nothing twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from prefetch.actions import Action
from prefetch.directory.cache import DirectoryTarget
from prefetch.journal.journal import Item, Journal
from prefetch.push.push import PushLimits, push

N_FILES = 120
CHILD = """
import os, sys, time
from pathlib import Path
from prefetch.directory.cache import DirectoryTarget
from prefetch.journal.journal import Journal
from prefetch.push.push import PushLimits, push

folder = Path(sys.argv[1])
log = os.open(folder / "fetches.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

class Logged(DirectoryTarget):
    def _copy(self, source, path, deadline):
        os.write(log, f"start {path.name}\\n".encode())
        time.sleep(0.01)
        size = super()._copy(source, path, deadline)
        os.write(log, f"end {path.name}\\n".encode())
        time.sleep(0.01)
        return size

target = Logged("d", folder / "origin", folder / "cache")
journal = Journal(str(folder / "journal.db"))
push(target, journal, cache="d", limits=PushLimits(parallel=3, attempts=99))
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_points(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    now = int(time.time())
    plan = []
    for number in range(N_FILES):
        path = tmp_path / "origin" / f"f{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(5000))
        plan.append(
            Item(
                f"i{number}",
                "d",
                now,
                f"t:f{number}",
                f"/f{number}",
                Action.PREFETCH,
                number,
                5000,
                5000,
                now + 3600,
                basis="known",
            )
        )
    journal = Journal(str(tmp_path / "journal.db"))
    journal.record_plan(plan, now_s=now)
    n_kills = _run_and_kill(tmp_path, journal, chance)
    assert n_kills >= 4
    assert {state: n for state, n in journal.counts().items() if n} == {"done": N_FILES}
    for number in range(N_FILES):
        assert (tmp_path / "cache/files" / f"f{number}").read_bytes() == (
            tmp_path / "origin" / f"f{number}"
        ).read_bytes()
    events = [line.split() for line in (tmp_path / "fetches.log").read_text().splitlines()]
    ended = Counter(name for what, name in events if what == "end")
    assert max(ended.values()) == 1
    seen: set[str] = set()
    for what, name in events:
        assert name not in seen, f"{name} was fetched again after it was there"
        seen |= {name} if what == "end" else set()
    # Only what was under way at a kill, at most `parallel` files, may be started again.
    assert sum(what == "start" for what, _ in events) <= N_FILES + 3 * n_kills
    target = DirectoryTarget("d", tmp_path / "origin", tmp_path / "cache")
    again = push(target, journal, cache="d", limits=PushLimits())
    assert (again.pushed, again.already_done) == (0, 0)
    journal.close()


def _run_and_kill(folder: Path, journal: Journal, chance: random.Random) -> int:
    n_kills = 0
    for _ in range(60):
        done_before = journal.counts()["done"]
        if done_before == N_FILES:
            return n_kills
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder)], stderr=subprocess.PIPE, text=True
        )
        while child.poll() is None and journal.counts()["done"] < done_before + 2 + chance.randrange(6):
            time.sleep(0.005)
        time.sleep(chance.random() * 0.03)
        child.send_signal(signal.SIGKILL)
        _, errors = child.communicate()
        assert child.returncode in (0, -signal.SIGKILL), errors
        n_kills += child.returncode != 0
    raise AssertionError("the pushes do not get on")
