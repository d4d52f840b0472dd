"""A cache of whole datasets, replayed on a weekly series: LRU, clairvoyant, and weekly forecasts.

    python bench/series_replay.py --series lhcb_weekly_1_78.csv.gz --weeks 53-78
    python bench/series_replay.py --series lhcb_weekly_1_78.csv.gz --weeks 27-52     where `density` was tuned

There is one access per dataset and week in which it is read, ordered within the week by the sha256 of
`week:dataset`; a dataset has size 1. Accesses before the weeks warm the cache and are not counted; forecasts
are used from 4 weeks before on. A forecast for a week uses only earlier weeks.

| row | evicts |
|---|---|
| perfect | the farthest next read after this week, known at its start |
| decayed | the fewest weeks with reads, fading with a half-life of 13 weeks (or as --half-life says) |
| score | the least chance of a read this week, by the forecast made at its start |
| density | the least hit density (Beckmann et al., 2018): chance of a hit / time it takes, by that forecast |

`density` also knows which datasets were read this week, as a cache does; the other rows have one score per
week. Nothing is prefetched, since a prefetched dataset costs one transfer and saves at most one.

Needs the environment that `make verify` makes: .venv/bin/python bench/series_replay.py
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
# The root goes before this folder, whose replay.py would hide the room.
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "oracles")]

from weekly_trace import weekly_trace  # noqa: E402

from features.arrays import BoolArray, FloatArray, IntArray  # noqa: E402
from features.jit import bare  # noqa: E402
from jobs.cli.parsing import shares, spans  # noqa: E402
from models.series.past import Past, fit_chance  # noqa: E402
from models.series.series import Series, read_series  # noqa: E402
from replay.policies import POLICIES, Policy, score_policies  # noqa: E402
from replay.trace import Trace  # noqa: E402

# Weeks that pass before a hit, of one that comes this week, and from the next week's start of one that comes
# then. Chosen on weeks 27-52 among 0.5, 0.75, 1 and 0.3, 0.5, 0.7, 1.
_WAIT_THIS_WEEK = 0.5
_WAIT_NEXT_WEEK = 0.3
_WARM_WEEKS = 4
_NEW_WEEKS = 13


class Chances(NamedTuple):
    """float64[datasets, weeks]: chances learned at the end of the week before.

    `next1`, `next2`: to be read in the week, or in it or the next one; `again1`, `again2`: if read in the
    week, to be read again in the next one, or in the next two.
    """

    next1: FloatArray
    next2: FloatArray
    again1: FloatArray
    again2: FloatArray


class Held(NamedTuple):
    """A cache of `slot.size` datasets: `place` of each dataset (-1: not held); `read`: whether this week."""

    place: IntArray
    slot: IntArray
    read: BoolArray


class Times(NamedTuple):
    """Of each access: dataset, week, and the fraction of the week that has passed."""

    item: IntArray
    week: IntArray
    phase: FloatArray


class WeeklyScores:
    """A score per dataset and week, float64[datasets, weeks], for the `score` policy."""

    def __init__(self, series: Series, weeks: range, score: FloatArray) -> None:
        self.boundaries = np.array([week * series.unit_s for week in weeks], np.int64)
        self._score = score[:, weeks.start : weeks.stop]

    def at(self, k: int, /) -> FloatArray:
        """The scores of week k of the weeks."""
        return np.ascontiguousarray(self._score[:, k])


def walk_forward(series: Series, weeks: range) -> Chances:
    """The chances for each of `weeks`, learned anew at the end of the week before it.

    A dataset without a record by then gets those of datasets whose first record is at most 13 weeks old.
    """
    chances = Chances(*(np.zeros((len(series.names), series.now + 1)) for _ in Chances._fields))
    horizons = ((1, chances.next1, chances.again1), (2, chances.next2, chances.again2))
    for week in weeks:
        known = series.until(week - 1)
        past, code = Past(known), np.searchsorted(series.names, known.names)
        for n_weeks, soon, again in horizons:
            again[:, week] = _chance_of_new(known, n_weeks)
            soon[code, week] = _chance(past, n_weeks, again=False)
            again[code, week] = _chance(past, n_weeks, again=True)
    return chances


def _chance(past: Past, n_weeks: int, *, again: bool) -> FloatArray:
    """To be read within `n_weeks`; with `again`, if read in the next week, within `n_weeks` after that."""
    rows, present = past.matured(n_weeks + again), past.present()
    if rows is None:
        return np.full(len(present.code), 0.5)
    counted: BoolArray = past.reads(rows, 1) > 0 if again else np.ones(len(rows.code), bool)
    following = dataclasses.replace(rows, unit=rows.unit + again)
    labels = past.reads(following, n_weeks)[counted] > 0
    scorer = fit_chance(rows.x[counted], labels)
    if scorer is None:
        return np.full(len(present.code), float(labels.mean()) if len(labels) else 0.5)
    return scorer.score(present.x)


def _chance_of_new(series: Series, n_weeks: int) -> float:
    last = series.now - n_weeks
    code = np.flatnonzero((series.born > last - _NEW_WEEKS) & (series.born <= last))
    read = series.reads_within(code, series.born[code], n_weeks) > 0
    return (float(read.sum()) + 0.5) / (len(read) + 1)


def perfect(series: Series) -> FloatArray:
    """Minus the next week with reads after each week."""
    following = np.full((len(series.names), series.now + 2), 2.0 * series.now)
    active = _active(series)
    for week in range(series.now, 0, -1):
        following[:, week] = np.where(active[:, week], week, following[:, week + 1])
    return -following[:, 1:]


def decayed(series: Series, half_life: float) -> FloatArray:
    """Weeks with reads before each week, fading."""
    active = _active(series)
    faded = np.zeros(active.shape)
    for week in range(1, active.shape[1]):
        faded[:, week] = (faded[:, week - 1] + active[:, week - 1]) * 0.5 ** (1 / half_life)
    return faded


def _active(series: Series) -> BoolArray:
    active = np.zeros((len(series.names), series.now + 1), np.bool_)
    active[series.code, series.unit] = True
    return active


def least_density(times: Times, chances: Chances, trace: Trace, capacity: int, hit: BoolArray) -> int:
    """A policy: evict the least hit density; a new dataset that has it is bypassed. Datasets have size 1."""
    held = Held(np.full(trace.n_items, -1), np.full(capacity, -1), np.zeros(capacity, np.bool_))
    return int(_serve(times, chances, held, hit))


@bare
def _serve(times: Times, chances: Chances, held: Held, hit: BoolArray) -> int:
    place, slot, read = held
    used = 0
    for i in range(times.item.size):
        dataset, week = times.item[i], times.week[i]
        if i == 0 or week != times.week[i - 1]:
            read[:] = False
        if place[dataset] >= 0:
            hit[i] = True
            read[place[dataset]] = True
            continue
        at = used
        if used < slot.size:
            used += 1
        else:
            at = -1
            least = _density(chances, dataset, week, times.phase[i], True)
            for k in range(used):
                density = _density(chances, slot[k], week, times.phase[i], read[k])
                if density < least:
                    least, at = density, k
            if at < 0:
                continue
            place[slot[at]] = -1
        slot[at], place[dataset], read[at] = dataset, at, True
    return used


@bare
def _density(chances: Chances, dataset: int, week: int, phase: float, read: bool) -> float:
    """Hits per week that a place in the cache gives: by a hit this week, or by one in a later week."""
    left = 1 - phase
    if read:
        soon = chances.again1[dataset, week] / (left + _WAIT_NEXT_WEEK)
        return float(max(soon, chances.again2[dataset, week] / (left + 1 + _WAIT_NEXT_WEEK)))
    this = chances.next1[dataset, week]
    unread = 1 - this * phase  # the chance that it was not read so far this week
    soon = this * left / unread
    later = max(chances.next2[dataset, week] - this, 0.0) / unread
    return float(max(soon / (_WAIT_THIS_WEEK * left + 1e-9), (soon + later) / (left + _WAIT_NEXT_WEEK)))


def _times(series: Series, trace: Trace) -> Times:
    week = trace.time_s // series.unit_s
    place, n = trace.time_s % series.unit_s, np.bincount(week)[week]
    return Times(trace.item.astype(np.int64), week, (place + 0.5) / n)


def main() -> None:
    """Print a row per policy and capacity: hit ratio, and share of the gap from LRU to clairvoyant closed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--series", type=Path, required=True)
    parser.add_argument("--weeks", default="53-78")
    parser.add_argument("--capacity-fraction", default="0.05,0.1")
    parser.add_argument("--half-life", type=float, default=13)
    given = parser.parse_args()
    weeks = spans(given.weeks)
    series = read_series(given.series, str(weeks[-1]))
    whole = read_series(given.series, "99999")
    run = range(weeks[0] - _WARM_WEEKS, weeks[-1] + 1)
    trace = weekly_trace(series)
    counted = trace.first_at(weeks[0] * series.unit_s)
    chances = walk_forward(series, run)
    planned = range(2, run.stop)
    scores = {
        "perfect": WeeklyScores(series, planned, perfect(series)),
        "decayed": WeeklyScores(series, planned, decayed(series, given.half_life)),
        "score": WeeklyScores(series, run, chances.next1),
    }
    policies: dict[str, Policy] = {
        "lru": POLICIES["lru"],
        "clairvoyant-bypass": POLICIES["clairvoyant-bypass"],
        **{name: score_policies(weekly)["score"] for name, weekly in scores.items()},
        "density": partial(least_density, _times(series, trace), chances),
    }
    for fraction in shares(given.capacity_fraction):
        capacity = int(fraction * len(whole.names))
        ratio = {}
        for name, policy in policies.items():
            hit = np.zeros(trace.n_accesses, np.bool_)
            policy(trace, capacity, hit)
            ratio[name] = float(hit[counted:].mean())
            gap = (ratio[name] - ratio["lru"]) / (ratio.get("clairvoyant-bypass", 1.0) - ratio["lru"] or 1.0)
            print(f"{fraction:5.0%} {capacity:5d}  {name:20s} hit {ratio[name]:.4f}  gap closed {gap:6.3f}")


if __name__ == "__main__":
    main()
