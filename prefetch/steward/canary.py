"""Which files are open, and the canary: a file that a steward opens to see that the cache reports it."""

from __future__ import annotations

import contextlib
import math
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from features.common.errors import PushError
from prefetch.lfn import reported
from prefetch.steward.feed import Report
from prefetch.target import CacheTarget
from prefetch.xcache.events import FileClose
from prefetch.xcache.fstream import Packet

_RECENT_S: Final = 0.1

_Inode = tuple[int, int]


class OpenFiles:
    """Which files of the namespace at `root` are open, by the kernel: reports come a second late.

    Files are compared by device and inode, as containers have other paths. Only processes of the same user
    are seen: a steward has to run as the cache's user.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._inodes: set[_Inode] = set()
        self._looked_at = -math.inf
        self._looking = threading.Lock()

    def has(self, name: str, *, within_s: float = _RECENT_S) -> bool:
        """Whether file `name` of the cache was open at a look that began at most `within_s` ago."""
        since = time.monotonic() - within_s
        with self._looking:  # who waits here shares the next look with others who do
            if self._looked_at < since:
                self.look()
            inodes = self._inodes
        try:
            status = Path(f"{self._root}{name}").stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) in inodes

    def look(self) -> None:
        """See what is open now; with many open files this takes a while."""
        began = time.monotonic()
        self._inodes, self._looked_at = _open_inodes(), began


def _open_inodes() -> set[_Inode]:
    """The files behind all descriptors that we may see."""
    inodes = set[_Inode]()
    for process in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208  paths take twice as long
        with contextlib.suppress(OSError):  # it ended, or is another user's
            for descriptor in os.listdir(f"/proc/{process}/fd"):  # noqa: PTH208
                with contextlib.suppress(OSError):  # closed meanwhile
                    status = os.stat(f"/proc/{process}/fd/{descriptor}")  # noqa: PTH116
                    inodes.add((status.st_dev, status.st_ino))
    return inodes


EVERY_S: Final = 60.0
FRESH_S: Final = 15.0
"""Evictions need a proof that is no older; one takes about 7 s, as closes are sent every 5 s."""
RENEW_S: Final = 5.0
"""A proof that evictions need is renewed after so long."""
AGAIN_S: Final = 10.0
"""After a file could not be opened, or was not heard of."""
HEARD_WITHIN_S: Final = 20.0
"""The streams are sent every second (opens) and, as the documentation has it, every 5 s (closes)."""
LASTS_S: Final = 900.0
"""Seconds that the last proof counts while no file can be opened, for example as the origin hangs."""


class Canary:
    """Opens a random file on disk from time to time, as a job would but without reading it.

    `stream_verified`: the cache has reported such an open and its close since the start or `again`. `fault`:
    why reports count as incomplete; None if they are complete, or it is too early to say. `is_answered`: the
    server answers, be it that a file cannot be opened. `sees_opens`: this process can see which files the
    server has open.
    """

    def __init__(
        self,
        target: CacheTarget,
        opens: OpenFiles,
        *,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fault: str | None = None
        self.stream_verified = self.sees_opens = False
        self.is_answered = True
        self._target, self._opens, self._timeout_s, self._clock = target, opens, timeout_s, clock
        self._chance = random.SystemRandom()
        self._name: str | None = None
        self._unheard: set[type] = set()
        self._due = self._until = self._opened_at = 0.0
        self._proved_at: float | None = None
        self._is_excused = False
        self._trial: _Trial | None = None

    def step(self, held: Callable[[random.Random], str | None]) -> None:
        """Open a file that `held` draws if it is time, and judge whether the last one was reported."""
        now = self._clock()
        if self._trial is not None and self._trial.is_over:
            trial, self._trial = self._trial, None
            self._judge_trial(trial, now)
        elif self._name is not None and now > self._until:
            self._judge_silence(self._name, now)
        elif (
            self._trial is None
            and self._name is None
            and now >= self._due
            and (name := held(self._chance)) is not None
        ):
            self._name, self._unheard, self._opened_at = name, {Packet, FileClose}, now
            self._until = now + self._timeout_s + HEARD_WITHIN_S
            self._trial = _Trial(self._target, self._opens, name, self._timeout_s)

    def is_fresh(self) -> bool:
        """Whether the last proof is new enough to evict by: for `LASTS_S` while no file can be opened."""
        if self._proved_at is None:
            return False
        if self._is_excused:
            return self._clock() - self._proved_at < LASTS_S
        self._due = min(self._due, self._opened_at + RENEW_S)
        return self._clock() - self._proved_at < FRESH_S

    def hear(self, report: Report) -> None:
        if self._name is None:
            return
        names = [opened.lfn for opened in report.opened] if isinstance(report, Packet) else ()
        if self._name in map(reported, names):
            self._unheard.discard(Packet)
        elif isinstance(report, FileClose) and reported(report.lfn) == self._name:
            self._unheard.discard(FileClose)
        self._settle()

    def again(self) -> None:
        """Open a file at once and forget earlier proofs: the server restarted, or reports were missing."""
        self._name, self._due, self.fault, self.stream_verified = None, 0.0, None, False

    def _settle(self) -> None:
        """Note a proof, once the file is closed again and both its reports have come."""
        if self._name is not None and self._trial is None and not self._unheard:
            self._proved_at, self._due = self._opened_at, self._clock() + EVERY_S
            self._name, self.fault, self.stream_verified, self._is_excused = None, None, True, False

    def _judge_trial(self, trial: _Trial, now: float) -> None:
        if trial.error is None:
            self.sees_opens = trial.was_seen
        if self._name is None:  # given up meanwhile
            return
        self.is_answered = trial.is_answered
        if trial.error is None:
            self._until = min(self._until, now + HEARD_WITHIN_S)
            self._settle()
            return
        if not trial.is_answered:
            self._is_excused = False
            self._fail(f"the cache does not answer: {trial.error}", now)
            return
        self._is_excused = self._proved_at is not None and now - self._proved_at < LASTS_S
        fault = f"no file can be opened to try its reports: {trial.error}"
        self._fail(None if self._is_excused else fault, now)

    def _judge_silence(self, name: str, now: float) -> None:
        if self._opens.has(name):  # a job has it open: its close covers ours, and comes with it
            self._fail(self.fault, now)
            return
        missing = " and ".join(sorted("open" if kind is Packet else "close" for kind in self._unheard))
        fault = f"the cache did not report our own {missing} of {name} in {HEARD_WITHIN_S:.0f} s"
        self._fail(f"{fault}: its server needs the four lines at the start of docs/steward.md", now)

    def _fail(self, fault: str | None, now: float) -> None:
        self._name, self.fault, self._due = None, fault, now + AGAIN_S


class _Trial(threading.Thread):
    """Opens a file in a thread of its own, as an open may take as long as the origin does."""

    def __init__(self, target: CacheTarget, opens: OpenFiles, name: str, timeout_s: float) -> None:
        super().__init__(name="canary", daemon=True)
        self.is_over = self.was_seen = False
        self.is_answered = True
        self.error: str | None = None
        self._target, self._opens, self._file, self._timeout_s = target, opens, name, timeout_s
        self.start()

    def run(self) -> None:
        try:
            self._target.touch(self._file, timeout_s=self._timeout_s, meanwhile=self._look)
        except PushError as error:
            self.error, self.is_answered = str(error), self._is_heard()
        self.is_over = True

    def _is_heard(self) -> bool:
        try:
            self._target.identity()
        except PushError:
            return False
        return True

    def _look(self) -> None:
        self._opens.look()
        self.was_seen = self._opens.has(self._file)
        if not self.was_seen and self._target.confirm(self._file).held is None:
            self.error = f"{self._file} was removed as it was opened"
