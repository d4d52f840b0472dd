"""What the command line shows: tables with units, JSON, progress. Nothing below this prints."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from features.units import format_bytes

out = Console()
err = Console(stderr=True)

Row = Mapping[str, Any]
Advance = Callable[[int, int, str], None]
"""How long work reports: (done, total, what was done last)."""


MODEL_COLUMNS = ("model", "within", "auc", "average_precision", "brier", "calibration_error")
REPLAY_COLUMNS = (
    *("policy", "capacity_bytes", "hit_ratio", "byte_hit_ratio", "wan_bytes"),
    *("prefetch_bytes", "byte_gap_closed"),
)
TRACE_COLUMNS = (
    *("policy", "capacity_bytes", "capacity_fraction", "hit_ratio", "byte_hit_ratio", "wan_bytes"),
    "byte_gap_closed",
)
FLEET_COLUMNS = (
    *("cache", "capacity_bytes", "hit_ratio", "byte_hit_ratio", "wan_bytes"),
    "peak_hour_wan_bytes",
)
CURVE_COLUMNS = (
    *("capacity_bytes", "hit_ratio", "byte_hit_ratio", "doubling_adds_byte_hit_ratio"),
    *("clairvoyant_byte_hit_ratio", "bound_byte_hit_ratio"),
)
EVALUATION_COLUMNS = (
    *("policy", "capacity_fraction", "cycle", "hit_ratio", "byte_hit_ratio", "wan_bytes", "prefetch_bytes"),
    *("byte_gap_closed", "byte_gap_closed_lower", "byte_gap_closed_upper"),
)
"""What fits a terminal; JSON and the tables have all."""


def show(answer: Any, *, as_json: bool, title: str = "", columns: Sequence[str] = ()) -> None:
    """Print a job's answer: a dataclass, or a sequence of dataclasses or rows.

    JSON goes to stdout alone, and holds everything; a table shows `columns`, or all without any.
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


def warn(text: str) -> None:
    """Print what an operator should look at, to stderr."""
    err.print(f"[bold yellow]warning[/bold yellow]: {escape(text)}", highlight=False, soft_wrap=True)


def chosen(row: Row, columns: Sequence[str]) -> Row:
    """The named columns of a row, in that order."""
    return {key: row[key] for key in columns}


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


def text(key: str, value: object) -> str:
    """A value as people read it; the unit follows from the key's last word."""
    match value:
        case None:
            return "–"
        case float() if math.isnan(value):
            return "–"
        case bool() | str():
            return str(value)
        case int() | float() if "bytes" in key.split("_") and not key.endswith("ratio"):
            return format_bytes(value)
        case float() if key.endswith(("_s", "seconds")):
            return f"{value:.1f} s"
        case float() if key.endswith(("ratio", "share", "fraction")) or "closed" in key.split("_"):
            return percent(value, 1)
        case float():
            return f"{value:.4g}"
        case int():
            return count(value)
        case dict():
            return ", ".join(f"{name}: {text(name, item)}" for name, item in value.items()) or "–"
        case list() | tuple():
            return ", ".join(text(key, item) for item in value) or "–"
    return str(value)


def percent(share: float, digits: int = 0) -> str:
    """A share as `12 %`."""
    return f"{100 * share:.{digits}f} %"


def count(number: float) -> str:
    """A number without its fraction, as `1 234 567`."""
    return f"{number:,.0f}".replace(",", " ")


def as_row(item: Any) -> dict[str, object]:
    """A dataclass's or mapping's public fields."""
    return (
        dict(item)
        if isinstance(item, Mapping)
        else {f.name: getattr(item, f.name) for f in dataclasses.fields(item)}
    )


def _jsonable(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return as_row(value)
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    return str(value)


@contextlib.contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[Advance]:
    """A bar on stderr, with what is being done and the time it has taken so far."""
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
