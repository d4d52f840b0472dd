"""What a policy is."""

from __future__ import annotations

from collections.abc import Callable

from replay.planner import BoolArray
from replay.trace import Trace

# (trace, capacity_bytes, hit) -> peak usage in bytes, the most held once an access is finished. Sets hit[i]
# where access i is served from the cache; `hit` comes all False. Whole files; a file larger than the capacity
# is a miss and leaves the cache as it was.
Policy = Callable[[Trace, int, BoolArray], int]
