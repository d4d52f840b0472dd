"""The protocol of an order of eviction, and a simulated cache that shows what an order would have missed."""

from __future__ import annotations

from typing import Protocol

from features.common.arrays import BoolArray


class Chooser(Protocol):
    """What chooses victims."""

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """Files on disk, the least valuable first, until their bytes reach `n_bytes` or none is left.

        `spare`: bool[files known or more], files that must stay. They remain on disk until `removed`.
        """


class EvictionOrder(Chooser, Protocol):
    """An order of eviction that follows a cache event by event.

    Files and datasets are dense numbers from 0. Events come in the order in which they become known; their
    own times may be older. `following`: the name of the order that is followed now.
    """

    @property
    def following(self) -> str: ...

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """Make a file known: its number is that of files known before. `size_bytes` -1: not known."""

    def resize(self, file: int, size_bytes: int) -> None:
        """Correct a file's size."""

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """Count a read. `reader`: `features.stream.state.task_number` or `user_number`, 0: nobody is named.

        `is_held`: whether the file was on disk, wholly or partly.
        """

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A file has so many bytes on disk from now on; it enters the order if it had none."""

    def removed(self, file: int) -> None:
        """A file is not on disk any more, whoever removed it."""

    def expect(self, file: int, due_s: float) -> None:
        """Known work is expected to read the file at `due_s`, s since 1970; NaN: not any more."""

    def bytes_on_disk(self, file: int) -> int | None:
        """What the file has on disk; None if it is not there."""


class ByReads:
    """Base of orders that need nothing but reads and bytes on disk."""

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """Nothing to note."""

    def resize(self, file: int, size_bytes: int) -> None:
        """Nothing to note."""

    def expect(self, file: int, due_s: float) -> None:
        """Nothing to note."""


class Shadow:
    """A cache of `capacity_bytes` that makes room at each read, by `order`, to which all files are known."""

    def __init__(self, order: EvictionOrder, capacity_bytes: int) -> None:
        self._order, self._capacity_bytes = order, capacity_bytes
        self._used_bytes = 0

    def read(self, file: int, reader: int, at_s: float, n_bytes: int, nothing: BoolArray) -> bool:
        """Serve a read of a file that takes `n_bytes`; whether it was on disk.

        `nothing`: bool[files known or more], all False.
        """
        is_held = self._order.bytes_on_disk(file) is not None
        fits = n_bytes <= self._capacity_bytes
        missing = self._used_bytes + n_bytes - self._capacity_bytes
        if fits and not is_held and missing > 0:
            for gone in self._order.victims(missing, at_s, nothing):
                self._used_bytes -= self._order.bytes_on_disk(gone) or 0
                self._order.removed(gone)
        self._order.read(file, reader, at_s, is_held=is_held)
        if fits and not is_held:
            self._store(file, n_bytes, at_s)
        return is_held

    def fill(self, file: int, n_bytes: int, at_s: float) -> None:
        """Add a file that nobody has read, if there is room; correct the bytes of one that is on disk."""
        held_bytes = self._order.bytes_on_disk(file)
        if held_bytes == n_bytes:
            return
        if held_bytes is not None or self._used_bytes + n_bytes <= self._capacity_bytes:
            self._store(file, n_bytes, at_s)

    def _store(self, file: int, n_bytes: int, at_s: float) -> None:
        self._used_bytes += n_bytes - (self._order.bytes_on_disk(file) or 0)
        self._order.stored(file, n_bytes, at_s)
