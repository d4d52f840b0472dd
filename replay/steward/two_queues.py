"""2Q, the full version (Johnson and Shasha, VLDB 1994), by bytes."""

from __future__ import annotations

from features.arrays import BoolArray
from replay.policies.two_queues import IN_SHARE, OUT_SHARE
from replay.steward.order import Untold
from replay.steward.queue import Queue

_NONE = -1


class TwoQueues(Untold):
    """New files pass through a FIFO of 25 %; those that come again soon after it go to an LRU."""

    following = "2q"

    def __init__(self, capacity_bytes: int) -> None:
        self._arrival_bytes = int(capacity_bytes * IN_SHARE)
        self._ghost_bytes = int(capacity_bytes * OUT_SHARE)
        self._arrivals, self._main, self._ghosts = Queue(), Queue(), Queue()

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """A file of the LRU is its youngest now."""
        if file in self._main:
            self._main.to_newest(file)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A new file enters the FIFO, a ghost the LRU."""
        for queue in (self._arrivals, self._main):
            if file in queue:
                queue.resize(file, n_bytes)
                return
        if file in self._ghosts:
            self._ghosts.remove(file)
            self._main.append(file, n_bytes)
        else:
            self._arrivals.append(file, n_bytes)

    def removed(self, file: int) -> None:
        """Forget the file; one from the FIFO leaves a ghost."""
        if file in self._main:
            self._main.remove(file)
        elif file in self._arrivals:
            self._ghosts.remember(file, self._arrivals.remove(file), self._ghost_bytes)

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """From the FIFO while it has more than its share, else from the LRU."""
        arrivals, main = ((file for file in q if not spare[file]) for q in (self._arrivals, self._main))
        arrived_bytes = self._arrivals.used_bytes
        chosen: list[int] = []
        while n_bytes > 0:
            first, second = (arrivals, main) if arrived_bytes > self._arrival_bytes else (main, arrivals)
            file = next(first, _NONE)
            if file == _NONE and (file := next(second, _NONE)) == _NONE:
                break
            chosen.append(file)
            if file in self._arrivals:
                arrived_bytes -= self._arrivals.bytes_of(file)
                n_bytes -= self._arrivals.bytes_of(file)
            else:
                n_bytes -= self._main.bytes_of(file)
        return chosen
