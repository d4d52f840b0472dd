"""Planners whose plans are drawn from the state's time, or empty."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pair_oracle import Wishes

from replay.planner import Actions, CacheState

STATE = ("as_of_s", "item", "bytes_on_disk", "last_access_s", "pinned", "inflow_bytes")


class RandomPlans:
    """Lists drawn from all `m` files: they overlap, repeat what is there, and name what is absent.

    `most`: so many files are in a list; `keys`: of a state, which `states` keeps.
    """

    def __init__(self, seed: int, m: int, *, most: int = 4, keys: Sequence[str] = STATE) -> None:
        self.seed, self.m, self.most, self.keys = seed, m, most, keys
        self.states = list[dict[str, Any]]()

    def __call__(self, state: dict[str, Any]) -> Wishes:
        self.states.append(state)
        draw = np.random.default_rng([self.seed, state["as_of_s"]])
        return Wishes(
            *(draw.permutation(self.m)[: draw.integers(0, self.most + 1)].tolist() for _ in range(4))
        )

    def actions(self, state: CacheState) -> Actions:
        plain = {key: np.asarray(getattr(state, key)).tolist() for key in self.keys}
        return Actions(*(np.array(files, np.int64) for files in self(plain)))


class Idle:
    """Plans nothing."""

    def actions(self, state: CacheState) -> Actions:
        none = np.zeros(0, np.int64)
        return Actions(none, none, none, none)
