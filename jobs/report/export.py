"""The file that `replay`, `curve` and `evaluate` write with `--out`: a page, its plot, or the rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from features.common import files
from features.results import CHALLENGER_PLAN, LRU, STEWARD
from jobs.report.verdicts import by_merit, savings, verdict
from jobs.text import CURVE_COLUMNS, STORAGE_COLUMNS, Row, as_row, chosen, fleet_columns
from replay.contest import BOUND

if TYPE_CHECKING:
    from jobs.evaluate.evaluate import EvaluationAnswer
    from jobs.report.drawing import Plot
    from jobs.simulate.cached_fraction import FractionAnswer
    from jobs.simulate.curve import CurveAnswer
    from jobs.simulate.replay_trace import ReplayAnswer
    from jobs.simulate.storage import StorageAnswer

_REPLAY_PAGE_COLUMNS = (
    *("policy", "capacity_bytes", "capacity_fraction", "hit_ratio", "byte_hit_ratio", "wan_bytes"),
    *("prefetch_bytes", "peak_hour_wan_bytes", "byte_gap_closed", "object_gap_closed"),
)
_REPLAY_NOTE = "No policy can fetch fewer bytes than the bound."
_FLEET_NOTE = "Each file belongs to one cache, by the hash of its name. Every cache is an LRU."
_LEVELS_NOTE = (
    "What one level misses, the next one is asked for. A hit that is under way waits for bytes that another "
    "read has asked for."
)
_FRACTION_NOTE = (
    "The time is the longest of three: reading what is not cached over the network, reading the rest from "
    "the caches, and computing (KIT, Eq. 1)."
)
_SLICE_NOTE = "Misses of one activity, in one cache for all; saved is against LRU, with bounds of 95 % each."
_MOST_DATASETS = 100
_STORAGE_NOTE = (
    "The disk saved is that of the replicas that go, less the caches' own. The last replica on disk never "
    "goes; those that a rule keeps need its removal first."
)
_EVALUATION_NOTE = (
    "WAN bytes are demand misses and prefetches of the counted days. 0 % of the gap is LRU, 100 % is the "
    "bound that no policy can beat. Whiskers: the true value lies above the lower end with 95 % "
    "probability, and below the upper end with 95 %."
)


class _Page(NamedTuple):
    """What the HTML file shows: `answers` first, then the plot with `heading` and `note`, then `rows`.

    `capacity`: the column of the capacities to pick from; empty: none. `more`: heading, note and rows of
    further tables.
    """

    title: str
    notes: Sequence[str]
    rows: Sequence[Row]
    answers: Sequence[str] = ()
    heading: str = "Against capacity"
    note: str = _REPLAY_NOTE
    capacity: str = "capacity_bytes"
    more: Sequence[tuple[str, str, Sequence[Row]]] = ()


def export_replay(answer: ReplayAnswer, out: Path | None, *, title: str) -> None:
    """Write a replay to `out`, if given, in the format of its suffix."""
    ranked = by_merit(answer.rows, "capacity_bytes")
    told = [key for key in _REPLAY_PAGE_COLUMNS if key != "prefetch_bytes" or any(r[key] for r in ranked)]
    shown = [chosen(row, told) for row in ranked]
    page = _Page(title, answer.notes, shown, [verdict(answer.rows, "capacity_bytes")])
    _write(out, answer.rows, page, lambda plots: plots.hit_ratio_against_capacity(answer.rows))


def export_fleet(answer: ReplayAnswer, out: Path | None, *, title: str) -> None:
    """Write the replay of several caches to `out`, if given, in the format of its suffix."""
    shown = [chosen(row, fleet_columns(answer.rows)) for row in answer.rows]
    said, note = ([answer.verdict], _LEVELS_NOTE) if answer.verdict else ([], _FLEET_NOTE)
    page = _Page(title, answer.notes, shown, said, heading="By cache", note=note, capacity="")
    _write(out, answer.rows, page, lambda plots: plots.hit_ratio_by_cache(answer.rows))


def export_curve(answer: CurveAnswer, out: Path | None, *, title: str) -> None:
    """Write an LRU curve to `out`, if given, in the format of its suffix."""
    points = [as_row(point) for point in answer.points]
    shown = [chosen(row, (*CURVE_COLUMNS, "capacity_fraction", "doubling_saves_bytes")) for row in points]
    page = _Page(title, answer.notes, shown, answer.answers)
    _write(out, points, page, lambda plots: plots.lru_against_capacity(points))


def export_fraction(answer: FractionAnswer, out: Path | None, *, title: str) -> None:
    """Write KIT's Eq. 1 to `out`, if given, in the format of its suffix."""
    points = [as_row(point) for point in answer.points]
    page = _Page(
        title,
        answer.notes,
        points,
        answer.answers,
        heading="Against the cached fraction",
        note=_FRACTION_NOTE,
        capacity="",
    )
    _write(out, points, page, lambda _: _job_plots().processing_time(points))


def export_storage(answer: StorageAnswer, out: Path | None, *, title: str) -> None:
    """Write what caches replace to `out`, if given, in the format of its suffix."""
    points = [as_row(point) for point in answer.points]
    answers = (answer.verdict, *answer.findings)
    largest = sorted(answer.datasets, key=lambda one: -one.stored_bytes)[:_MOST_DATASETS]
    more = [
        ("Stored, by what keeps it", "", [as_row(one) for one in answer.stored]),
        ("Datasets that go, the largest", "Of the first capacity.", [as_row(one) for one in largest]),
    ]
    told = [key for key in points[0] if key in STORAGE_COLUMNS or any(point[key] for point in points)]
    shown = [chosen(point, told) for point in points]
    page = _Page(
        title, answer.notes, shown, answers, "Disk against traffic", _STORAGE_NOTE, capacity="", more=more
    )
    _write(out, points, page, lambda _: _job_plots().traffic_against_disk(points))


def _job_plots() -> Any:
    from jobs.report import job_plots

    return job_plots


def export_evaluation(answer: EvaluationAnswer, out: Path | None, *, title: str) -> None:
    """Write an evaluation to `out`, if given, in the format of its suffix."""
    rows = [as_row(row) for row in answer.rows]
    page = _Page(
        title,
        answer.notes,
        [_without_bounds(row) for row in by_merit(rows, "capacity_fraction")],
        [verdict(rows, "capacity_fraction"), *savings(rows, "capacity_fraction", (CHALLENGER_PLAN, STEWARD))],
        heading="Against LRU and the bound",
        note=_EVALUATION_NOTE,
        capacity="capacity_fraction",
        more=[("By activity", _SLICE_NOTE, answer.slices)] if answer.slices else [],
    )
    _write(out, rows, page, lambda plots: plots.gap_closed(rows))


def _without_bounds(row: Row) -> Row:
    """A row; LRU and the bound are the ends of the gap, and have no bounds."""
    fixed = row["policy"] in (LRU, BOUND)
    return {**row, "byte_gap_closed_lower": None, "byte_gap_closed_upper": None} if fixed else row


def _write(out: Path | None, rows: Sequence[Row], page: _Page, draw: Callable[[Any], Plot]) -> None:
    """Write `out` in the format of its suffix; `draw` is called with the module `jobs.report.plots`."""
    if out is None:
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with files.replaced(out) as draft:
        match out.suffix:
            case ".html":
                draft.write_text(_html(page, _plot(draw)), encoding="utf-8")
            case ".svg":
                draft.write_text(_plot(draw).svg(), encoding="utf-8")
            case ".json":
                draft.write_text(json.dumps(rows, allow_nan=False))
            case ".parquet":
                pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), draft)
            case ".csv":
                with draft.open("w", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, list(rows[0]))
                    writer.writeheader()
                    writer.writerows(rows)


def _plot(draw: Callable[[Any], Plot]) -> Plot:
    # Imported here because matplotlib takes long to import, and most commands write no plot.
    from jobs.report import plots

    return draw(plots)


def _html(shown: _Page, plot: Plot) -> str:
    from jobs.report.page import Capacities, Figure, Section, page

    values = sorted({row[shown.capacity] for row in shown.rows}) if shown.capacity else []
    return page(
        title=shown.title,
        subtitle="; ".join(shown.notes),
        answers=shown.answers,
        sections=[
            Section(shown.heading, shown.note, [Figure(plot, shown.title)], shown.rows),
            *(Section(heading, note, rows=rows) for heading, note, rows in shown.more),
        ],
        capacities=Capacities(shown.capacity, values),
    )
