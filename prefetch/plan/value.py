"""What files are worth to a cache, how old they get there, and how often a plan must be made to matter.

A file that is kept saves one fetch, at its next read, and takes room until then. So its worth is a rate: the
chance of a read within a time, over the time that the file is expected to lie there for it, at the horizon
where that is best (Gittins' index for the next read, or hit density). With perfect knowledge it orders files
as the clairvoyant does, by their next read.

The worth per byte is a weighted geometric mean of this rate and of recency, 1 / (time since the last use),
which may know more than predictions do. With a weight of 0 a plan keeps what LRU keeps.
"""

from __future__ import annotations

import dataclasses
import enum
import functools

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.times import DAY_S
from prefetch.actions import Action
from prefetch.plan.items import Cause, Plan
from prefetch.plan.scores import KEPT, NEVER_S, UNKNOWN, Files, Scores, places
from replay.planner import CacheState

OLDEST_S = 90 * DAY_S
YOUNGEST_S = 60
"""Shorter times since the last use count as this long, s."""
SHORTEST_S = 300
"""An XCache checks its fill level no more often by default."""
CYCLES_PER_AGE = 10
"""Plans in the time that a file stays. Four are needed; ten save more in replays (docs/plan.md)."""


def eviction_age_s(state: CacheState, cycle_s: int) -> int | None:
    """Seconds that a file stays in the cache without a plan; None if nothing comes in and nothing was purged.

    It is the time in which the inflow replaces all of the cache, or `state.lru_age_s` where that is longer:
    under a plan the purge takes only files that came lately.
    """
    if state.inflow_bytes <= 0:
        return state.lru_age_s
    turnover_s = int(state.low_watermark * state.capacity_bytes / state.inflow_bytes * cycle_s)
    return max(1, min(OLDEST_S, max(turnover_s, state.lru_age_s or 0)))


def fitting_cycle_s(age_s: int | None, predicted_every_s: int) -> int:
    """Seconds between plans: a divisor of `predicted_every_s`, if possible within a tenth of `age_s`."""
    if age_s is None or predicted_every_s <= age_s // CYCLES_PER_AGE:
        return predicted_every_s
    most = max(1, predicted_every_s // SHORTEST_S)
    fewest = min(most, -(-predicted_every_s * CYCLES_PER_AGE // max(1, age_s)))
    return next(
        (predicted_every_s // n for n in range(fewest, most + 1) if predicted_every_s % n == 0),
        min(predicted_every_s, SHORTEST_S),
    )


class Objective(enum.StrEnum):
    """What a plan saves: bytes over the WAN, requests that wait for it, or CPU-hours of waiting jobs."""

    BYTES = "bytes"
    REQUESTS = "requests"
    CPU_HOURS = "cpu_hours"


def nearest_horizon(horizons_s: tuple[int, ...], *, age_s: int | None, horizon_s: int) -> int:
    """The index of the horizon nearest to the eviction age `age_s`, or to `horizon_s` if that is None."""
    near = horizon_s if age_s is None else max(1, age_s)
    return int(np.abs(np.log(np.array(horizons_s) / near)).argmin())


@functools.lru_cache(maxsize=KEPT)
def hit_rate(scores: Scores) -> FloatArray:
    """Expected hits per second on disk, float64[n].

    All horizons count, however old files get in the cache: without the long ones, what a file is worth that
    is read again later would jump as the eviction age changes.
    """
    return best_rate(scores.never_falling, scores.horizons_s)


def best_rate(probability: FloatArray, horizons_s: tuple[int, ...]) -> FloatArray:
    """Reads per second, float64[n]: chance of a read / expected wait for it, at the horizon where it is best.

    The wait ends with the read or the horizon. `probability`: float64[k, n], never falling along k; between
    horizons it rises evenly.
    """
    n = probability.shape[1]
    before, waited, best = np.zeros(n), np.zeros(n), np.zeros(n)
    last_s = 0
    for horizon_s, chance in zip(horizons_s, probability, strict=True):
        waited += (horizon_s - last_s) * (1 - (chance + before) / 2)
        np.maximum(best, chance / waited, out=best)
        before, last_s = chance, horizon_s
    return best


def saved_per_hit(objective: Objective, files: Files, item: IntArray, size_bytes: IntArray) -> FloatArray:
    """What one hit on each of `item` saves, float64[n]: bytes read, 1, or CPU-hours."""
    if objective is Objective.REQUESTS:
        return np.ones(item.size)
    read_bytes = size_bytes * files.read_share[item]
    if objective is Objective.BYTES:
        return read_bytes
    return read_bytes * files.saved_hours_per_byte[item]


def recency(as_of_s: int, last_use_s: IntArray) -> FloatArray:
    """1 / (seconds since the last use), float64[n]; times are bounded by `YOUNGEST_S` and `OLDEST_S`."""
    return 1.0 / np.clip(as_of_s - last_use_s, YOUNGEST_S, OLDEST_S)


def blended(density: FloatArray, recency: FloatArray, model_weight: float) -> FloatArray:
    """The geometric mean of `density` and `recency` with weights `model_weight` and 1 - it, float64[n]."""
    value: FloatArray = density**model_weight * recency ** (1 - model_weight)
    return value


@dataclasses.dataclass(frozen=True, eq=False)
class ScoredFiles:
    """One entry per file. `size_bytes`: on disk, or to fetch; `last_use_s`: s since 1970, or NEVER_S.

    `probability`: of a read within the horizon that is shown; `longest`: within the longest; `value`:
    expected saving within the horizon that is shown, in the objective's unit; `density`: value per second and
    byte, blended with recency, which ranks the files of a plan; `cause`: codes of `Cause`; `n_jobs`: queued
    jobs that are known to read it.
    """

    item: IntArray
    size_bytes: IntArray
    probability: FloatArray
    longest: FloatArray
    value: FloatArray
    density: FloatArray
    was_read: BoolArray
    cause: IntArray
    n_jobs: IntArray
    last_use_s: IntArray

    def rows(self, action: Action, index: IntArray, cause: IntArray) -> Plan:
        """Plan items of the entries `index`, in that order, each with its `cause`."""
        return Plan(
            item=self.item[index],
            action=np.full(index.size, action.code, np.int64),
            rank=np.arange(1, index.size + 1, dtype=np.int64),
            cause=cause,
            probability=self.probability[index],
            value=self.value[index],
            size_bytes=self.size_bytes[index],
            was_read=self.was_read[index],
            n_jobs=self.n_jobs[index],
        )


def absent(
    state: CacheState,
    scores: Scores,
    files: Files,
    objective: Objective,
    horizon: int,
    *,
    model_weight: float = 1.0,
    least: float = 0.0,
) -> ScoredFiles:
    """The candidates that are not on disk: read within the horizon of index `horizon` by a chance of `least`.

    With a `model_weight` of 0 only those that queued jobs will read.
    """
    is_here = np.zeros(files.n, np.bool_)
    is_here[state.item] = True
    counts = scores.never_falling[horizon] >= least
    if model_weight == 0:
        counts &= scores.queued > 0
    entry = np.flatnonzero(~is_here[scores.item] & counts)
    item, size = scores.item[entry], scores.size_bytes[entry]
    n_jobs, last_use_s = scores.queued[entry], scores.last_read_s[entry]
    chance, rate = scores.never_falling[horizon, entry], hit_rate(scores)[entry]
    gain = saved_per_hit(objective, files, item, size)
    return ScoredFiles(
        item=item,
        size_bytes=size,
        probability=chance,
        longest=scores.never_falling[-1, entry],
        value=chance * gain,
        density=_density(
            rate,
            gain,
            size,
            n_jobs=n_jobs,
            last_use_s=last_use_s,
            as_of_s=state.as_of_s,
            model_weight=model_weight,
        ),
        was_read=scores.was_read[entry],
        cause=np.where(n_jobs > 0, int(Cause.QUEUED), int(Cause.VALUE)),
        n_jobs=n_jobs,
        last_use_s=last_use_s,
    )


def on_disk(
    state: CacheState,
    scores: Scores,
    files: Files,
    objective: Objective,
    horizon: int,
    *,
    recent_s: int,
    model_weight: float = 1.0,
) -> ScoredFiles:
    """The files on disk, with their last use as of now.

    A file without a score that was used less than `recent_s` before the scores, or after them, gets the mean
    score of the read files of its dataset, else of its tier, else of all. Any other file without a score is
    worth nothing: nobody read it for longer than candidates are kept.
    """
    entry = places(scores, files.n)[state.item]
    n_jobs, last_use_s = np.append(scores.queued, 0)[entry], state.last_access_s
    known = entry != UNKNOWN
    is_new = ~known & (last_use_s >= scores.as_of_s - recent_s)
    columns = [scores.never_falling[horizon], scores.never_falling[-1], hit_rate(scores)]
    values = [np.where(known, np.append(column, 0.0)[entry], 0.0) for column in columns]
    if is_new.any():
        for column, all_files in zip(values, columns, strict=True):
            column[is_new] = _siblings(scores, files, all_files, state.item[is_new])
    cause = np.where(known, int(Cause.VALUE), np.where(is_new, int(Cause.SIBLINGS), int(Cause.UNKNOWN)))
    cause[n_jobs > 0] = int(Cause.QUEUED)
    size = np.append(scores.size_bytes, 0)[entry]
    gain = saved_per_hit(objective, files, state.item, np.maximum(size, state.bytes_on_disk))
    chance, longest, rate = values
    size_bytes = state.bytes_on_disk
    return ScoredFiles(
        item=state.item,
        size_bytes=size_bytes,
        probability=chance,
        longest=longest,
        value=chance * gain,
        density=_density(
            rate,
            gain,
            size_bytes,
            n_jobs=n_jobs,
            last_use_s=last_use_s,
            as_of_s=state.as_of_s,
            model_weight=model_weight,
        ),
        was_read=np.ones(state.item.size, np.bool_),
        cause=cause,
        n_jobs=n_jobs,
        last_use_s=last_use_s,
    )


def _density(
    rate: FloatArray,
    gain: FloatArray,
    size_bytes: IntArray,
    *,
    n_jobs: IntArray,
    last_use_s: IntArray,
    as_of_s: int,
    model_weight: float,
) -> FloatArray:
    """The worth of each file per second and byte; `rate`: hits per second, of which each saves `gain`."""
    # In this order, so that files of equal chances that save their whole size are worth exactly the same.
    density = rate * (gain / np.maximum(size_bytes, 1))
    # What a queued job will read is known, and a file without a last use has nothing but its rate.
    by_rate = (n_jobs > 0) | (last_use_s == NEVER_S)
    recent = np.where(by_rate, rate, recency(as_of_s, last_use_s))
    return blended(density, recent, model_weight)


def _siblings(scores: Scores, files: Files, column: FloatArray, item: IntArray) -> FloatArray:
    """The mean of `column` over the files read of an item's dataset, else of its tier, else of all."""
    # Those on disk alone would mislead: what is read again is not among them, as it is judged anew itself.
    # A queue says nothing of the files it does not name.
    read = np.flatnonzero(scores.was_read & (scores.queued == 0))
    if not read.size:
        return np.zeros(item.size)
    mean = np.full(item.size, column[read[0]] + (column[read] - column[read[0]]).mean())
    for code in (files.tier, files.dataset):
        mean = _group_means(code[scores.item[read]], column[read], code[item], mean)
    return mean


def _group_means(group: IntArray, column: FloatArray, of_group: IntArray, default: FloatArray) -> FloatArray:
    """The mean of `column` over each group in `of_group`; `default` where that is unknown or empty."""
    n = 1 + int(max(group.max(initial=-1), of_group.max(initial=-1)))
    member = group >= 0
    count = np.append(np.bincount(group[member], minlength=n), 0)[of_group]
    # Sums of differences: the mean of equal values is exactly that value.
    base = column[0]
    total = np.append(np.bincount(group[member], weights=column[member] - base, minlength=n), 0.0)[of_group]
    is_known = (of_group >= 0) & (count > 0)
    return np.where(is_known, base + total / np.maximum(count, 1), default)
