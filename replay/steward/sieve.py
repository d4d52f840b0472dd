"""SIEVE (Zhang et al., NSDI 2024): a queue whose hand spares files that were read since it last passed."""

from __future__ import annotations

from features.arrays import BoolArray
from replay.steward.order import Untold
from replay.steward.queue import Queue

TURNS = 2
"""The hand meets a file at most so many times until it goes, unless it is spared."""


class Sieve(Untold):
    """The next unread file that the hand meets goes, from the oldest to the newest.

    `ahead`: files ahead of the hand, new ones at the end; `passed`: those that it has spared.
    """

    following = "sieve"

    def __init__(self) -> None:
        self._ahead, self._passed = Queue(), Queue()
        self._is_read = bytearray()

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """An unread file."""
        self._is_read.append(0)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """The hand will spare the file once."""
        if is_held:
            self._is_read[file] = 1

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A new file comes last."""
        for queue in (self._ahead, self._passed):
            if file in queue:
                queue.resize(file, n_bytes)
                return
        self._is_read[file] = 0
        self._ahead.append(file, n_bytes)

    def removed(self, file: int) -> None:
        """Forget the file."""
        for queue in (self._ahead, self._passed):
            if file in queue:
                queue.remove(file)
        self._turn_round()

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """The next unread files."""
        taken: list[tuple[int, int]] = []
        turns = TURNS * (self._ahead.n_files + self._passed.n_files)
        while n_bytes > 0 and turns > 0 and self._ahead.n_files:
            turns -= 1
            file = self._ahead.oldest
            size = self._ahead.remove(file)
            if spare[file]:
                self._passed.append(file, size)
            elif self._is_read[file]:
                self._is_read[file] = 0
                self._passed.append(file, size)
            else:
                taken.append((file, size))
                n_bytes -= size
            self._turn_round()
        for file, size in reversed(taken):
            self._ahead.put_back(file, size)
        return [file for file, _ in taken]

    def _turn_round(self) -> None:
        """Begin at the oldest file again when the hand has passed the newest."""
        if not self._ahead.n_files:
            self._ahead, self._passed = self._passed, self._ahead
