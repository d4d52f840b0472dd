"""An order of eviction for each capacity, learned from a trace's own past.

The order is a ladder of binary models, P(read within h) for horizons up to a third of the past. Long horizons
have few labels, and a model of them may mislead: how far the order follows the ladder, and how far plain
recency, is chosen for each capacity by replaying the last part of the past.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pandas as pd

from features.arrays import BoolArray, FloatArray
from features.errors import InputError
from features.stream.columns import COLUMNS, HOUR_S
from features.times import day_label
from models.learning.forest import forest_of
from models.learning.learners import LightGBM
from replay.decisions import Decisions, decisions
from replay.forest import Ladder, ladder
from replay.policies import run_policy
from replay.policies.learned import Learned, Order
from replay.story import Story
from replay.trace import Trace

LADDER_S = tuple(hours * HOUR_S for hours in (1.5, 3, 6, 12, 24, 48, 96, 192, 384, 768))
PAST_PER_HORIZON = 3
"""The past is at least this many times as long as the longest horizon."""
OUTLIVES = 3
"""Rows are of files up to this many times as old as LRU's oldest: a learned order keeps some for longer."""
AGE_MOMENTS = 8
FEWEST_ROWS = 2000
"""A horizon with fewer labelled rows has no model."""
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of the ladder in the order; the rest is recency."""
TOLERANCE = 0.01
"""Missed bytes that differ by less than this share are alike: a short past tells no more."""
KEPT_FOR_CHOICE = 0.25
"""Share of the past that the share is chosen on."""


OnProgress = Callable[[int, int, str], None]
"""Called with the steps done, the number of all steps, and the present one."""
MOST_ROWS = 150_000
"""Rows drawn from the past."""
LEARNER = LightGBM(trees=80, rate=0.06)


def learn_ladder(trace: Trace, story: Story, ages_s: Sequence[float], *, to_s: float) -> Ladder | None:
    """The ladder that could be trained at `to_s`, for caches whose LRU ages are `ages_s`.

    None if the past is too short for any horizon.
    """
    from_s = float(trace.time_s[0])
    rows = decisions(
        trace,
        story,
        [OUTLIVES * age for age in ages_s],
        from_s=from_s + (to_s - from_s) / 8,
        to_s=to_s,
        most=MOST_ROWS,
    )
    horizons_s, forests = [], []
    for horizon_s in LADDER_S:
        if horizon_s * PAST_PER_HORIZON > to_s - from_s:
            break
        labelled, is_read = _labels(rows, horizon_s, to_s)
        if labelled.sum() >= FEWEST_ROWS and 0 < is_read.mean() < 1:
            horizons_s.append(horizon_s)
            x = pd.DataFrame(rows.x[labelled], columns=list(COLUMNS))
            forests.append(forest_of(LEARNER.fit(x, is_read).payload().decode(), COLUMNS))
    return ladder(forests, horizons_s) if forests else None


def choose_share(trace: Trace, story: Story, capacity_bytes: int, fitted: Ladder, *, from_s: float) -> float:
    """The largest share of `fitted` in the order that misses about the fewest bytes from `from_s` on."""
    missed = {
        share: run_policy(
            "learned",
            trace,
            capacity_bytes,
            count_from_s=int(from_s),
            policy=Learned(story, [Order(from_s, fitted, share)]),
        ).wan_bytes
        for share in SHARES
    }
    good_enough = min(missed.values()) * (1 + TOLERANCE)
    return next(share for share in SHARES if missed[share] <= good_enough)


class Learning(NamedTuple):
    """A trace and the capacities that orders of eviction are learned for."""

    trace: Trace
    story: Story
    capacities: Sequence[int]

    def orders(self, from_s: int, on_progress: OnProgress) -> list[list[Order]]:
        """For each capacity the order from `from_s` on; none if the past is too short. Raises InputError."""
        on_progress(0, 2, "how far to trust the models")
        shares = self._shares(from_s - KEPT_FOR_CHOICE * (from_s - float(self.trace.time_s[0])), from_s)
        on_progress(1, 2, f"learning until {day_label(from_s)}")
        fitted = learn_ladder(self.trace, self.story, self._ages(from_s), to_s=from_s)
        return [[] if fitted is None else [Order(from_s, fitted, share)] for share in shares]

    def _shares(self, begin_s: float, end_s: int) -> list[float]:
        """For each capacity, the share of the models in the order that was best from `begin_s` to `end_s`."""
        fitted = learn_ladder(self.trace, self.story, self._ages(begin_s), to_s=begin_s)
        if fitted is None:
            return [1.0] * len(self.capacities)
        past = self.trace.until(end_s)
        with ThreadPoolExecutor() as pool:
            chosen = [
                pool.submit(choose_share, past, self.story, capacity, fitted, from_s=begin_s)
                for capacity in self.capacities
            ]
            return [share.result() for share in chosen]

    def _ages(self, at_s: float) -> list[float]:
        return [oldest_age_s(self.trace, capacity, to_s=at_s) for capacity in self.capacities]


def oldest_age_s(trace: Trace, capacity_bytes: int, *, to_s: float) -> float:
    """The largest `age_s` at some moments of the later half of the past: a burst of reads makes it small.

    Raises InputError.
    """
    from_s = float(trace.time_s[0]) if trace.n_accesses else to_s
    moments = np.linspace((from_s + to_s) / 2, to_s, AGE_MOMENTS)
    return max(age_s(trace, capacity_bytes, to_s=float(at)) for at in moments)


def age_s(trace: Trace, capacity_bytes: int, *, to_s: float) -> float:
    """Seconds since the oldest file in an LRU cache of these bytes was read, at `to_s`. Raises InputError."""
    stop = trace.first_at(int(to_s))
    if not stop:
        raise InputError("there is no access to learn from before the days that count; count from later")
    seen, first_back = np.unique(trace.item[:stop][::-1], return_index=True)
    order = np.argsort(first_back)
    held = np.cumsum(trace.size_bytes[seen[order]])
    last = min(int(np.searchsorted(held, capacity_bytes, side="right")), order.size - 1)
    return max(HOUR_S, to_s - float(trace.time_s[stop - 1 - first_back[order[last]]]))


def _labels(rows: Decisions, horizon_s: float, to_s: float) -> tuple[BoolArray, FloatArray]:
    """Which rows had their horizon behind them at `to_s`, and whether those were read within it."""
    labelled = rows.at_s + horizon_s <= to_s
    return labelled, (rows.next_s[labelled] < horizon_s).astype(np.float64)
