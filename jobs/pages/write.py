"""The file that a command writes with `--out`: a page, its plot, or the rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from features.common import files
from jobs.ground.text import Row, select

if TYPE_CHECKING:
    from jobs.pages.drawing import Plot

_OF_PREFETCHES = ("prefetch_bytes", "wasted_bytes")
BOUND_NOTE = "No policy can fetch fewer bytes than the bound."


class Page(NamedTuple):
    """What the HTML file shows: `answers` first, then the plot with `heading` and `note`, then `rows`.

    `capacity`: the column of the capacities to pick from; empty: none. `more`: heading, note and rows of
    further tables.
    """

    title: str
    notes: Sequence[str]
    rows: Sequence[Row]
    answers: Sequence[str] = ()
    heading: str = "Against capacity"
    note: str = ""
    capacity: str = "capacity_bytes"
    more: Sequence[tuple[str, str, Sequence[Row]]] = ()


def write_page(out: Path | None, rows: Sequence[Row], page: Page, draw: Callable[[Any], Plot]) -> None:
    """Write `out` in the format of its suffix; `draw` is called with the module `jobs.pages.plots`."""
    if out is None:
        return
    with files.replaced(out) as draft:
        match out.suffix:
            case ".html":
                draft.write_text(_html(page, _plot(draw)), encoding="utf-8")
            case ".svg":
                draft.write_text(_plot(draw).svg(), encoding="utf-8")
            case ".json":
                draft.write_text(json.dumps(rows, allow_nan=False))
            case ".parquet":
                pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), draft)
            case ".csv":
                with draft.open("w", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, list(rows[0]))
                    writer.writeheader()
                    writer.writerows(rows)


def _plot(draw: Callable[[Any], Plot]) -> Plot:
    # Imported here because matplotlib takes long to import, and most commands write no plot.
    from jobs.pages import plots

    return draw(plots)


def telling(rows: Sequence[Row]) -> list[Row]:
    """`rows` without columns of which nothing is known, and of prefetches if there are none."""
    nothing = {key: (None, 0) if key in _OF_PREFETCHES else (None,) for key in (rows[0] if rows else ())}
    keys = [key for key, empty in nothing.items() if any(row[key] not in empty for row in rows)]
    return [select(row, keys) for row in rows]


def _html(content: Page, plot: Plot) -> str:
    from jobs.pages.page import Capacities, Figure, Section, page

    values = sorted({row[content.capacity] for row in content.rows}) if content.capacity else []
    return page(
        title=content.title,
        subtitle="; ".join(content.notes),
        answers=content.answers,
        sections=[
            Section(content.heading, content.note, [Figure(plot, content.title)], telling(content.rows)),
            *(Section(heading, note, rows=rows) for heading, note, rows in content.more),
        ],
        capacities=Capacities(content.capacity, values),
    )
