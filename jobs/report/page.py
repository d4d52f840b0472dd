"""The HTML page: answers first, then plots and tables."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from importlib import resources

import jinja2

from jobs.text import Row, text

WORDS = ("name", "did", "reason")
"""Columns with long words, which are left-aligned and wrapped."""


# Spaces inside a number, and between a number and its unit, must not break.
_UNIT = re.compile(r"(\d) (?=(?:%|[kMGTPE]?B\b|\d{3}\b))")


@dataclasses.dataclass(frozen=True)
class Figure:
    """One plot: inline SVG and its caption."""

    svg: str
    caption: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading, plots and a table; `note` says how to read them."""

    title: str
    note: str = ""
    figures: Sequence[Figure] = ()
    rows: Sequence[Row] = ()


def page(*, title: str, subtitle: str, answers: Sequence[str], sections: Sequence[Section]) -> str:
    """The HTML page in one file, without scripts, fonts or requests to other hosts."""
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
