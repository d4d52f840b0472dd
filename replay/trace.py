"""A trace of accesses: arrays in time order, files as dense ids; and the window of it that is counted."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from features.common.arrays import BoolArray, IntArray, short_repr
from features.common.errors import InputError
from features.common.jit import kernel
from features.common.times import as_of_label

ItemArray = npt.NDArray[np.int32]
IndexArray = npt.NDArray[np.int32]


MOST_ACCESSES = 2**31 - 2
"""Accesses, plus two per file, must be fewer: indices in the kernels are int32."""

_KINDS = {
    "time_s": np.int64,
    "item": np.int32,
    "size_bytes": np.int64,
    "close_s": np.int64,
    "read_bytes": np.int64,
}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """`n` accesses to some of `m` files.

    `time_s`: int64[n], s since 1970, never decreasing; `item`: int32[n], dense file ids 0 … m - 1;
    `size_bytes`: int64[m], per file; `names`: string[m], the did of each file, or None.
    `close_s`: int64[n], when each access ended, not before it began (None: at once);
    `read_bytes`: int64[n], bytes that each access read, at most the file's size (None: all).
    Some files may never be read; a planner may place them. Raises InputError.
    """

    time_s: IntArray
    item: ItemArray
    size_bytes: IntArray
    names: pa.StringArray | None = None
    close_s: IntArray | None = None
    read_bytes: IntArray | None = None

    def __post_init__(self) -> None:
        for field, kind in _KINDS.items():
            if getattr(self, field) is not None:
                # Kernels are compiled for arrays that are contiguous, writeable and of these types.
                object.__setattr__(self, field, np.require(getattr(self, field), kind, ["C", "W"]))
        _check(self)

    def __repr__(self) -> str:
        return short_repr(self, "n_accesses", "n_items", "footprint_bytes")

    @property
    def n_accesses(self) -> int:
        """Number of accesses."""
        return self.item.size

    @property
    def n_items(self) -> int:
        """Number of files known, read or not."""
        return self.size_bytes.size

    @property
    def footprint_bytes(self) -> int:
        """Bytes of the files that are read at least once; a cache of this size misses each file once."""
        read = np.zeros(self.n_items, np.bool_)
        read[self.item] = True
        return int(self.size_bytes[read].sum())

    @cached_property
    def following(self) -> IndexArray:
        """Index of the next access to the same file, int32[n]; n if there is none."""
        return following(self.item, self.n_items)

    @cached_property
    def closes(self) -> Closes:
        """The closes of the accesses, in their order."""
        if self.close_s is None:
            return Closes(np.zeros(0, np.int32), self.time_s, self.item)
        order, close_time = _by_close(self.close_s)
        rank = np.empty(order.size, np.int32)
        rank[order] = np.arange(order.size, dtype=np.int32)
        return Closes(rank, close_time, self.item[order])

    def until(self, time_s: int) -> Trace:
        """The accesses before `time_s`, of the same files. Raises InputError if there is none."""
        return self.part(slice(self.first_at(time_s)))

    def part(self, which: slice | BoolArray) -> Trace:
        """Some of the accesses, of the same files. Raises InputError if there is none."""
        return dataclasses.replace(
            self,
            time_s=self.time_s[which],
            item=self.item[which],
            close_s=None if self.close_s is None else self.close_s[which],
            read_bytes=None if self.read_bytes is None else self.read_bytes[which],
        )

    def first_at(self, time_s: int) -> int:
        """Index of the first access at or after `time_s`; n if there is none."""
        return int(np.searchsorted(self.time_s, time_s, side="left"))


@kernel
def following(item: ItemArray, n_items: int) -> IndexArray:
    """`Trace.following` of a sequence of ids below `n_items`."""
    n = item.size
    nearest = np.full(n_items, n, np.int32)
    index = np.empty(n, np.int32)
    for i in range(n - 1, -1, -1):
        index[i] = nearest[item[i]]
        nearest[item[i]] = i
    return index


def _check(trace: Trace) -> None:
    n, m = trace.item.size, trace.size_bytes.size
    if n == 0:
        raise InputError("the trace has no access; choose other days or another source")
    if n + 2 * m >= MOST_ACCESSES:
        raise InputError(
            f"the trace has {n} accesses to {m} files, too many for the replay's 31-bit numbers; split it"
        )
    if trace.time_s.size != n:
        raise InputError(f"the trace has {n} items and {trace.time_s.size} times; give one time per access")
    if trace.names is not None and len(trace.names) != m:
        raise InputError(f"the trace has {m} sizes and {len(trace.names)} names; give one name per file")
    if trace.item.min() < 0 or trace.item.max() >= m:
        row = int(np.flatnonzero((trace.item < 0) | (trace.item >= m))[0])
        raise InputError(f"access {row} reads item {trace.item[row]}; items are 0 … {m - 1}")
    backwards = trace.time_s[1:] < trace.time_s[:-1]
    if backwards.any():
        raise InputError(f"access {int(backwards.argmax()) + 1} is earlier than the one before; sort by time")
    negative = np.flatnonzero(trace.size_bytes < 0)
    if negative.size:
        at = int(negative[0])
        raise InputError(f"item {at} has {trace.size_bytes[at]} bytes; correct or drop it")
    _check_per_access(trace)


def _check_per_access(trace: Trace) -> None:
    n = trace.item.size
    for field in ("close_s", "read_bytes"):
        values = getattr(trace, field)
        if values is not None and values.size != n:
            raise InputError(f"the trace has {n} items and {values.size} {field}; give one per access")
    if trace.close_s is not None and (early := trace.close_s < trace.time_s).any():
        raise InputError(f"access {int(early.argmax())} is closed before it is opened; correct or drop it")
    if trace.read_bytes is not None:
        wrong = (trace.read_bytes < 0) | (trace.read_bytes > trace.size_bytes[trace.item])
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"access {row} reads {trace.read_bytes[row]} bytes of a file of "
                f"{trace.size_bytes[trace.item[row]]}; correct or drop it"
            )


class Closes(NamedTuple):
    """`rank`: int32[n], place of each access in the order of closes; empty if accesses close at once.

    `time_s`, `item`: time and file of each close, in that order.
    """

    rank: IndexArray
    time_s: IntArray
    item: ItemArray


def _by_close(close_s: IntArray) -> tuple[IntArray, IntArray]:
    """Indices of the accesses in the order of their closes, which keeps that of equal ones; and the closes.

    Time and index are packed into one number, since sorting numbers is several times faster than an argsort.
    """
    index_bits = int(close_s.size).bit_length()
    first = int(close_s.min())
    time_bits = (int(close_s.max()) - first).bit_length()
    if time_bits + index_bits > 62:
        order = np.argsort(close_s, kind="stable")
        return order, close_s[order]
    packed = ((close_s - first) << index_bits) | np.arange(close_s.size)
    packed.sort()
    close_time = (packed >> index_bits) + first
    packed &= (1 << index_bits) - 1
    return packed, close_time


class Window(NamedTuple):
    """Accesses from index `first` on, at or after `count_from_s`, count; earlier ones warm the cache."""

    count_from_s: int
    first: int


def window(trace: Trace, count_from_s: int | None) -> Window:
    """The window from `count_from_s`; None counts every access. Raises InputError if it has no access."""
    if count_from_s is None:
        return Window(int(trace.time_s[0]), 0)
    first = trace.first_at(count_from_s)
    if first == trace.n_accesses:
        raise InputError(
            f"{as_of_label(count_from_s)}, from which accesses count, is after the last access at "
            f"{as_of_label(int(trace.time_s[-1]))}; give an earlier --from"
        )
    return Window(max(count_from_s, int(trace.time_s[0])), first)
