"""What each policy saves against LRU on the reads of one activity, analysis or production, with bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from features.common.arrays import BoolArray, IntArray
from features.common.times import DAY_S
from features.common.units import format_bytes
from features.results import CHALLENGER_PLAN, LRU, STEWARD
from jobs.ground.text import Row, percent
from jobs.loop.evaluate.record import Compared
from jobs.pages.verdicts import NAMES
from models.evaluation.bootstrap import mean_interval
from replay.comparison import DailyMisses
from replay.result import Result
from replay.study.origins import activities_of
from replay.trace import ItemArray, Trace


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

    Columns: `activity`, `policy`, `capacity_fraction`, `missed_bytes`, `saved_share` of LRU's misses, and
    `saved_bytes_per_day` with `lower_bytes_per_day` and `upper_bytes_per_day`, 95 % each, None for too few
    days.
    """
    return tuple(row for at in compared for row in _slices(at))


def _slices(at: Compared) -> Iterator[dict[str, object]]:
    lru = at.comparison.rows[LRU].missed
    for activity, least in lru.items():
        for policy, one in at.comparison.rows.items():
            if policy == LRU or activity not in one.missed:
                continue
            saved = mean_interval(least - one.missed[activity])
            missed = int(one.missed[activity].sum())
            yield {
                "activity": activity,
                "policy": policy,
                "capacity_fraction": at.capacity_fraction,
                "missed_bytes": missed,
                "saved_share": 1 - missed / total if (total := int(least.sum())) else 0.0,
                "saved_bytes_per_day": saved.mean,
                "lower_bytes_per_day": saved.lower,
                "upper_bytes_per_day": saved.upper,
            }


def verdicts(rows: Sequence[Row]) -> tuple[str, ...]:
    """What a steward, and plans by the new model, do for each activity: a sentence per row of theirs.

    Activities whose misses no policy changes have one together.
    """
    told = [row for row in rows if row["policy"] in (STEWARD, CHALLENGER_PLAN)]
    moved = {row["activity"] for row in rows if row["saved_share"]}
    still = dict.fromkeys(str(row["activity"]) for row in rows if row["activity"] not in moved)
    sentences = [_verdict(row) for row in told if row["activity"] in moved]
    if still:
        sentences.append(f"No policy changes what {' and '.join(still)} misses.")
    return tuple(sentences)


def _verdict(row: Row) -> str:
    low, high, n = (row[f"{name}_bytes_per_day"] for name in ("lower", "upper", "saved"))
    does = f"{'saves' if n >= 0 else 'costs'} {format_bytes(abs(n))} per day"
    bounds = "too few days to tell" if low is None else f"{format_bytes(low)} to {format_bytes(high)}"
    shown = "" if low is None or low > 0 or high < 0 else ", which may be chance"
    return (
        f"{str(row['activity']).capitalize()} at {percent(row['capacity_fraction'], 1)}: "
        f"{NAMES[str(row['policy'])]} {does} of misses against LRU ({percent(row['saved_share'], 1)}; "
        f"{bounds}){shown}."
    )
