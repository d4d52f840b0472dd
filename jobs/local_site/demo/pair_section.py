"""The section of the report about two caches side by side, from their own records."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

from features.common.units import format_bytes
from features.results import LRU, STEWARD
from jobs.ground.text import Row, count
from jobs.local_site.demo.pair import ORDERS, PLAIN, Pair
from jobs.local_site.demo.summary import side_by_side_answers, side_by_side_rows
from jobs.local_site.demo.xcache import reported_reads
from jobs.pages.drawing import STYLE, Plot, Point
from jobs.pages.page import Figure, Section
from jobs.pages.plots import styles

_POINTS: Final = 60
"""Of each line."""
_MEGA: Final = 1e6


def section(pair: Pair, out: Path) -> Section:
    """What both caches fetched, read by read; `out`: the folder of their captures.

    Without real caches there is no plot. Raises InputError if a capture cannot be read.
    """
    _, *more = side_by_side_answers(pair)
    title = f"Two XCaches of {format_bytes(pair.capacity_bytes)} side by side, with the same reads"
    learned = (
        f"The order was learned from the {count(pair.learned_from)} reads before. Both caches began empty."
    )
    figures = [] if pair.missing else [_figure(out)]
    return Section(title, " ".join([learned, *more]), figures, side_by_side_rows(pair))


def _figure(out: Path) -> Figure:
    looks = styles([LRU, STEWARD])
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        for name, order in ORDERS.items():
            label = f"{name} ({order})"
            points = list(_points(reported_reads(out / name / "gstream.txt")))
            look = looks[LRU if name == PLAIN else STEWARD] | {"marker": ""}
            (line,) = plot.axes.plot([one.x for one in points], [one.y for one in points], **look)
            plot.add(label, line, points)
        plot.axes.set(
            xlabel="reads", ylabel="fetched over the WAN so far, MB", xlim=(0, None), ylim=(0, None)
        )
        return Figure(plot, "Bytes that each cache has fetched from its origin; lower is better")


def _points(closes: Sequence[Row]) -> Iterator[Point]:
    fetched = list(itertools.accumulate(one["bytes_missed"] for one in closes))
    step = max(1, len(fetched) // _POINTS)
    for n_reads in dict.fromkeys([*range(step, len(fetched) + 1, step), len(fetched)]):
        n_bytes = fetched[n_reads - 1]
        yield Point(n_reads, n_bytes / _MEGA, f"{format_bytes(n_bytes)} after {count(n_reads)} reads")
