"""The type of a policy."""

from __future__ import annotations

from collections.abc import Callable

from replay.planner import BoolArray
from replay.trace import Trace

# (trace, capacity_bytes, hit) -> peak usage in bytes, measured after each access. Sets hit[i] if access i is
# served from the cache; `hit` is all False before. Files are cached whole; a file larger than the capacity is
# a miss and does not change the cache.
Policy = Callable[[Trace, int, BoolArray], int]
