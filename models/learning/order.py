"""An order of eviction for each capacity, learned from a trace's own past.

The order is a ladder of binary models, P(read within h) for horizons up to a third of the past. Long horizons
have few labels, and a model of them may mislead: how far the order follows the ladder, and how far plain
recency, is chosen for each capacity by replaying the last part of the past.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import lightgbm as lgb
import numpy as np

from features.arrays import BoolArray, Float32Array, FloatArray
from features.errors import InputError
from features.stream.row import COLUMNS
from features.stream.state import HOUR_S
from models.learning.forest import forest_of
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
FEWEST_ROWS = 2000
"""A horizon with fewer labelled rows has no model."""
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of the ladder in the order; the rest is recency."""
TOLERANCE = 0.01
"""Missed bytes that differ by less than this share are alike: a short past tells no more."""
KEPT_FOR_CHOICE = 0.25
"""Share of the past that the share is chosen on."""


@dataclasses.dataclass(frozen=True)
class LadderSettings:
    """How the models of a ladder are trained; `most_rows`: rows drawn from the past."""

    most_rows: int = 150_000
    trees: int = 80
    leaves: int = 31
    min_rows: int = 100
    rate: float = 0.06
    column_share: float = 0.5
    row_share: float = 0.7
    l2: float = 10.0
    threads: int = 2
    seed: int = 1


DEFAULT = LadderSettings()


def learn_ladder(
    trace: Trace, story: Story, ages_s: Sequence[float], *, to_s: float, settings: LadderSettings = DEFAULT
) -> Ladder | None:
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
        most=settings.most_rows,
    )
    horizons_s, forests = [], []
    for horizon_s in LADDER_S:
        if horizon_s * PAST_PER_HORIZON > to_s - from_s:
            break
        labelled, is_read = _labels(rows, horizon_s, to_s)
        if labelled.sum() >= FEWEST_ROWS and 0 < is_read.mean() < 1:
            horizons_s.append(horizon_s)
            forests.append(forest_of(_fit(rows.x[labelled], is_read, settings)))
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


def _fit(x: Float32Array, y: FloatArray, settings: LadderSettings) -> str:
    parameters = {
        "objective": "binary",
        "num_leaves": settings.leaves,
        "min_data_in_leaf": settings.min_rows,
        "learning_rate": settings.rate,
        "feature_fraction": settings.column_share,
        "bagging_fraction": settings.row_share,
        "bagging_freq": 1,
        "lambda_l2": settings.l2,
        "seed": settings.seed,
        "num_threads": settings.threads,
        "deterministic": True,
        "force_col_wise": True,
        "verbosity": -1,
    }
    data = lgb.Dataset(x, y, feature_name=list(COLUMNS), params={"verbosity": -1})
    return str(lgb.train(parameters, data, settings.trees).model_to_string())
