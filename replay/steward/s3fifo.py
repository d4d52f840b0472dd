"""S3-FIFO (Yang et al., SOSP 2023), by bytes: a small queue for new files, a main queue, and ghosts."""

from __future__ import annotations

from features.common.arrays import BoolArray
from replay.policies.s3fifo import GHOST_SHARE, HITS_TO_MOVE, MOST_HITS, SMALL_SHARE
from replay.steward.order import Untold
from replay.steward.queue import Queue

TURNS = MOST_HITS + 2
"""A file is met at most so many times until it goes, unless it is spared."""


class S3Fifo(Untold):
    """Files with two hits in the small queue move to the main one; so do ghosts that come again."""

    following = "s3fifo"

    def __init__(self, capacity_bytes: int) -> None:
        self._small_bytes = int(capacity_bytes * SMALL_SHARE)
        self._main_bytes = capacity_bytes - self._small_bytes
        self._ghost_bytes = int(capacity_bytes * GHOST_SHARE)
        self._small, self._main, self._ghosts = Queue(), Queue(), Queue()
        self._hits = bytearray()
        self._has_evicted = False

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """A file without hits."""
        self._hits.append(0)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """Count a hit of a file on disk."""
        if is_held:
            self._hits[file] = min(MOST_HITS, self._hits[file] + 1)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A new file enters the small queue; a ghost, and what comes to an empty cache, the main one."""
        for queue in (self._small, self._main):
            if file in queue:
                queue.resize(file, n_bytes)
                return
        self._hits[file] = 0
        is_ghost = file in self._ghosts
        if is_ghost:
            self._ghosts.remove(file)
        fills = not self._has_evicted and self._small.used_bytes >= self._small_bytes
        (self._main if is_ghost or fills else self._small).append(file, n_bytes)

    def removed(self, file: int) -> None:
        """Forget the file; one from the small queue leaves a ghost."""
        if file in self._main:
            self._main.remove(file)
        elif file in self._small:
            self._ghosts.remember(file, self._small.remove(file), self._ghost_bytes)

    def bytes_on_disk(self, file: int) -> int | None:
        """See `EvictionOrder`."""
        return next((queue.bytes_of(file) for queue in (self._small, self._main) if file in queue), None)

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """Files without enough hits from the front of the queue that has more than its share.

        Files that must stay move to the end of the main queue.
        """
        if n_bytes <= 0:
            return []
        self._has_evicted = True
        taken: list[tuple[Queue, int, int]] = []
        turns, n_spared = TURNS * (self._small.n_files + self._main.n_files), 0
        while n_bytes > 0 and turns > 0 and self._small.n_files + self._main.n_files:
            turns -= 1
            is_full = self._main.used_bytes > self._main_bytes and n_spared < self._main.n_files
            is_main = is_full or not self._small.n_files
            queue = self._main if is_main else self._small
            file = queue.oldest
            size = queue.remove(file)
            if spare[file]:
                self._main.append(file, size)
                n_spared += 1
            elif is_main and self._hits[file] > 0:
                self._hits[file] -= 1
                queue.append(file, size)
            elif self._hits[file] >= HITS_TO_MOVE:
                self._hits[file] = 0
                self._main.append(file, size)
            else:
                taken.append((queue, file, size))
                n_bytes -= size
        for queue, file, size in reversed(taken):
            queue.put_back(file, size)
        return [file for _, file, _ in taken]
