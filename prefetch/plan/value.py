"""What a file is worth to a cache: reads to come for its room and time, in the operator's unit.

Also how old files get in a cache, and how often a plan must be made to matter there.

A file kept saves one fetch, at its next read: after that it is on disk anyway. Until then it takes room. So
its worth is a rate: the chance of a read within a time, over the time it is expected to lie there for it,
taken at the horizon where that is best (Gittins' index for the next read; of caches, hit density). With
perfect knowledge it orders files as the clairvoyant does, by their next read.

Predictions may know less than the time of the last use does. So the worth per byte is a weighted geometric
mean of what the models say and of recency, 1 over that time: with a weight of 0 a plan keeps what LRU keeps.
"""

from __future__ import annotations

import enum
import functools

import numpy as np

from features.common.arrays import FloatArray, IntArray
from prefetch.plan.scores import KEPT, Files, Scores
from replay.planner import CacheState

OLDEST_S = 90 * 86400
SHORTEST_S = 300
"""An XCache checks its fill level no more often by default."""
CYCLES_PER_AGE = 10
"""Plans in the time that a file stays. Four are needed; ten save more in replays (docs/plan.md)."""


def eviction_age_s(state: CacheState, cycle_s: int) -> int | None:
    """Seconds that a file stays in the cache without a plan; None if nothing comes in and nothing was purged.

    It is the time in which the inflow replaces all of the cache. Under a plan the purge takes only files that
    came lately, so the age seen there (`state.lru_age_s`, of unpinned files) counts only where it is longer.
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


YOUNGEST_S = 60
"""Shorter times since the last use count as this long, s."""


class Objective(enum.StrEnum):
    """What a plan saves: bytes over the WAN, requests that wait for it, or CPU-hours of waiting jobs."""

    BYTES = "bytes"
    REQUESTS = "requests"
    CPU_HOURS = "cpu_hours"


def shown_horizon(horizons_s: tuple[int, ...], *, age_s: int | None, horizon_s: int) -> int:
    """The index of the horizon nearest to the eviction age `age_s`, or to `horizon_s` if that is None."""
    near = horizon_s if age_s is None else max(1, age_s)
    return int(np.abs(np.log(np.array(horizons_s) / near)).argmin())


@functools.lru_cache(maxsize=KEPT)
def hit_rate(scores: Scores) -> FloatArray:
    """Expected hits per second on disk, float64[n].

    All horizons count, however old files get in the cache: without the long ones, a file that is read again
    later would be worth nothing, or now something and now nothing as the eviction age changes.
    """
    return best_rate(scores.never_falling, scores.horizons_s)


def best_rate(probability: FloatArray, horizons_s: tuple[int, ...]) -> FloatArray:
    """Reads per second, float64[n]: the highest, over horizons, of the chance of a read by the expected wait.

    The wait ends with the read or the horizon. `probability`: float64[k, n], never falling along k; between
    horizons it is taken to rise evenly.
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
