"""Replays of caches, in Python: read a trace, replay policies, see how near they come to the bound.

>>> import cachecast
>>> reads = cachecast.read_trace({"time": [1, 2, 3], "item": ["a", "b", "a"], "size": [10, 10, 10]})
>>> replays = cachecast.replay(reads, ["lru", "fifo"], "20B")
>>> {row["policy"]: row["hits"] for row in replays.rows}
{'lru': 1, 'fifo': 1, 'bound': None}

The names of `__all__` and their arguments stay from one version to the next; anything else may change. What
is wrong is a `CachecastError` of one line. Nothing is loaded before its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cachecast.replays import Replays, bound, generate, lru_curve, read_trace, replay
    from features.common.errors import CachecastError
    from replay.curve import Curve
    from replay.policies import Policy
    from replay.read import LoadedTrace
    from replay.result import Result
    from replay.trace import Trace

__all__ = [
    "CachecastError",
    "Curve",
    "LoadedTrace",
    "Policy",
    "Replays",
    "Result",
    "Trace",
    "bound",
    "generate",
    "lru_curve",
    "read_trace",
    "replay",
]
_HOMES = {
    "cachecast.replays": ("Replays", "bound", "generate", "lru_curve", "read_trace", "replay"),
    "features.common.errors": ("CachecastError",),
    "replay.curve": ("Curve",),
    "replay.policies": ("Policy",),
    "replay.read": ("LoadedTrace",),
    "replay.result": ("Result",),
    "replay.trace": ("Trace",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"cachecast has no {name!r}; it has {', '.join(__all__)}")
