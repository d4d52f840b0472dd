"""Signs that a namespace is the cache's: files that it shows, and that the server itself says it holds.

A folder proves nothing by itself: an unmounted disk is an empty one, and another cache's is as good as ours.
"""

from __future__ import annotations

import heapq

N_ASKED = 5
"""Files that the server is asked about."""


class LastUsed:
    """Of the files offered, the `N_ASKED` that were used last.

    Up to 5.5.3 a purge spares what was asked for by `stat`; these it would not take in any case.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []

    def offer(self, name: str, used_s: int) -> None:
        """Take `name`, or not."""
        if len(self._heap) < N_ASKED:
            heapq.heappush(self._heap, (used_s, name))
        else:
            heapq.heappushpop(self._heap, (used_s, name))

    @property
    def names(self) -> list[str]:
        """Those taken, in no promised order."""
        return [name for _, name in self._heap]
