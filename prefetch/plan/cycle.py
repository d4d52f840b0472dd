"""How old files get in a cache, and how often a plan must be made to matter there."""

from __future__ import annotations

from replay.planner import CacheState

OLDEST_S = 90 * 86400
SHORTEST_S = 300
"""An XCache checks its fill level no more often by default."""
CYCLES_PER_AGE = 10
"""A quarter is the least; replays close up to a fifth more of the gap at a tenth (docs/plan.md)."""


def eviction_age_s(state: CacheState, cycle_s: int) -> int | None:
    """How long a file stays without a plan, s: while inflow turns the cache over; None: nothing comes in.

    Under a plan the purge takes only what came lately, so the age seen there (`state.lru_age_s`, of unpinned
    files) counts where it is longer, not where it is shorter.
    """
    if state.inflow_bytes <= 0:
        return state.lru_age_s
    turnover_s = int(state.low_watermark * state.capacity_bytes / state.inflow_bytes * cycle_s)
    return max(1, min(OLDEST_S, max(turnover_s, state.lru_age_s or 0)))


def fitting_cycle_s(age_s: int | None, predicted_every_s: int) -> int:
    """The longest cycle of at most a tenth of the eviction age that divides the grid of predictions."""
    if age_s is None or predicted_every_s <= age_s // CYCLES_PER_AGE:
        return predicted_every_s
    most = max(1, predicted_every_s // SHORTEST_S)
    fewest = min(most, -(-predicted_every_s * CYCLES_PER_AGE // max(1, age_s)))
    return next(
        (predicted_every_s // n for n in range(fewest, most + 1) if predicted_every_s % n == 0),
        min(predicted_every_s, SHORTEST_S),
    )
