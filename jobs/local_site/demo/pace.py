"""The demo's time: it passes with the reads, so that half a minute of them is days of a site.

An order learned from weeks of reads is then followed as at a site, on a machine of any speed.
"""

from __future__ import annotations

from typing import Final

from features.common.arrays import BoolArray, IntArray
from replay.steward import EvictionOrder

READ_EVERY_S: Final = 260
"""From one read to the next: a generated site's sixty days, shared by the reads of them."""


class Paced(EvictionOrder):
    """`order` by a clock that begins at `from_s` and goes on by `READ_EVERY_S` with each read."""

    def __init__(self, order: EvictionOrder, *, from_s: int) -> None:
        self._order, self._now_s = order, from_s

    @property
    def following(self) -> str:
        """See `EvictionOrder`, as all that follows."""
        return self._order.following

    def add(self, dataset: IntArray, tier: IntArray, size_bytes: IntArray) -> None:
        """Make files known."""
        self._order.add(dataset, tier, size_bytes)

    def resize(self, file: int, size_bytes: int) -> None:
        """Correct a file's size."""
        self._order.resize(file, size_bytes)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """Count a read, whenever it was."""
        self._order.read(file, reader, self._now_s, is_held=is_held)
        self._now_s += READ_EVERY_S

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A file has so many bytes on disk."""
        self._order.stored(file, n_bytes, self._now_s)

    def removed(self, file: int) -> None:
        """A file is not on disk any more."""
        self._order.removed(file)

    def bytes_on_disk(self, file: int) -> int | None:
        """What the file has on disk."""
        return self._order.bytes_on_disk(file)

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """The least valuable files now, by the clock of the reads."""
        return self._order.victims(n_bytes, self._now_s, spare)
