"""The protocol of an order of eviction."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from features.common.arrays import BoolArray, IntArray
from replay.kernels.heuristics import Found


class EvictionOrder(Protocol):
    """An order of eviction that follows a cache event by event.

    Files and datasets are dense numbers from 0. Events come in the order in which they become known; their
    own times may be older. `following`: the name of the order that is followed now.
    """

    @property
    def following(self) -> str: ...

    def add(self, dataset: IntArray, tier: IntArray, size_bytes: IntArray) -> None:
        """Make files known, numbered on from those known before. `size_bytes` -1: not known."""

    def resize(self, file: int, size_bytes: int) -> None:
        """Correct a file's size."""

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """Count a read. `reader`: `features.stream.state.task_number` or `user_number`, 0: nobody is named.

        `is_held`: whether the file was on disk, wholly or partly.
        """

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A file has so many bytes on disk from now on; it enters the order if it had none."""

    def found(self, found: Found) -> IntArray:
        """Read and store the files of an inventory, at once; the bytes that each had on disk, -1: none."""

    def removed(self, file: int) -> None:
        """A file is not on disk any more, whoever removed it."""

    def expect(self, file: int, due_s: float) -> None:
        """Known work is expected to read the file at `due_s`, s since 1970; NaN: not any more."""

    def bytes_on_disk(self, file: int) -> int | None:
        """What the file has on disk; None if it is not there."""

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """Files on disk, the least valuable first, until their bytes reach `n_bytes` or none is left.

        `spare`: bool[files known or more], files that must stay. They remain on disk until `removed`.
        """


def one_by_one(order: EvictionOrder, found: Found) -> IntArray:
    """`EvictionOrder.found` by the other methods of `order`."""
    before = np.empty(found.file.size, np.int64)
    files = zip(*(column.tolist() for column in found), strict=True)
    for k, (file, n_bytes, at_s, is_read) in enumerate(files):
        on_disk = order.bytes_on_disk(file)
        before[k] = -1 if on_disk is None else on_disk
        if is_read:
            order.read(file, 0, at_s, is_held=on_disk is not None)
        order.stored(file, n_bytes, at_s)
    return before
