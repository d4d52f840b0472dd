"""The page of `cachecast worth-it`: the verdict, what each option saves, and what was assumed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from features.common import files
from jobs.ground.text import as_row
from jobs.pages import plots
from jobs.pages.page import Figure, Section, page

if TYPE_CHECKING:
    from jobs.studies.simulate.worth import Worth

_CAPTION = "Bytes fetched per day by LRU at every capacity, and by the options."
_NOTE = (
    "Saved is against LRU at the capacity asked for. The true value lies above the lower bound with 95 % "
    "probability, and below the upper one with 95 %."
)


def write(answer: Worth, out: Path, *, what: str) -> None:
    """Write the page of `answer` to `out`; `what`: the reads that it is about."""
    rows = [as_row(one) for one in answer.options]
    known = [key for key in rows[0] if any(row[key] is not None for row in rows)]
    figure = Figure(plots.wan_against_capacity(answer.curve, rows), _CAPTION)
    sections = [
        Section("Options", _NOTE, [figure], [{key: row[key] for key in known} for row in rows]),
        Section("What was assumed, and how to change it", rows=[as_row(one) for one in answer.assumptions]),
    ]
    html = page(
        title="Is it worth it?",
        subtitle="; ".join([f"{what}, {answer.first_day} to {answer.last_day}", *answer.notes]),
        answers=[answer.verdict, *answer.findings],
        sections=sections,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    files.write(out, html)
