"""Progress of long work on stderr: a bar in a terminal, lines in a log."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from features.common.progress import Advance
from features.common.units import duration_label

FEW = 20
"""Each step of at most so many has a line; of more steps, one a minute has."""
BRIEF_S = 2.0
"""A step has a line when it has taken this long."""
EVERY_S = 60.0
"""Time between the lines of one step."""
_LOOK_S = 0.5


@contextlib.contextmanager
def shown(what: str, *, screen: Console, write: Callable[[str], None]) -> Iterator[Advance]:
    """Show the progress of `what`: on `screen` if that is a terminal, else in lines to `write`."""
    with _bar(what, screen) if screen.is_terminal else _lines(what, write) as advance:
        yield advance


class Lines:
    """The lines that tell progress where there is no terminal."""

    def __init__(self, what: str, *, now_s: float) -> None:
        self._what, self._step, self._total = what, "", 0
        self._began_s = self._step_s = self._told_s = now_s
        self._is_told = True  # nothing to tell before the first step

    def advance(self, done: int, total: int, last: str, *, now_s: float) -> None:
        """Note that `done` of `total` steps are done, and the present one's name."""
        step = f": {last}, {done} of {total} done"
        if step != self._step:
            self._step, self._total, self._step_s, self._is_told = step, total, now_s, False

    def due(self, now_s: float) -> str | None:
        """The line that is due, if any."""
        is_step = not self._is_told and self._total <= FEW and now_s - self._step_s >= BRIEF_S
        if not is_step and now_s - self._told_s < EVERY_S:
            return None
        self._told_s, self._is_told = now_s, True
        return f"{self._what}{self._step} ({duration_label(_rounded(now_s - self._began_s))})"


def _rounded(seconds: float) -> int:
    return int(seconds) if seconds < EVERY_S else int(seconds) // 60 * 60


@contextlib.contextmanager
def _lines(what: str, write: Callable[[str], None]) -> Iterator[Advance]:
    lines, ended = Lines(what, now_s=time.monotonic()), threading.Event()

    def tell() -> None:
        while not ended.wait(_LOOK_S):
            if line := lines.due(time.monotonic()):
                write(line)

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield lambda done, total, last: lines.advance(done, total, last, now_s=time.monotonic())
    finally:
        ended.set()
        teller.join()


@contextlib.contextmanager
def _bar(what: str, screen: Console) -> Iterator[Advance]:
    """A bar with the present step and the time it has taken so far."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=None),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(what, total=None)

        def advance(done: int, total: int, last: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{what}: {last}")

        yield advance
