"""What an evaluation answers."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from features.common.arrays import BoolArray, IntArray
from features.common.times import DAY_S
from features.common.units import format_bytes
from features.results import CHALLENGER_PLAN, LRU, S3FIFO, STEWARD, STEWARD_PLAN
from jobs.ground.text import Row, as_row, percent
from jobs.loop.evaluate.record import Compared
from jobs.pages.verdicts import NAMES, by_merit, savings, sizes, verdict
from jobs.pages.write import Page, write_page
from models.evaluation.metrics import mean_interval
from replay.comparison import BOUND, DailyMisses
from replay.result import Result
from replay.study.use import activities_of
from replay.trace import ItemArray, Trace


@dataclasses.dataclass(frozen=True)
class EvaluationAnswer:
    """The result of an evaluation.

    `rows`: one per capacity and policy, see `record.answer_rows`; `slices`: the same by activity, see
    `slice_rows`. `model_version`: the candidate that was evaluated, None without one; `run_id`: the
    run in MLflow, None if it was not recorded. `trace`: its name, None: the site's tables; `capacity`: the
    column of the capacities as they were asked for.
    """

    model_version: str | None
    first_day: str
    last_day: str
    rows: tuple[dict[str, object], ...]
    notes: tuple[str, ...]
    run_id: str | None = None
    slices: tuple[dict[str, object], ...] = ()
    trace: str | None = None
    capacity: str = "capacity_fraction"

    @property
    def title(self) -> str:
        """The page's title: the first and last day, and the model or the trace."""
        days = f"Evaluation from {self.first_day} to {self.last_day}"
        return f"{days}, {self.trace or self.model_version or 'no candidate'}"


_SLICE_NOTE = "Misses of one activity, in one cache for all; saved is against LRU, with bounds of 95 % each."
_ACTING_NOTE = (
    "Shares are of LRU's. Waiting hours are those that jobs wait for origins, beyond a cache that has every "
    "file; core hours hold them too. A prefetch saves waiting, not bytes."
)
_EVALUATION_NOTE = (
    "WAN bytes are demand misses and prefetches of the counted days. 0 % of the gap is LRU, 100 % is the "
    "bound that no policy can beat. Whiskers: the true value lies above the lower end with 95 % "
    "probability, and below the upper end with 95 %."
)


def export_evaluation(answer: EvaluationAnswer, out: Path | None) -> None:
    """Write an evaluation to `out`, if given, in the format of its suffix."""
    rows, capacity = [as_row(row) for row in answer.rows], answer.capacity
    page = Page(
        answer.title,
        answer.notes,
        [_without_bounds(row) for row in by_merit(rows, capacity)],
        list(dict.fromkeys([verdict(rows, capacity), *savings(rows, capacity, (CHALLENGER_PLAN, STEWARD))])),
        heading="Against LRU and the bound",
        note=_EVALUATION_NOTE,
        capacity=capacity,
        more=[
            (heading, note, table)
            for heading, note, table in (
                ("Lists, a steward, or both", _ACTING_NOTE, acting_rows(rows, capacity)),
                ("By activity", _SLICE_NOTE, answer.slices),
            )
            if table
        ],
    )
    write_page(out, rows, page, lambda plots: plots.gap_closed(rows, capacity))


def acting_rows(rows: Sequence[Row], capacity: str) -> list[Row]:
    """What lists, a steward and both are worth, beside LRU and S3-FIFO; none where no plan was replayed."""
    by_place = {(row[capacity], row["policy"]): row for row in rows}
    places = [(size, policy) for size in sorted({size for size, _ in by_place}) for policy in _ACTING]
    if not any(policy == CHALLENGER_PLAN for _, policy in by_place):
        return []
    return [
        {
            "acting": _ACTING[policy],
            capacity: size,
            "wan_bytes": row["wan_bytes"],
            "wan_share": _share(row, by_place[size, LRU], "wan_bytes"),
            "byte_hit_ratio": row["byte_hit_ratio"],
            "waiting_hours": row.get("waiting_hours"),
            "waiting_share": _share(row, by_place[size, LRU], "waiting_hours"),
            "core_hours": row["core_hours"],
        }
        for size, policy in places
        if (row := by_place.get((size, policy))) is not None
    ]


_ACTING = {
    LRU: "LRU",
    CHALLENGER_PLAN: "lists",
    STEWARD: "a steward",
    STEWARD_PLAN: "both",
    S3FIFO: "S3-FIFO",
}


def _share(row: Row, of: Row, name: str) -> float | None:
    return row[name] / of[name] if row.get(name) is not None and of[name] else None


def _without_bounds(row: Row) -> Row:
    """A row; LRU and the bound are the ends of the gap, and have no bounds."""
    fixed = row["policy"] in (LRU, BOUND)
    return {**row, "byte_gap_closed_lower": None, "byte_gap_closed_upper": None} if fixed else row


def misses_by_activity(trace: Trace, details: pa.Table) -> DailyMisses | None:
    """Bytes of misses of a policy by activity and day; None: the accesses do not tell any activity."""
    code, names = activities_of(details)
    return partial(_missed, trace, code, names) if names else None


def _missed(
    trace: Trace, code: ItemArray, names: Sequence[str], result: Result, hit: BoolArray
) -> Mapping[str, IntArray]:
    first, days = trace.n_accesses - result.requests, result.daily.day
    missed: IntArray = np.zeros((len(names), days.size), np.int64)
    size = np.where(hit[first:], 0, trace.size_bytes[trace.item[first:]])
    np.add.at(missed, (code[first:], trace.time_s[first:] // DAY_S - days[0]), size)
    present = np.unique(code[first:])
    return {names[k]: missed[k] for k in present.tolist()}


def slice_rows(compared: Sequence[Compared]) -> tuple[dict[str, object], ...]:
    """A row per capacity, activity and policy; none if the accesses do not tell any activity.

    Columns: `activity`, `policy`, `capacity_bytes`, `capacity_fraction`, `missed_bytes`, `saved_share` of
    LRU's misses, and `saved_bytes_per_day` with `lower_bytes_per_day` and `upper_bytes_per_day`, 95 % each,
    None for too few days.
    """
    return tuple(row for at in compared for row in _slices(at))


def _slices(at: Compared) -> Iterator[dict[str, object]]:
    lru = at.comparison.rows[LRU].missed
    for activity, least in lru.items():
        for policy, rival in at.comparison.rows.items():
            if policy == LRU or activity not in rival.missed:
                continue
            saved = mean_interval(least - rival.missed[activity])
            missed = int(rival.missed[activity].sum())
            yield {
                "activity": activity,
                "policy": policy,
                "capacity_bytes": at.comparison.capacity_bytes,
                "capacity_fraction": at.capacity_fraction,
                "missed_bytes": missed,
                "saved_share": 1 - missed / total if (total := int(least.sum())) else 0.0,
                "saved_bytes_per_day": saved.mean,
                "lower_bytes_per_day": saved.lower,
                "upper_bytes_per_day": saved.upper,
            }


def verdicts(rows: Sequence[Row], capacity: str) -> tuple[str, ...]:
    """What a steward, and plans by the new model, do for each activity: a sentence per row of theirs.

    Activities whose misses no policy changes have one together.
    """
    judged_rows = [row for row in rows if row["policy"] in (STEWARD, CHALLENGER_PLAN)]
    moved = {row["activity"] for row in rows if row["saved_share"]}
    still = dict.fromkeys(str(row["activity"]) for row in rows if row["activity"] not in moved)
    sentences = [_verdict(row, capacity) for row in judged_rows if row["activity"] in moved]
    if still:
        sentences.append(f"No policy changes what {' and '.join(still)} misses.")
    return tuple(sentences)


def _verdict(row: Row, capacity: str) -> str:
    low, high, n = (row[f"{name}_bytes_per_day"] for name in ("lower", "upper", "saved"))
    does = f"{'saves' if n >= 0 else 'costs'} {format_bytes(abs(n))} per day"
    bounds = "too few days to tell" if low is None else f"{format_bytes(low)} to {format_bytes(high)}"
    doubt = "" if low is None or low > 0 or high < 0 else ", which may be chance"
    return (
        f"{str(row['activity']).capitalize()} at {sizes([row], capacity)}: "
        f"{NAMES[str(row['policy'])]} {does} of misses against LRU ({percent(row['saved_share'], 1)}; "
        f"{bounds}){doubt}."
    )
