"""Rows and facts on a screen of any width: a grid where it can be read, else a block of lines per row.

An example of each command; its help ends with it.
"""

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from jobs.ground.text import Row, as_row, heading, text

READABLE = 24  # no text column is narrower than this, unless all its cells are
TALL = 4  # lines that a row of a grid may take, and a few more where words are long
_EDGES = 3  # characters of the lines and spaces around a cell
_WITHIN_NUMBER = re.compile(r"(?<=\d) (?=\d{3}\b|[kMGTPE]?B\b|%)")  # a space within a number: `1 234 567 TB`
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
    known = [(key, value) for key, value in others if value or isinstance(value, bool | float)]
    return dict([first, *known]) if known else row


def facts(row: Row, *, width: int, indent: str = "") -> Iterator[Text]:
    """A line `key: value` per key; a list of sentences has a line for each, an answer within one its own."""
    for key, value in row.items():
        name = f"{indent}{key.replace('_', ' ')}"
        if dataclasses.is_dataclass(value):
            yield Text(f"{name}:", style="bold")
            yield from facts(telling(as_row(value)), width=width, indent=f"{indent}  ")
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


EXAMPLES: Mapping[str, str] = {
    "pull": "--source rucio_traces --input '/data/traces/*.jsonl.gz' --day 2026-03-01",
    "arrivals": "--as-of 2026-03-31T04:00:00Z",
    "features": "--as-of 2026-03-31T04:00:00Z",
    "train": "--as-of 2026-03-31T04:00:00Z",
    "predict": "--as-of 2026-03-31T04:00:00Z",
    "evaluate": "--from 2026-03-24 --to 2026-03-30 --out evaluation.html",
    "promote": "--why",
    "plan": "--cache xc1 --as-of 2026-03-31T04:00:00Z --list",
    "push run": "--cache xc1 --as-of 2026-03-31T04:00:00Z --dry-run",
    "push resume": "--cache xc1",
    "push status": "--cache xc1",
    "push cancel": "--cache xc1 --as-of 2026-03-31T04:00:00Z",
    "push new-journal": "--conf site.toml",
    "due": "--as-of 2026-03-31T04:00:00Z",
    "outcomes": "--cache xc1 --day 2026-03-30",
    "cycle": "--as-of 2026-03-31T04:00:00Z",
    "worth-it": "--trace reads.csv --capacity 200TB --out worth.html",
    "replay": "--trace reads.csv --policy lru,s3fifo --capacity 50TB,100TB",
    "curve": "--trace reads.csv --capacity-fraction 0.05,0.1 --out curve.html",
    "report": "--trace reads.csv --out study.html",
    "storage": "--rse 'T1_ES_PIC*' --capacity 100TB --from 2026-03-08 --to 2026-03-31",
    "workload": "--scenario mwt2 --accesses 100000 --out trace",
    "forecast": "--series accesses.csv --as-of 52 --horizons 1,4,13,26 --out forecast.csv",
    "efficiency": "--from 2026-03-01 --to 2026-03-14 --out jobs.html",
    "compare-caches": "xc1 xc2 --began 2026-03-01 --from 2026-02-01 --to 2026-03-31",
    "scan": "--cache xc1",
    "collect": "--port 9931 --out /var/lib/cachecast-captures",
    "steward": "--cache xc1",
    "caches": "--unjudged 2026-03-01",
    "prefill": "--cache xc1 --files list.txt --jobs 120 --start 2026-04-01T06:00:00Z",
    "queue": "--name panda --input https://panda.example.org/tasks.json --site EDGE",
    "never-cache": "--cache xc1 --out /etc/xrootd/never-cache.txt",
    "site-test": "--cache xc1 --origin root://origin.example.org:1094 --out site.html",
    "place": "--as-of 2026-03-31T04:00:00Z",
    "serve": "--port 8400",
    "rucio setup-rse": "--cache xc1 --prefix /atlas/rucio",
    "rucio check": "--cache xc1",
    "rucio sync": "--cache xc1 --dry-run",
    "init": "--cache root://xc1.example.org:1094 --capacity 50TB --records '/data/traces/*'",
    "status": "--html region.html",
    "doctor": "--conf site.toml",
    "unlock": "--conf site.toml",
    "package": "--out package.zip",
    "files": "--out deploy",
    "up": "--out local",
    "down": "--out local",
    "demo": "--out demo",
}
"""By command, and command of a group: the options of a run that is of use as it stands."""
