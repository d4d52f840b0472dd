"""Rows and facts on a screen of any width: a grid where it can be read, else a block of lines per row."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jobs.ground.text import Row, as_row, heading, text

READABLE = 24
"""No text column is narrower than this, unless all its cells are."""
TALL = 4
"""Lines that a row of a grid may take, and a few more where words are long."""
_EDGES = 3
"""Characters of the lines and spaces around a cell."""
_WITHIN_NUMBER = re.compile(r"(?<=\d) (?=\d{3}\b|[kMGTPE]?B\b|%)")
"""A space that belongs to a number, as in `1 234 567 TB`."""
_UNBROKEN = "\N{NO-BREAK SPACE}"


def fits(rows: Sequence[Row], *, width: int) -> bool:
    """Whether `rows` are a grid on a screen of `width` characters, not a block of lines each."""
    return isinstance(table(rows, width=width)[0], Table)


def table(rows: Sequence[Row], *, title: str = "", width: int) -> list[RenderableType]:
    """`rows`, which have the same keys, for a screen of `width` characters, with units.

    No word is broken: a grid that has no room becomes a block of lines per row.
    """
    columns = {key: [text(key, row[key]) for row in rows] for key in rows[0]}
    numeric = {key for key in columns if all(isinstance(row[key], int | float | None) for row in rows)}
    full = {key: max(map(cell_len, cells)) for key, cells in columns.items()}
    narrow = {key: full[key] if key in numeric else _narrowest(cells) for key, cells in columns.items()}
    headers = {key: heading(key) for key in columns}
    least = {key: max(narrow[key], _longest_word(header)) for key, header in headers.items()}
    room = width - _EDGES * len(columns) - 1
    if sum(least.values()) > room:
        above: list[RenderableType] = [Text(paragraph(title, width=width), style="italic")] if title else []
        return [*above, *(line for row in rows for line in _block(row, width))]
    grid = Table(title=title or None, title_justify="left")
    is_tight = sum(max(full[key], cell_len(header)) for key, header in headers.items()) > room
    for key, header in headers.items():
        gives_way = is_tight and least[key] < full[key]
        grid.expand |= gives_way
        grid.add_column(
            Text(header),
            justify="right" if key in numeric else "left",
            width=least[key] if is_tight else None,
            ratio=least[key] if gives_way else None,
        )
    for cells in zip(*columns.values(), strict=True):
        grid.add_row(*map(Text, cells))
    return [grid]


def telling(row: Row) -> Row:
    """`row` without counts of 0 and what is empty, but for its first fact; whole if nothing else is left."""
    first, *others = row.items()
    kept = [(key, value) for key, value in others if value or isinstance(value, bool | float)]
    return dict([first, *kept]) if kept else row


def facts(row: Row, *, width: int, indent: str = "") -> Iterator[Text]:
    """A line `key: value` per key; a list of sentences has a line for each, an answer within one its own."""
    for key, value in row.items():
        name = f"{indent}{key.replace('_', ' ')}"
        if dataclasses.is_dataclass(value):
            yield Text(f"{name}:", style="bold")
            yield from facts(as_row(value), width=width, indent=f"{indent}  ")
            continue
        if sentences := _sentences(key, value):
            yield Text(f"{name}:", style="bold")
            for sentence in sentences:
                yield from map(Text, _wrapped(sentence, width, f"{indent}  - ", f"{indent}    "))
            continue
        for line in _wrapped(f"{name}: {text(key, value)}", width, "", f"{indent}  "):
            styled = Text(line)
            if line.startswith(name):
                styled.stylize("bold", 0, len(name))
            yield styled


def paragraph(plain: str, *, width: int) -> str:
    """`plain`, wrapped between words; its indentation grows below the first line."""
    indent = plain[: len(plain) - len(plain.lstrip())]
    return "\n".join(_wrapped(plain.lstrip(), width, indent, f"{indent}  "))


def _sentences(key: str, value: object) -> list[str]:
    """The items of a list, or of counts by reason, if they are more than single words."""
    if isinstance(value, list | tuple) and any(isinstance(item, str) and " " in item for item in value):
        return [text(key, item) for item in value]
    if isinstance(value, Mapping) and any(" " in str(reason) for reason in value):
        return [f"{reason}: {text(key, n)}" for reason, n in value.items()]
    return []


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


def _narrowest(cells: Sequence[str]) -> int:
    """The width at which no word of `cells` is broken, and none takes many more than `TALL` lines."""
    longest = max(map(cell_len, cells))
    return min(longest, max(READABLE, longest // TALL, *map(_longest_word, cells)))
