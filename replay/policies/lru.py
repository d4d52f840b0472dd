"""Least recently used."""

from __future__ import annotations

from features.arrays import BoolArray
from replay.kernels.inline import Cache, Chunk, Part, serve_lru
from replay.kernels.oldest import oldest_goes
from replay.trace import Trace


def lru(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the longest unread file until the new one fits. Returns the peak usage in bytes."""
    return oldest_goes(trace, capacity_bytes, hit, by_use=True)


class LruCache:
    """A cache for a stream: it evicts as `lru` does, and remembers nothing of files that it does not hold."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    def serve(self, chunk: Chunk, hit: BoolArray) -> None:
        """Serve the accesses that follow those of the chunk before, marking hits."""
        serve_lru(self.cache, chunk, Part(0, chunk.item.size), hit)
