"""Policies that decide at each access, by name. A new one is a module here and a line in `POLICIES`."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from features.errors import ConfigError
from replay.planner import BoolArray
from replay.policies.clairvoyant import belady, clairvoyant
from replay.policies.lru import lru
from replay.result import Result, summarise
from replay.trace import Trace
from replay.window import window

# (trace, capacity_bytes, hit) -> peak usage in bytes. Sets hit[i] where access i is served from the cache.
# Whole files; a file larger than the capacity is a miss and leaves the cache as it was.
Policy = Callable[[Trace, int, BoolArray], int]

POLICIES: dict[str, Policy] = {
    "lru": lru,
    "belady": belady,
    "clairvoyant": clairvoyant,
}


def run_policy(name: str, trace: Trace, capacity_bytes: int, *, count_from_s: int | None = None) -> Result:
    """Replay `trace` under the policy called `name`, counting from `count_from_s` (None: everything).

    Evictions happen at the access that needs the room; watermarks and plans are `replay.engine`'s.
    The peak is that of the whole replay. Raises ConfigError for an unknown name, InputError for an
    empty window.
    """
    if name not in POLICIES:
        raise ConfigError("policy", f"no policy {name!r}; there are {', '.join(POLICIES)}")
    counted = window(trace, count_from_s)
    started = time.perf_counter()
    hit = np.zeros(trace.n_accesses, np.bool_)
    peak = POLICIES[name](trace, capacity_bytes, hit)
    seconds = time.perf_counter() - started
    hit = hit[counted.first :]
    return summarise(
        name,
        trace,
        capacity_bytes=capacity_bytes,
        count_from_s=counted.count_from_s,
        hit=hit,
        hit_bytes=np.where(hit, trace.size_bytes[trace.item[counted.first :]], 0),
        peak_usage_bytes=peak,
        seconds=seconds,
    )
