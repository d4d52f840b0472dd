"""The page, plot or rows of an evaluation."""

from __future__ import annotations

from pathlib import Path

from features.results import CHALLENGER_PLAN, LRU, STEWARD
from jobs.ground.text import Row, as_row
from jobs.loop.evaluate.answer import EvaluationAnswer
from jobs.pages.verdicts import by_merit, savings, verdict
from jobs.pages.write import Page, write_page
from replay.comparison import BOUND

_SLICE_NOTE = "Misses of one activity, in one cache for all; saved is against LRU, with bounds of 95 % each."
_EVALUATION_NOTE = (
    "WAN bytes are demand misses and prefetches of the counted days. 0 % of the gap is LRU, 100 % is the "
    "bound that no policy can beat. Whiskers: the true value lies above the lower end with 95 % "
    "probability, and below the upper end with 95 %."
)


def export_evaluation(answer: EvaluationAnswer, out: Path | None, *, title: str) -> None:
    """Write an evaluation to `out`, if given, in the format of its suffix."""
    rows = [as_row(row) for row in answer.rows]
    page = Page(
        title,
        answer.notes,
        [_without_bounds(row) for row in by_merit(rows, "capacity_fraction")],
        [verdict(rows, "capacity_fraction"), *savings(rows, "capacity_fraction", (CHALLENGER_PLAN, STEWARD))],
        heading="Against LRU and the bound",
        note=_EVALUATION_NOTE,
        capacity="capacity_fraction",
        more=[("By activity", _SLICE_NOTE, answer.slices)] if answer.slices else [],
    )
    write_page(out, rows, page, lambda plots: plots.gap_closed(rows))


def _without_bounds(row: Row) -> Row:
    """A row; LRU and the bound are the ends of the gap, and have no bounds."""
    fixed = row["policy"] in (LRU, BOUND)
    return {**row, "byte_gap_closed_lower": None, "byte_gap_closed_upper": None} if fixed else row
