"""What files are worth to a cache, how old they get there, and how often a plan must be made to matter.

A file that is kept saves one fetch, at its next read, and takes room until then. So its worth is a rate: the
chance of a read within a time, over the time that the file is expected to lie there for it, at the horizon
where that is best (Gittins' index for the next read, or hit density). With perfect knowledge it orders files
as the clairvoyant does, by their next read.

The worth per byte is a weighted geometric mean of this rate and of recency, 1 / (time since the last use),
which may know more than predictions do. With a weight of 0 a plan keeps what LRU keeps.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.times import DAY_S
from prefetch.actions import Action
from prefetch.plan.forecasts import Forecast, forecast_of, of_siblings
from prefetch.plan.items import Cause, Plan
from prefetch.plan.rules import Objective
from prefetch.plan.scores import NEVER_S, UNKNOWN, Chances, Files, Scores, places
from replay.planner import CacheState

_Numbers = TypeVar("_Numbers", FloatArray, IntArray)

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


def nearest_horizon(horizons_s: tuple[int, ...], *, age_s: int | None, horizon_s: int) -> int:
    """The index of the horizon nearest to the eviction age `age_s`, or to `horizon_s` if that is None."""
    near = horizon_s if age_s is None else max(1, age_s)
    return int(np.abs(np.log(np.array(horizons_s) / near)).argmin())


def saved_per_hit(objective: Objective, files: Files, item: IntArray, size_bytes: IntArray) -> FloatArray:
    """What one hit on each of `item` saves, float64[n]: bytes read, 1, or CPU-hours."""
    if objective is Objective.REQUESTS:
        return np.ones(item.size)
    read_bytes = size_bytes * files.read_share[item]
    if objective is Objective.BYTES:
        return read_bytes
    return read_bytes * files.saved_hours_per_byte[item]


@dataclasses.dataclass(frozen=True, eq=False)
class ScoredFiles:
    """One entry per file. `size_bytes`: on disk, or to fetch; `last_use_s`: s since 1970, or NEVER_S.

    `density`: value per second and byte, blended with recency, which ranks the files of a plan; `cause`:
    codes of `Cause`; `n_jobs`: queued jobs that are known to read it; `saved`: what a hit saves, in the
    objective's unit; `forecast`: what the scores say of them. Chances are worked out when they are first
    asked for, as a replay's plans need few: ask before the scores change to those of a later time.
    """

    item: IntArray
    size_bytes: IntArray
    density: FloatArray
    was_read: BoolArray
    cause: IntArray
    n_jobs: IntArray
    last_use_s: IntArray
    saved: FloatArray
    forecast: Callable[[Forecast], FloatArray]

    @functools.cached_property
    def probability(self) -> FloatArray:
        """Of a read within the horizon that is shown."""
        return self.forecast("chance")

    @functools.cached_property
    def longest(self) -> FloatArray:
        """Of a read within the longest horizon."""
        return self.forecast("longest")

    @functools.cached_property
    def value(self) -> FloatArray:
        """Expected saving within the horizon that is shown, in the objective's unit."""
        return self.probability * self.saved

    @property
    def likely(self) -> FloatArray:
        """The chance that a prefetch needs: `probability`, but `longest` of what jobs wait for."""
        is_queued = self.n_jobs > 0
        return np.where(is_queued, self.longest, self.probability) if is_queued.any() else self.probability

    def rows(self, action: Action, index: IntArray, cause: IntArray) -> Plan:
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
    chances: Chances,
    *,
    model_weight: float = 1.0,
    least: float = 0.0,
) -> ScoredFiles:
    """The candidates that are not on disk and are read by a chance of `least`.

    With a `model_weight` of 0 only those that queued jobs will read. For these the longest horizon counts.
    """
    is_here = np.zeros(files.n, np.bool_)
    is_here[state.item] = True
    entry = np.zeros(0, np.int64) if model_weight <= 0 else chances.at_least(least)
    if scores.n_jobs is not None:
        queued, counts = np.flatnonzero(scores.n_jobs > 0), np.zeros(scores.item.size, np.bool_)
        counts[entry] = counts[queued[scores.longest(queued) >= least]] = True
        entry = np.flatnonzero(counts)
    entry = entry[~is_here[scores.item[entry]]]
    item, size, n_jobs = scores.item[entry], scores.size_bytes[entry], scores.queued(entry)
    last_read_s = scores.last_read_s[entry]
    return _valued(
        (item, size, last_read_s > NEVER_S, n_jobs, last_read_s),
        lambda kind: forecast_of(chances, kind)(entry),
        saved_per_hit(objective, files, item, size),
        np.where(n_jobs > 0, int(Cause.QUEUED), int(Cause.VALUE)),
        as_of_s=state.as_of_s,
        model_weight=model_weight,
    )


def on_disk(
    state: CacheState,
    scores: Scores,
    files: Files,
    objective: Objective,
    chances: Chances,
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
    known, last_use_s = entry != UNKNOWN, state.last_access_s
    is_new = ~known & (last_use_s >= scores.as_of_s - recent_s)
    at, of = np.flatnonzero(known), entry[known]

    def here(column: _Numbers) -> _Numbers:
        """`column` of the files with a score as one of all on disk, 0 of the others."""
        if at.size == entry.size:
            return column
        values = np.zeros(entry.size, column.dtype)
        values[at] = column
        return values

    def forecast(kind: Forecast) -> FloatArray:
        values = here(forecast_of(chances, kind)(of))
        if is_new.any():
            values[is_new] = of_siblings(chances, files, kind, state.item[is_new])
        return values

    n_jobs = np.zeros_like(state.item) if scores.n_jobs is None else here(scores.n_jobs[of])
    whole = np.maximum(here(scores.size_bytes[of]), state.bytes_on_disk)
    cause = np.where(known, int(Cause.VALUE), np.where(is_new, int(Cause.SIBLINGS), int(Cause.UNKNOWN)))
    cause[n_jobs > 0] = int(Cause.QUEUED)
    return _valued(
        (state.item, state.bytes_on_disk, np.ones(state.item.size, np.bool_), n_jobs, last_use_s),
        forecast,
        saved_per_hit(objective, files, state.item, whole),
        cause,
        as_of_s=state.as_of_s,
        model_weight=model_weight,
    )


def _valued(
    of: tuple[IntArray, IntArray, BoolArray, IntArray, IntArray],
    forecast: Callable[[Forecast], FloatArray],
    saved: FloatArray,
    cause: IntArray,
    *,
    as_of_s: int,
    model_weight: float,
) -> ScoredFiles:
    """The files `of` (item, bytes, whether read, queued jobs, last use); a hit saves `saved` on each."""
    item, size_bytes, was_read, n_jobs, last_use_s = of
    # What a queued job will read is known, and a file without a last use has nothing but its rate.
    by_rate = (n_jobs > 0) | (last_use_s == NEVER_S)
    recent = 1.0 / np.clip(as_of_s - last_use_s, YOUNGEST_S, OLDEST_S)
    if model_weight <= 0 and not by_rate.any():
        density = recent
    else:
        rate = forecast("rate")
        # In this order, so that files of equal chances that save their whole size are worth exactly the same.
        density = (rate * (saved / np.maximum(size_bytes, 1))) ** model_weight
        density *= np.where(by_rate, rate, recent) ** (1 - model_weight)
    return ScoredFiles(item, size_bytes, density, was_read, cause, n_jobs, last_use_s, saved, forecast)
