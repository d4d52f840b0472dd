"""A cache in numbers only, that makes room at each read: what an order would have missed."""

from __future__ import annotations

from array import array

from features.arrays import BoolArray
from replay.steward.order import EvictionOrder

_ABSENT = -1


class Shadow:
    """A cache of `capacity_bytes` by `order`, to which the files that are read are known already."""

    def __init__(self, order: EvictionOrder, capacity_bytes: int) -> None:
        self._order, self._capacity_bytes = order, capacity_bytes
        self._on_disk = array("q")
        self._used_bytes = 0

    def read(self, file: int, reader: int, at_s: float, n_bytes: int, nothing: BoolArray) -> bool:
        """Serve a read of a file that takes `n_bytes`; whether it was on disk.

        `nothing`: bool[files known or more], all False.
        """
        is_held = self._holds(file)
        fits = n_bytes <= self._capacity_bytes
        missing = self._used_bytes + n_bytes - self._capacity_bytes
        if fits and not is_held and missing > 0:
            for gone in self._order.victims(missing, at_s, nothing):
                self._order.removed(gone)
                self._used_bytes -= self._on_disk[gone]
                self._on_disk[gone] = _ABSENT
        self._order.read(file, reader, at_s, is_held=is_held)
        if fits and not is_held:
            self._store(file, n_bytes, at_s)
        return is_held

    def fill(self, file: int, n_bytes: int, at_s: float) -> None:
        """Add a file that nobody has read, if there is room; correct the bytes of one that is on disk."""
        held_bytes = self._on_disk[file] if file < len(self._on_disk) else _ABSENT
        if held_bytes == n_bytes:
            return
        if held_bytes != _ABSENT or self._used_bytes + n_bytes <= self._capacity_bytes:
            self._store(file, n_bytes, at_s)

    def _holds(self, file: int) -> bool:
        return file < len(self._on_disk) and self._on_disk[file] != _ABSENT

    def _store(self, file: int, n_bytes: int, at_s: float) -> None:
        missing = file + 1 - len(self._on_disk)
        if missing > 0:
            self._on_disk.extend([_ABSENT] * missing)
        self._used_bytes += n_bytes - max(0, self._on_disk[file])
        self._on_disk[file] = n_bytes
        self._order.stored(file, n_bytes, at_s)
