"""What two caches side by side reported: answers, rows, and a section of the report."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

from features.common.units import format_bytes
from features.results import LRU, STEWARD
from jobs.ground.text import Row, count, percent
from jobs.local_site.demo.pair import ORDERS, PLAIN, Pair, Side
from jobs.local_site.demo.side import Seen
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
    _, *more = answers_of(pair)
    title = f"Two XCaches of {format_bytes(pair.capacity_bytes)} side by side, with the same reads"
    learned = (
        f"The order was learned from the {count(pair.learned_from)} reads before. Both caches began empty."
    )
    figures = [] if pair.missing else [_figure(out)]
    return Section(title, " ".join([learned, *more]), figures, rows_of(pair))


def _figure(out: Path) -> Figure:
    looks = styles([LRU, STEWARD])
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        for name, order in ORDERS.items():
            label = f"{name} ({order})"
            points = list(_fetched(reported_reads(out / name / "gstream.txt")))
            look = looks[LRU if name == PLAIN else STEWARD] | {"marker": ""}
            (line,) = plot.axes.plot([one.x for one in points], [one.y for one in points], **look)
            plot.add(label, line, points)
        plot.axes.set(
            xlabel="reads", ylabel="fetched over the WAN so far, MB", xlim=(0, None), ylim=(0, None)
        )
        return Figure(plot, "Bytes that each cache has fetched from its origin; lower is better")


def _fetched(closes: Sequence[Row]) -> Iterator[Point]:
    fetched = list(itertools.accumulate(one["bytes_missed"] for one in closes))
    step = max(1, len(fetched) // _POINTS)
    for n_reads in dict.fromkeys([*range(step, len(fetched) + 1, step), len(fetched)]):
        n_bytes = fetched[n_reads - 1]
        yield Point(n_reads, n_bytes / _MEGA, f"{format_bytes(n_bytes)} after {count(n_reads)} reads")


def rows_of(pair: Pair) -> list[Row]:
    """A row per cache: what it reported, and what its replay says."""
    return [_side(pair.plain), _side(pair.steward)]


def answers_of(pair: Pair) -> Iterator[str]:
    """Sentences: which of two caches fetched less, whether replay agrees, and what the plain one is."""
    plain, steward = pair.plain, pair.steward
    replayed = f"In replay it {_saving(plain.replayed_wan_bytes, steward.replayed_wan_bytes)}."
    if plain.seen is None or steward.seen is None:
        yield f"No real caches, only the replay of the {steward.evicts_by} order: {pair.missing}. {replayed}"
    else:
        live = f"{_saving(plain.seen.wan_bytes, steward.seen.wan_bytes)} of WAN traffic against plain"
        yield (
            f"Side by side in two real caches, the {steward.evicts_by} order {live}, by their own records. "
            f"{replayed}"
        )
        apart = f"{_points(plain, plain.seen)} points (plain) and {_points(steward, steward.seen)} (steward)"
        yield f"Byte hits of the caches and of their replay differ by {apart}."
    purge = percent(pair.purge_byte_hit_ratio, 1)
    yield (
        f"Plain is {plain.evicts_by}, by a steward too: XCache's own purge is LRU, but comes at most once a "
        f"minute. Replayed as if it came at each look of a steward, its byte hits are {purge}."
    )


def _points(side: Side, seen: Seen) -> str:
    return f"{100 * abs(seen.byte_hit_ratio - side.replayed_byte_hit_ratio):.1f}"


def _side(side: Side) -> Row:
    seen = side.seen
    return {
        "cache": side.cache,
        "evicts_by": side.evicts_by,
        "reads": None if seen is None else seen.reads,
        "byte_hit_ratio": None if seen is None else seen.byte_hit_ratio,
        "wan_bytes": None if seen is None else seen.wan_bytes,
        "replayed_byte_hit_ratio": side.replayed_byte_hit_ratio,
        "replayed_wan_bytes": side.replayed_wan_bytes,
    }


def _saving(plain_bytes: int, steward_bytes: int) -> str:
    saved = plain_bytes - steward_bytes
    share = percent(abs(saved) / max(1, plain_bytes), 1)
    return f"{'saves' if saved >= 0 else 'costs'} {format_bytes(abs(saved))} ({share})"
