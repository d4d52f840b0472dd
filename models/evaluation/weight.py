"""How far plans follow the models and how far recency, chosen by replay of days before those that count."""

from __future__ import annotations

import dataclasses

from prefetch.plan import ValuePlanner
from replay.config import CacheConfig
from replay.engine import simulate
from replay.trace import Trace

WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Weights of the models in a file's value; 0 is LRU."""
UNPROVEN = 0.5
"""Of models that were never tried: saves about as much as 1 with good ones, and loses less with bad ones."""


def choose_weight(
    trace: Trace, cache: CacheConfig, planner: ValuePlanner, *, cycle_s: int, from_s: int
) -> float:
    """The weight with which plans of `planner` bring the fewest bytes over the WAN; of equals the largest.

    Plans are made from `from_s` to the end of `trace`. The later half of that time counts: a cache full of
    LRU's choices takes a while to turn over.
    """
    count_from_s = (from_s + int(trace.time_s[-1])) // 2

    def wan_bytes(weight: float) -> int:
        weighted = dataclasses.replace(planner, model_weight=lambda _: weight)
        return simulate(
            trace,
            cache,
            planner=weighted,
            cycle_s=cycle_s,
            plan_from_s=from_s,
            count_from_s=count_from_s,
        ).wan_bytes

    return min(WEIGHTS, key=wan_bytes)
