"""How far plans follow the models and how far recency, chosen by replay of days before those that count."""

from __future__ import annotations

import dataclasses

from prefetch.plan import ValuePlanner
from replay.config import CacheConfig
from replay.engine import Run, drive
from replay.trace import Trace, window

WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Weights of the models in a file's value; 0 is LRU."""
UNPROVEN = 0.5
"""Of models that were never tried: saves about as much as 1 with good ones, and loses less with bad ones."""


def choose_weight(
    trace: Trace, cache: CacheConfig, planner: ValuePlanner, *, cycle_s: int, from_s: int
) -> float:
    """The weight with which plans of `planner` bring the fewest bytes over the WAN; of equals the largest.

    Plans are made from `from_s` to the end of `trace`. The later half of that time counts: a cache full of
    LRU's choices takes a while to turn over. All weights advance together: each prediction is read once.
    """
    span = int(trace.time_s[0]), int(trace.time_s[-1])
    counted = window(trace, (from_s + span[1]) // 2)
    runs = [Run(trace, cache, counted, _weighted(planner, weight)) for weight in WEIGHTS]
    drive(runs, cycle_s=cycle_s, plan_from_s=from_s, span=span)
    missed = [run.result("lru+plan", 0.0).wan_bytes for run in runs]
    return WEIGHTS[missed.index(min(missed))]


def _weighted(planner: ValuePlanner, weight: float) -> ValuePlanner:
    return dataclasses.replace(planner, model_weight=lambda _: weight)
