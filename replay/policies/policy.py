"""The types of policies. A policy is a function; this one keeps what came first:

>>> import numpy as np
>>> from replay.comparison import Candidates, compare
>>> from replay.trace import Trace
>>> def first_come(trace, capacity_bytes, hit):
...     held, used = set(), 0
...     for i, file in enumerate(trace.item.tolist()):
...         size = int(trace.size_bytes[file])
...         hit[i] = file in held
...         if file not in held and used + size <= capacity_bytes:
...             held.add(file)
...             used += size
...     return used
>>> trace = Trace(np.arange(6), np.array([0, 1, 2, 0, 1, 2]), np.array([10, 10, 10]))
>>> (at,) = compare(trace, [Candidates(20, {"first-come": first_come, "lru": None})])
>>> {name: row.result.hits for name, row in at.rows.items()}
{'first-come': 2, 'lru': 0}
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from features.common.arrays import BoolArray, IntArray
from replay.result import Placed
from replay.trace import Trace


class Prefetched(NamedTuple):
    """Files that a policy fetched ahead, [k] each: when, their bytes, and when they were read or evicted.

    `ended_s`: the largest integer while a file is on disk unread. `refetched`: int64[r, 2], time and bytes of
    each first miss of a file that a plan had evicted.
    """

    at_s: IntArray
    n_bytes: IntArray
    ended_s: IntArray
    is_read: BoolArray
    refetched: IntArray = np.zeros((0, 2), np.int64)

    def placed(self, count_from_s: int) -> Placed:
        """What counts: also files that came before `count_from_s` and were unread on disk then."""
        counts = self.ended_s >= count_from_s
        at_s, n_bytes = np.maximum(self.at_s[counts], count_from_s), self.n_bytes[counts]
        order = np.argsort(at_s, kind="stable")
        is_read = self.is_read[counts]
        return Placed(
            at_s[order],
            n_bytes[order],
            prefetch_read_bytes=int(n_bytes[is_read].sum()),
            wasted_bytes=int(n_bytes[~is_read].sum()),
            refetch_bytes=int(self.refetched[self.refetched[:, 0] >= count_from_s, 1].sum()),
        )


class ServedWithPrefetch(NamedTuple):
    """The peak usage in bytes, measured after each access, and what was fetched ahead."""

    peak_bytes: int
    prefetched: Prefetched


Policy = Callable[[Trace, int, BoolArray], int | ServedWithPrefetch]
"""`policy(trace, capacity_bytes, hit)` replays `trace` with files cached whole.

It sets `hit[i]`, False before, where access i is served from the cache, and returns the most bytes held after
an access, or `ServedWithPrefetch` if it also fetches ahead. A file larger than the capacity is a miss and
changes nothing.
"""


class Served(NamedTuple):
    """What a cache of parts of files did, per access (int64[n]): bytes asked for, and of them from its disk.

    `fetched_bytes`: from the origin, in whole blocks where they are kept; `hit`: bool[n], all was on disk.
    """

    peak_bytes: int
    asked_bytes: IntArray
    hit_bytes: IntArray
    fetched_bytes: IntArray
    hit: BoolArray


@runtime_checkable
class PartPolicy(Protocol):
    """A policy that caches parts of files."""

    def serve(self, trace: Trace, capacity_bytes: int) -> Served:
        """Replay all of `trace`."""
