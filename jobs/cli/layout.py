"""Rows and facts on a screen of any width: a grid where it can be read, else a block of lines per row."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jobs.text import Row, as_row, text

READABLE = 24
"""No text column is narrower than this, unless all its cells are."""
TALL = 4
"""Lines that a row of a grid may take."""
_EDGES = 3
"""Characters of the lines and spaces around a cell."""
_WITHIN_NUMBER = re.compile(r"(?<=\d) (?=\d{3}\b|[kMGTPE]?B\b|%)")
"""A space that belongs to a number, as in `1 234 567 TB`."""
_UNBROKEN = "\N{NO-BREAK SPACE}"


@dataclasses.dataclass(frozen=True)
class _Column:
    header: str
    cells: Sequence[str]
    is_numeric: bool

    @property
    def least(self) -> int:
        """The narrowest width at which no word or number is broken."""
        narrowest = cell_len if self.is_numeric else _narrowest
        return max(_longest_word(self.header), *map(narrowest, self.cells))

    @property
    def full(self) -> int:
        """The width at which nothing is wrapped."""
        return max(cell_len(self.header), *map(cell_len, self.cells))


def table(rows: Sequence[Row], *, title: str = "", width: int) -> list[RenderableType]:
    """`rows`, which have the same keys, for a screen of `width` characters, with units.

    No word is broken: a grid that has no room becomes a block of lines per row.
    """
    columns = [_column(key, rows) for key in rows[0]]
    widths = _widths(columns, width)
    if widths is not None and _height(columns, widths) <= TALL:
        return [_grid(columns, widths, title)]
    heading: list[RenderableType] = [Text(paragraph(title, width=width), style="italic")] if title else []
    return [*heading, *(line for row in rows for line in _block(row, width))]


def facts(row: Row, *, width: int, indent: str = "") -> Iterator[Text]:
    """A line `key: value` per key; a list of sentences has a line for each, an answer within one its own."""
    for key, value in row.items():
        name = f"{indent}{key.replace('_', ' ')}"
        if dataclasses.is_dataclass(value):
            yield Text(f"{name}:", style="bold")
            yield from facts(as_row(value), width=width, indent=f"{indent}  ")
            continue
        if isinstance(value, list | tuple) and any(isinstance(item, str) and " " in item for item in value):
            yield Text(f"{name}:", style="bold")
            for item in value:
                yield from map(Text, _wrapped(text(key, item), width, f"{indent}  - ", f"{indent}    "))
            continue
        for line in _wrapped(f"{name}: {text(key, value)}", width, "", f"{indent}  "):
            found = Text(line)
            if line.startswith(name):
                found.stylize("bold", 0, len(name))
            yield found


def paragraph(plain: str, *, width: int) -> str:
    """`plain`, wrapped between words; its indentation grows below the first line."""
    indent = plain[: len(plain) - len(plain.lstrip())]
    return "\n".join(_wrapped(plain.lstrip(), width, indent, f"{indent}  "))


def _column(key: str, rows: Sequence[Row]) -> _Column:
    is_numeric = all(isinstance(row[key], int | float | None) for row in rows)
    return _Column(key.replace("_", " "), [text(key, row[key]) for row in rows], is_numeric)


def _widths(columns: Sequence[_Column], width: int) -> list[int] | None:
    """The width of each column; the widest give way first. None: there is no room."""
    room = width - _EDGES * len(columns) - 1
    least = [column.least for column in columns]
    if sum(least) > room:
        return None
    widths = [min(column.full, room) for column in columns]
    for _ in range(sum(widths) - room):
        widest = max(
            (i for i, kept in enumerate(least) if widths[i] > kept), key=lambda i: (widths[i] - least[i], -i)
        )
        widths[widest] -= 1
    return widths


def _height(columns: Sequence[_Column], widths: Sequence[int]) -> int:
    return max(
        len(_wrapped(cell, width, "", ""))
        for column, width in zip(columns, widths, strict=True)
        for cell in column.cells
    )


def _grid(columns: Sequence[_Column], widths: Sequence[int], title: str) -> Table:
    grid = Table(title=title or None, title_justify="left")
    for column, width in zip(columns, widths, strict=True):
        grid.add_column(Text(column.header), justify="right" if column.is_numeric else "left", width=width)
    for cells in zip(*(column.cells for column in columns), strict=True):
        grid.add_row(*(Text("\n".join(_wrapped(c, w, "", ""))) for c, w in zip(cells, widths, strict=True)))
    return grid


def _block(row: Row, width: int) -> Iterator[Text]:
    """The first fact, and the others indented below it."""
    (first, value), *others = row.items()
    yield from facts({first: value}, width=width)
    yield from facts(dict(others), width=width, indent="  ")


def _wrapped(plain: str, width: int, first: str, following: str) -> list[str]:
    """Lines of `plain`; a word that is longer than a line stays whole."""
    lines = textwrap.wrap(
        _WITHIN_NUMBER.sub(_UNBROKEN, plain),
        width,
        initial_indent=first,
        subsequent_indent=following,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_UNBROKEN, " ") for line in lines] or [first + plain]


def _longest_word(plain: str) -> int:
    return max(map(cell_len, _WITHIN_NUMBER.sub(_UNBROKEN, plain).split(" ")), default=0)


def _narrowest(cell: str) -> int:
    return min(cell_len(cell), max(_longest_word(cell), READABLE))
