"""What the command line prints: tables with units, JSON, progress. Nothing outside `jobs.cli` prints."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from jobs.progress import Advance
from jobs.text import Row, as_row, chosen, text

out = Console()
err = Console(stderr=True)


def show(answer: Any, *, as_json: bool, title: str = "", columns: Sequence[str] = ()) -> None:
    """Print a job's answer: a dataclass, or a sequence of dataclasses or rows.

    JSON goes to stdout alone and holds everything; a table shows `columns`, or all of them without any.
    """
    rows = [as_row(item) for item in answer] if isinstance(answer, Sequence) else as_row(answer)
    if as_json:
        json.dump(rows, sys.stdout, default=_jsonable, allow_nan=False)
        sys.stdout.write("\n")
    elif isinstance(rows, list):
        out.print(table([chosen(row, columns or list(row)) for row in rows], title=title))
    else:
        for key, value in rows.items():
            out.print(f"[bold]{key.replace('_', ' ')}[/bold]: {escape(text(key, value))}", highlight=False)


def line(plain: str) -> None:
    """Print a line to stdout as it is."""
    out.print(plain, highlight=False, markup=False, soft_wrap=True)


def log(plain: str) -> None:
    """Print a service's line to stderr as it is."""
    err.print(plain, highlight=False, markup=False, soft_wrap=True)


def notes(texts: Iterable[str]) -> None:
    """Print remarks on an answer to stderr."""
    for one in texts:
        log(f"note: {one}")


def warn(plain: str) -> None:
    """Print what an operator should look at to stderr."""
    err.print(f"[bold yellow]warning[/bold yellow]: {escape(plain)}", highlight=False, soft_wrap=True)


def table(rows: Sequence[Row], *, title: str = "") -> Table:
    """Rows as a terminal table; numbers to the right, bytes and shares with their units."""
    grid = Table(title=title or None, title_justify="left")
    for i, key in enumerate(rows[0] if rows else []):
        numeric = all(isinstance(row[key], int | float | None) for row in rows)
        side: Literal["left", "right"] = "right" if numeric else "left"
        grid.add_column(key.replace("_", " "), justify=side, overflow="fold", no_wrap=i == 0 and not numeric)
    for row in rows:
        grid.add_row(*(escape(text(key, value)) for key, value in row.items()))
    return grid


@contextlib.contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Advance]:
    """A progress bar on stderr, with the present step and the time it has taken so far."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=None),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=quiet) as bar:
        task = bar.add_task(what, total=None)

        def advance(done: int, total: int, last: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{what}: {last}")

        yield advance


def _jsonable(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return as_row(value)
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    return str(value)
