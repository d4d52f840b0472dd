"""What the command line prints: tables with units, JSON, progress. Nothing outside `jobs.cli` prints."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from features.common.errors import printable
from features.common.progress import Advance, unwatched
from jobs.cli import layout
from jobs.cli import progress as lines
from jobs.text import as_row, chosen

out = Console()
err = Console(stderr=True)
is_quiet = False
"""Show neither progress nor notes."""


def show(answer: Any, *, as_json: bool, title: str = "", columns: Sequence[str] = ()) -> None:
    """Print a job's answer: a dataclass, or a sequence of dataclasses or rows.

    JSON goes to stdout alone and holds everything; a table of a sequence shows `columns`, or all of them
    without any, and says where the others are.
    """
    rows = [as_row(item) for item in answer] if isinstance(answer, Sequence) else as_row(answer)
    if as_json:
        json.dump(rows, sys.stdout, default=_jsonable, allow_nan=False)
        sys.stdout.write("\n")
    elif isinstance(rows, list):
        _show_rows(rows, title, columns)
    else:
        for fact in layout.facts(rows, width=out.width):
            out.print(fact, soft_wrap=True)


class Alarming(Protocol):
    """An answer with alarms for the operator."""

    @property
    def alarms(self) -> Sequence[str]:
        """One sentence each."""
        ...


def show_warning(answer: Alarming, *, as_json: bool) -> None:
    """Print a job's answer; its alarms as warnings, and in JSON also among the rest."""
    row = as_row(answer)
    show(row if as_json else {key: row[key] for key in row if key != "alarms"}, as_json=as_json)
    for alarm in answer.alarms:
        warn(alarm)


def _show_rows(rows: Sequence[dict[str, object]], title: str, columns: Sequence[str]) -> None:
    if not rows:
        line(f"{title}: none" if title else "none")
        return
    for part in layout.table(
        [chosen(row, columns or list(row)) for row in rows], title=title, width=out.width
    ):
        out.print(part, soft_wrap=isinstance(part, Text))
    if columns and (others := [key.replace("_", " ") for key in rows[0] if key not in columns]):
        line(layout.paragraph(f"--json also has: {', '.join(others)}", width=out.width))


def line(plain: str) -> None:
    """Print a line to stdout as it is."""
    out.print(plain, highlight=False, markup=False, soft_wrap=True)


def sentence(plain: str) -> None:
    """Print prose to stdout; in a terminal it is wrapped between words."""
    line(layout.paragraph(plain, width=out.width) if out.is_terminal else plain)


def log(plain: str) -> None:
    """Print a service's line, or lines, to stderr."""
    shown = "\n".join(map(printable, plain.split("\n")))
    err.print(shown, highlight=False, markup=False, soft_wrap=True)


def notes(texts: Iterable[str]) -> None:
    """Print remarks on an answer to stderr."""
    for one in texts:
        if not is_quiet:
            log(f"note: {one}")


def warn(plain: str) -> None:
    """Print what an operator should look at to stderr."""
    err.print(
        f"[bold yellow]warning[/bold yellow]: {escape(printable(plain))}", highlight=False, soft_wrap=True
    )


@contextlib.contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Advance]:
    """The progress of `what` on stderr, with the present step and the time taken so far."""
    if quiet or is_quiet:
        yield unwatched
        return
    with lines.shown(what, screen=err, write=log) as advance:
        yield advance


def _jsonable(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return as_row(value)
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    return str(value)
