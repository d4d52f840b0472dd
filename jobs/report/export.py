"""Answers of `replay`, `curve` and `evaluate` as files: a page, its plot, or the rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from features.errors import InputError
from features.results import CHALLENGER_PLAN, LRU
from jobs.text import CURVE_COLUMNS, FLEET_COLUMNS, Row, as_row, chosen, percent

if TYPE_CHECKING:
    from jobs.evaluate.evaluate import EvaluationAnswer
    from jobs.simulate.curve import CurveAnswer
    from jobs.simulate.replay_trace import ReplayAnswer

SUFFIXES = (".html", ".svg", ".csv", ".parquet", ".json")

_PAGE_COLUMNS = (
    *("policy", "capacity_bytes", "capacity_fraction", "hit_ratio", "byte_hit_ratio", "wan_bytes"),
    *("prefetch_bytes", "peak_hour_wan_bytes", "byte_gap_closed", "object_gap_closed", "seconds"),
)
_SHARED = "Each file belongs to one cache, by the hash of its name; LRU in each."
_WALK = (
    "WAN bytes are demand misses and prefetches, of the days that count. 0 % of the gap is LRU, 100 % what "
    "no policy can beat; whiskers: what it lies above and below with 95 % probability each."
)
_BOUND = "The bound is what no policy can beat on bytes."


class Shown(NamedTuple):
    """A plot as SVG, the rows under it, and how they are headed."""

    plot: str
    rows: Sequence[Row]
    heading: str = "Against capacity"
    note: str = _BOUND


def prepare(out: Path | None) -> None:
    """Make the folder of a file to be written. Raises InputError, before any work, if it could not be."""
    if out is None:
        return
    if out.suffix not in SUFFIXES:
        raise InputError(f"cannot write {out}: its name must end in one of {', '.join(SUFFIXES)}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; choose another --out") from None


def export_replay(answer: ReplayAnswer, out: Path | None, *, title: str) -> None:
    """Write a replay to `out`, if one is asked for, as its name's ending says."""

    def plot() -> str:
        from jobs.report.plots import hit_ratio_against_capacity

        return hit_ratio_against_capacity(answer.rows)

    rows = [chosen(row, _PAGE_COLUMNS) for row in answer.rows]
    _write(out, answer.rows, plot, lambda svg: _page(title, answer.notes, [], Shown(svg, rows)))


def export_fleet(answer: ReplayAnswer, out: Path | None, *, title: str) -> None:
    """Write the replay of several caches to `out`, if one is asked for, as its name's ending says."""

    def plot() -> str:
        from jobs.report.plots import hit_ratio_by_cache

        return hit_ratio_by_cache(answer.rows)

    rows = [chosen(row, FLEET_COLUMNS) for row in answer.rows]
    _write(
        out,
        answer.rows,
        plot,
        lambda svg: _page(title, answer.notes, [], Shown(svg, rows, "By cache", _SHARED)),
    )


def export_curve(answer: CurveAnswer, out: Path | None, *, title: str) -> None:
    """Write a curve to `out`, if one is asked for, as its name's ending says."""
    points = [as_row(point) for point in answer.points]

    def plot() -> str:
        from jobs.report.plots import lru_against_capacity

        return lru_against_capacity(points)

    rows = [chosen(point, (*CURVE_COLUMNS, "capacity_fraction", "doubling_saves_bytes")) for point in points]
    _write(out, points, plot, lambda svg: _page(title, answer.notes, answer.answers, Shown(svg, rows)))


def export_evaluation(answer: EvaluationAnswer, out: Path | None, *, title: str) -> None:
    """Write an evaluation to `out`, if one is asked for, as its name's ending says."""
    rows = [as_row(row) for row in answer.rows]

    def plot() -> str:
        from jobs.report.plots import gap_closed

        return gap_closed(rows)

    heading, told = "Against LRU and the bound", list(_judged(rows))
    _write(out, rows, plot, lambda svg: _page(title, answer.notes, told, Shown(svg, rows, heading, _WALK)))


def _judged(rows: Sequence[Row]) -> Iterator[str]:
    """What each capacity's evaluation says of the challenger, in one sentence."""
    by_capacity: dict[float, dict[str, Row]] = {}
    for row in rows:
        by_capacity.setdefault(row["capacity_fraction"], {})[row["policy"]] = row
    for fraction, policies in sorted(by_capacity.items()):
        ours, lru = policies[CHALLENGER_PLAN], policies[LRU]
        saved = 1 - ours["wan_bytes"] / max(1, lru["wan_bytes"])
        gap, low, high = (ours[f"byte_gap_closed{end}"] for end in ("", "_lower", "_upper"))
        closed = "" if gap is None else f", {percent(gap)} of the gap ({percent(low)} to {percent(high)})"
        verb = "save" if saved >= 0 else "cost"
        yield (
            f"A cache of {percent(fraction, 1)} of the bytes read: the challenger's plans, each "
            f"{ours['cycle']}, {verb} {percent(abs(saved), 1)} of LRU's WAN traffic{closed}."
        )


def _write(
    out: Path | None, rows: Sequence[Row], plot: Callable[[], str], page: Callable[[str], str]
) -> None:
    match None if out is None else out.suffix:
        case ".html":
            _text(out, page(plot()))
        case ".svg":
            _text(out, plot())
        case ".json":
            _text(out, json.dumps(rows, allow_nan=False))
        case ".parquet":
            pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), out)
        case ".csv":
            assert out is not None
            with out.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)


def _text(out: Path | None, text: str) -> None:
    assert out is not None
    out.write_text(text)


def _page(title: str, notes: Sequence[str], answers: Sequence[str], shown: Shown) -> str:
    from jobs.report.page import Figure, Section, page

    figure = Figure(shown.plot, title)
    section = Section(shown.heading, note=shown.note, figures=[figure], rows=shown.rows)
    return page(title=title, subtitle="; ".join(notes), answers=answers, sections=[section])
