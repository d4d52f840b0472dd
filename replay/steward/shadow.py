"""A cache in numbers only, that makes room at each read: what an order would have missed."""

from __future__ import annotations

from features.common.arrays import BoolArray
from replay.steward.order import EvictionOrder


class Shadow:
    """A cache of `capacity_bytes` by `order`, to which the files that are read are known already."""

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
