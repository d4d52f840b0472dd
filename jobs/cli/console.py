"""What the command line prints: tables with units, JSON, progress. Nothing outside `jobs.cli` prints."""

import contextlib
import dataclasses
import datetime as dt
import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from features.common.errors import printable
from features.common.progress import Advance, unwatched
from features.common.units import duration_label
from jobs.cli import layout
from jobs.ground.text import Row, as_row, heading, select

out = Console()
err = Console(stderr=True)
is_quiet = False  # show neither progress nor notes
is_json = False  # print the answer as JSON, and nothing else on stdout
FEW = 20  # with at most this many steps each has a line; with more there is one line per minute
FEWEST = 3  # a table that lists what else it has is narrowed to no fewer columns
BRIEF_S = 2.0  # a step has a line when it has taken this long
EVERY_S = 60.0  # time between the lines of one step
_LOOK_S = 0.5


def show(answer: Any, *, rows: Any = None, title: str = "", columns: Sequence[str] = ()) -> None:
    """Print a job's answer: a dataclass, or a sequence of dataclasses or rows.

    With --json: the whole answer, and nothing else on stdout. Else a table of `rows` (by default those of the
    answer) with the `columns` (by default all), and a line that names the columns left out.
    """
    if shown_as_json(answer):
        return
    printed = _as_rows(answer if rows is None else rows)
    if isinstance(printed, list):
        _show_rows(printed, title, columns)
    else:
        for fact in layout.facts(layout.telling(printed), width=out.width):
            out.print(fact, soft_wrap=True)


def shown_as_json(answer: Any) -> bool:
    if is_json:
        json.dump(_as_rows(answer), sys.stdout, default=_jsonable, allow_nan=False)
        sys.stdout.write("\n")
    return is_json


def _as_rows(answer: Any) -> Any:
    return [as_row(item) for item in answer] if isinstance(answer, Sequence) else as_row(answer)


def table(rows: Sequence[Row], title: str = "") -> None:
    if rows and not is_json:
        _show_rows(_as_rows(rows), title, ())


def show_ranked(rows: Sequence[Row], capacity: str, *, title: str, columns: Sequence[str]) -> None:
    """Print a comparison of policies: what it found, then the rows by `capacity` and merit."""
    if shown_as_json(rows):
        return
    from jobs.pages.verdicts import by_merit, verdict

    sentence(verdict(rows, capacity))
    show(by_merit(rows, capacity), title=title, columns=columns)


def show_warning(answer: Any) -> None:
    """Print a job's answer; its `alarms`, sentences, as warnings, and in JSON also among the rest."""
    row = as_row(answer)
    show(row, rows={key: row[key] for key in row if key != "alarms"})
    for alarm in answer.alarms:
        warn(alarm)


def _show_rows(rows: Sequence[dict[str, object]], title: str, columns: Sequence[str]) -> None:
    if not rows:
        line(f"{title}: none" if title else "none")
        return
    columns = list(columns)
    narrowed = [select(row, columns or list(row)) for row in rows]
    while len(columns) > FEWEST and not layout.fits(narrowed, width=out.width):
        narrowed = [select(row, columns[:-1]) for row in rows]
        columns.pop()
    for part in layout.table(narrowed, title=title, width=out.width):
        out.print(part, soft_wrap=isinstance(part, Text))
    if columns and (others := [heading(key) for key in rows[0] if key not in columns]):
        line(layout.paragraph(f"--json also has: {', '.join(others)}", width=out.width))


def _jsonable(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return as_row(value)
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    return str(value)


def line(plain: str) -> None:
    if not is_json:
        out.print(plain, highlight=False, markup=False, soft_wrap=True)


def sentence(plain: str) -> None:
    """Print prose to stdout; in a terminal it is wrapped between words."""
    plain = "\n".join(map(printable, plain.split("\n")))
    line(layout.paragraph(plain, width=out.width) if out.is_terminal else plain)


def sentences(lines: Iterable[str]) -> None:
    """Print several to stdout, as `sentence` does."""
    for plain in lines:
        sentence(plain)


def log(plain: str) -> None:
    """Print a service's line, or lines, to stderr."""
    printed = "\n".join(map(printable, plain.split("\n")))
    err.print(printed, highlight=False, markup=False, soft_wrap=True)


def notes(texts: Iterable[str]) -> None:
    """Print remarks on an answer to stderr."""
    for note in texts:
        if not is_quiet:
            log(f"note: {note}")


def warn(plain: str) -> None:
    """Print what an operator should look at to stderr."""
    err.print(
        f"[bold yellow]warning[/bold yellow]: {escape(printable(plain))}", highlight=False, soft_wrap=True
    )


@contextlib.contextmanager
def progress(what: str) -> Iterator[Advance]:
    """The progress of `what` on stderr: a bar in a terminal, lines in a log, nothing if quiet or JSON."""
    if is_json or is_quiet:
        yield unwatched
        return
    with _bar(what) if err.is_terminal else _lines(what) as advance:
        yield advance


class Lines:
    """The lines that report progress where there is no terminal."""

    def __init__(self, what: str, *, now_s: float) -> None:
        self._what, self._step, self._total = what, "", 0
        self._began_s = self._step_s = self._told_s = now_s
        self._is_told = True  # nothing to report before the first step

    def advance(self, done: int, total: int, last: str, *, now_s: float) -> None:
        """Note that `done` of `total` steps are done; `last`: the name of the present one."""
        step = f": {last}, {done} of {total} done"
        if step != self._step:
            self._step, self._step_s, self._is_told = step, now_s, False
        self._total = total

    def due(self, now_s: float) -> str | None:
        """The line to print at `now_s`, None if none is due."""
        is_step = not self._is_told and self._total <= FEW and now_s - self._step_s >= BRIEF_S
        if not is_step and now_s - self._told_s < EVERY_S:
            return None
        self._told_s, self._is_told = now_s, True
        seconds = int(now_s - self._began_s)
        took = duration_label(seconds if seconds < EVERY_S else seconds // 60 * 60)
        return f"{self._what}{self._step} ({took})"


@contextlib.contextmanager
def _lines(what: str) -> Iterator[Advance]:
    lines, ended = Lines(what, now_s=time.monotonic()), threading.Event()

    def tell() -> None:
        while not ended.wait(_LOOK_S):
            if line := lines.due(time.monotonic()):
                log(line)

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield lambda done, total, last: lines.advance(done, total, last, now_s=time.monotonic())
    finally:
        ended.set()
        teller.join()


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Advance]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=None),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=None)

        def advance(done: int, total: int, last: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{what}: {last}")

        yield advance
