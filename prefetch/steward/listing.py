"""What a cache's records say, as arrays: of a whole inventory, or of some of its files."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from prefetch.steward.clock import newest_use_s, uptime_s
from prefetch.steward.names import Names
from prefetch.target import CacheTarget, Held

FILES_AT_ONCE: Final = 2000


class Records(NamedTuple):
    """Files by number: their sizes, their bytes on disk, and their last uses, s since 1970; NaN: no use."""

    file: IntArray
    size_bytes: IntArray
    n_bytes: IntArray
    used_s: FloatArray

    @classmethod
    def of(cls, some: Sequence[Held], number: Callable[[Held], int]) -> Records:
        """The records of some files, which `number` gives their numbers."""
        return cls(
            np.array([number(held) for held in some], np.int64),
            np.array([held.size_bytes for held in some], np.int64),
            np.array([held.bytes_on_disk for held in some], np.int64),
            np.array([held.last_use_s or held.last_detach_s or math.nan for held in some], np.float64),
        )

    @classmethod
    def joined(cls, parts: Sequence[Records]) -> Records:
        """All of `parts`, one after the other."""
        none = cls.of([], lambda _: 0)
        return cls._make(map(np.concatenate, zip(none, *parts, strict=True)))

    def taken(self, which: IntArray | BoolArray) -> Records:
        """Those at some places, in that order."""
        return Records._make(column[which] for column in self)

    def used_by(self, now_s: float) -> FloatArray:
        """The last uses, s since 1970; a file without one, or with one to come, is used at `now_s`."""
        return np.fmin(self.used_s, now_s)

    def newest_s(self) -> float | None:
        """The newest use that can be believed, s since 1970; None: none is recorded."""
        return newest_use_s(self.used_s[~np.isnan(self.used_s)])


class Listing(NamedTuple):
    """What a cache held, as a walk found it that began at `at_s`: arrays in the order of `names`.

    `names` may grow. `used_s`: see `Records.used_by`; `newest_s`: the newest use that a record names, see
    `Records.newest_s`. `uptime_s`: how long the machine had run at `at_s`. Times are s since 1970.
    """

    names: Names
    size_bytes: IntArray
    n_bytes: IntArray
    used_s: FloatArray
    newest_s: float | None
    at_s: float
    uptime_s: float


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Suspend garbage collection: a million new names hold none, and each search looks at all of them."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


@_nothing_collected()
def listed(target: CacheTarget, *, now_s: float) -> Listing:
    """What `target` holds. Raises InputError and TargetUnavailable as `CacheTarget.inventory` does."""
    began_s = uptime_s()
    names, files = Names(), iter(target.inventory())
    columns = [bytearray() for _ in Records._fields]
    while some := list(islice(files, FILES_AT_ONCE)):
        for column, values in zip(columns, Records.of(some, lambda held: names.add(held.name)), strict=True):
            column.extend(values.tobytes())
    file, size_bytes, n_bytes = (np.frombuffer(column, np.int64) for column in columns[:3])
    records = Records(file, size_bytes, n_bytes, np.frombuffer(columns[3], np.float64))
    if records.file.size > len(names):  # a folder listed a name twice: what was read last counts
        last = np.zeros(len(names), np.int64)
        last[records.file] = np.arange(records.file.size)
        records = records.taken(last)
    _, size_bytes, n_bytes, _ = records
    return Listing(names, size_bytes, n_bytes, records.used_by(now_s), records.newest_s(), now_s, began_s)
