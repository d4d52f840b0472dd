"""Least recently used."""

from __future__ import annotations

from features.common.arrays import BoolArray
from replay.steward.order import Untold
from replay.steward.queue import Queue


class Lru(Untold):
    """The longest unread file goes first."""

    following = "lru"

    def __init__(self) -> None:
        self._queue = Queue()

    @property
    def oldest(self) -> int | None:
        """The longest unread file; None: there is none."""
        return self._queue.oldest if self._queue.n_files else None

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """The file is the youngest now."""
        if file in self._queue:
            self._queue.to_newest(file)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A new file is the youngest."""
        if file in self._queue:
            self._queue.resize(file, n_bytes)
        else:
            self._queue.append(file, n_bytes)

    def removed(self, file: int) -> None:
        """Forget the file."""
        if file in self._queue:
            self._queue.remove(file)

    def bytes_on_disk(self, file: int) -> int | None:
        """See `EvictionOrder`."""
        return self._queue.bytes_of(file) if file in self._queue else None

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """The oldest files."""
        chosen: list[int] = []
        if n_bytes <= 0:
            return chosen
        for file in self._queue:
            if not spare[file]:
                chosen.append(file)
                n_bytes -= self._queue.bytes_of(file)
                if n_bytes <= 0:
                    break
        return chosen
