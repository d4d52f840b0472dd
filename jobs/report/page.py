"""The page: answers first, then the plots and tables behind them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from importlib import resources

import jinja2

from jobs.text import Row, text

WORDS = ("name", "did", "reason")
"""Columns of a table that hold long words: to the left, and wrapped."""


# A number and its unit stay on one line, and thousands with their hundreds.
_UNIT = re.compile(r"(\d) (?=(?:%|[kMGTPE]?B\b|\d{3}\b))")


@dataclasses.dataclass(frozen=True)
class Figure:
    """One plot: inline SVG and what it shows."""

    svg: str
    caption: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading, its plots and its table; `note` says how to read them."""

    title: str
    note: str = ""
    figures: Sequence[Figure] = ()
    rows: Sequence[Row] = ()


def page(*, title: str, subtitle: str, answers: Sequence[str], sections: Sequence[Section]) -> str:
    """The HTML page, complete in one file: no script, no font, no request to anywhere."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(resources.files("jobs.report").joinpath("page.html").read_text())
    return template.render(
        title=title,
        subtitle=subtitle,
        answers=[_UNIT.sub("\\1\u00a0", line) for line in answers],
        sections=sections,
        text=text,
        words=WORDS,
    )
