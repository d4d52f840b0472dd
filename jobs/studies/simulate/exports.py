"""The pages, plots or rows of replays, curves, KIT's Eq. 1, and storage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.ground.text import CURVE_COLUMNS, STORAGE_COLUMNS, as_row, chosen, fleet_columns
from jobs.pages.verdicts import by_merit, verdict
from jobs.pages.write import Page, write_page
from jobs.studies.simulate.answer import ReplayAnswer

if TYPE_CHECKING:
    from jobs.studies.simulate.cached_fraction import FractionAnswer
    from jobs.studies.simulate.curve import CurveAnswer
    from jobs.studies.simulate.storage import StorageAnswer

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
_MOST_DATASETS = 100
_STORAGE_NOTE = (
    "The disk saved is that of the replicas that go, less the caches' own. The last replica on disk never "
    "goes; those that a rule keeps need its removal first."
)


def export_replay(answer: ReplayAnswer, out: Path | None, *, title: str) -> None:
    """Write a replay to `out`, if given, in the format of its suffix."""
    ranked = by_merit(answer.rows, "capacity_bytes")
    told = [key for key in _REPLAY_PAGE_COLUMNS if key != "prefetch_bytes" or any(r[key] for r in ranked)]
    shown = [chosen(row, told) for row in ranked]
    page = Page(title, answer.notes, shown, [verdict(answer.rows, "capacity_bytes")], note=_REPLAY_NOTE)
    write_page(out, answer.rows, page, lambda plots: plots.hit_ratio_against_capacity(answer.rows))


def export_fleet(answer: ReplayAnswer, out: Path | None, *, title: str) -> None:
    """Write the replay of several caches to `out`, if given, in the format of its suffix."""
    shown = [chosen(row, fleet_columns(answer.rows)) for row in answer.rows]
    said, note = ([answer.verdict], _LEVELS_NOTE) if answer.verdict else ([], _FLEET_NOTE)
    page = Page(title, answer.notes, shown, said, heading="By cache", note=note, capacity="")
    write_page(out, answer.rows, page, lambda plots: plots.hit_ratio_by_cache(answer.rows))


def export_curve(answer: CurveAnswer, out: Path | None, *, title: str) -> None:
    """Write an LRU curve to `out`, if given, in the format of its suffix."""
    points = [as_row(point) for point in answer.points]
    shown = [chosen(row, (*CURVE_COLUMNS, "capacity_fraction", "doubling_saves_bytes")) for row in points]
    page = Page(title, answer.notes, shown, answer.answers, note=_REPLAY_NOTE)
    write_page(out, points, page, lambda plots: plots.lru_against_capacity(points))


def export_fraction(answer: FractionAnswer, out: Path | None, *, title: str) -> None:
    """Write KIT's Eq. 1 to `out`, if given, in the format of its suffix."""
    points = [as_row(point) for point in answer.points]
    page = Page(
        title,
        answer.notes,
        points,
        answer.answers,
        heading="Against the cached fraction",
        note=_FRACTION_NOTE,
        capacity="",
    )
    write_page(out, points, page, lambda _: _job_plots().processing_time(points))


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
    page = Page(
        title, answer.notes, shown, answers, "Disk against traffic", _STORAGE_NOTE, capacity="", more=more
    )
    write_page(out, points, page, lambda _: _job_plots().traffic_against_disk(points))


def _job_plots() -> Any:
    from jobs.studies.simulate import job_plots  # noqa: PLC0415  matplotlib takes long to import

    return job_plots
