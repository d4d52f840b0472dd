"""The HTML page: answers first, then plots to explore and tables, in one file."""

import base64
import dataclasses
import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

import jinja2

from jobs.ground.text import Row, heading, text
from jobs.pages.drawing import Plot, Series, swatch

WORDS = ("setting", "name", "dataset", "did", "reason", "paper", "differs", "assumed", "change")
"""Columns with long words, which are left-aligned and wrapped."""
FOLD = 12  # rows of a table that are shown before it is unfolded
OPEN_POLICIES = 8  # policies up to which their switches are unfolded

# Spaces inside a number, and between a number and its unit, must not break.
_UNIT = re.compile(r"(\d) (?=(?:%|[kMGTPE]?B\b|\d{3}\b))")


@dataclasses.dataclass(frozen=True)
class Figure:
    """One plot and its caption. `capacity`: it is hidden while a reader has picked another capacity."""

    plot: Plot
    caption: str
    capacity: float | None = None


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading, plots and a table; `note` says how to read them."""

    title: str
    note: str = ""
    figures: Sequence[Figure] = ()
    rows: Sequence[Row] = ()


class Answer(NamedTuple):
    """A sentence at the top. `capacity`: it is hidden while a reader has picked another capacity."""

    text: str
    capacity: float | None = None


@dataclasses.dataclass(frozen=True)
class Capacities:
    """What a reader can pick: rows of tables follow by their column `key`. `picked`: at first; None: all."""

    key: str = "capacity_bytes"
    values: Sequence[float] = ()
    picked: float | None = None


@dataclasses.dataclass(frozen=True)
class _Switch:
    """A series in the legend of a plot. `swatch` and `policy`: places in the lists of the page."""

    label: str
    key: str
    swatch: int
    policy: int | None


class _Legends:
    """Looks and policies of all plots of a page, each once."""

    def __init__(self) -> None:
        self.swatches: dict[str, int] = {}
        self.policies: dict[str, _Switch] = {}

    def switch(self, series: Series, *, key: str) -> _Switch:
        look = self.swatches.setdefault(swatch(series.drawn), len(self.swatches))
        if series.policy is None:
            return _Switch(series.label, key, look, None)
        switch = _Switch(series.label, series.policy, look, len(self.policies))
        known = self.policies.setdefault(series.policy, switch)
        return dataclasses.replace(switch, policy=known.policy)


def page(
    *,
    title: str,
    subtitle: str,
    answers: Sequence[str | Answer],
    sections: Sequence[Section],
    capacities: Capacities = Capacities(),
) -> str:
    """The HTML page in one file, without requests to other hosts; readable without its script, too."""
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(_ours),
    )
    legends, places = _Legends(), {value: k for k, value in enumerate(capacities.values)}
    drawn = [
        vars(section)
        | {
            "figures": [
                _drawn(f, f"{n}-{k}", capacities.values, legends) for k, f in enumerate(section.figures)
            ]
        }
        for n, section in enumerate(sections)
    ]
    script = _ours("page.js")
    return environment.get_template("page.html").render(
        title=title,
        subtitle=subtitle,
        answers=list(map(_unbroken, answers)),
        sections=drawn,
        capacities=capacities,
        place=places.get,
        legends=legends,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=_ours("page.css"),
        text=text,
        heading=heading,
        words=WORDS,
        fold=FOLD,
        open_policies=OPEN_POLICIES,
    )


def _unbroken(answer: str | Answer) -> Answer:
    sentence, capacity = (answer, None) if isinstance(answer, str) else answer
    return Answer(_UNIT.sub("\\1\u00a0", sentence), capacity)


def _drawn(figure: Figure, name: str, capacities: Sequence[float], legends: _Legends) -> dict[str, Any]:
    plot = figure.plot
    svg = plot.svg(salt=f"cachecast {name}", legend=False)
    switches = [
        legends.switch(line, key=f"{name}-{k}") if line.label else None for k, line in enumerate(plot.series)
    ]
    series = [["", ""] if switch is None else [switch.key, switch.label] for switch in switches]
    return {
        "svg": svg,
        "caption": figure.caption,
        "capacity": figure.capacity,
        "legend": [switch for switch in switches if switch],
        "reading": plot.reading(capacities) | {"series": series},
    }


def _ours(name: str) -> str:
    return resources.files("jobs.pages").joinpath(name).read_text(encoding="utf-8")
