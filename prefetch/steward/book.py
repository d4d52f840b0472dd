"""The files of a cache by name and number: those that a walk lists, and those that reports name."""

from __future__ import annotations

import gc
import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from features.common.arrays import FloatArray, Ids, IntArray, joined, pages, taken
from prefetch.steward.clock import uptime_s
from prefetch.target import CacheTarget, Held
from replay.access_context import MOST_KINDS, extension
from replay.config import matching
from replay.steward.steward import Steward

_FEWEST: Final = 1024
_MANY: Final = 2**21
"""Room for a million names, in 8 MB: whenever there is too little, all are hashed anew."""
_FREE: Final = -1


class Names:
    """Different names, each with its number, from 0 in the order of `add`: about 20 bytes and its UTF-8."""

    def __init__(self, n_slots: int = _FEWEST) -> None:
        self._text, self._ends = bytearray(), array("q", [0])
        # A hash table with linear probing, at most half full; its size is a power of 2.
        self._slots = array("i", [_FREE]) * n_slots

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        return self._text[self._ends[number] : self._ends[number + 1]].decode(errors="surrogatepass")

    def find(self, name: str) -> int | None:
        number = self._slots[self._slot(name.encode(errors="surrogatepass"))]
        return None if number == _FREE else number

    def add(self, name: str) -> int:
        if 2 * len(self._ends) > len(self._slots):
            self._double()
        text = name.encode(errors="surrogatepass")
        at = self._slot(text)
        if self._slots[at] == _FREE:
            self._slots[at] = len(self)
            self._text += text
            self._ends.append(len(self._text))
        return self._slots[at]

    def _slot(self, text: bytes) -> int:
        slots, ends, last = self._slots, self._ends, len(self._slots) - 1
        at = hash(text) & last
        while (number := slots[at]) != _FREE and self._text[ends[number] : ends[number + 1]] != text:
            at = (at + 1) & last
        return at

    def _double(self) -> None:
        slots = array("i", [_FREE]) * (2 * len(self._slots))
        last = len(slots) - 1
        for number, (begin, end) in enumerate(pairwise(self._ends)):
            at = hash(bytes(self._text[begin:end])) & last
            while slots[at] != _FREE:
                at = (at + 1) & last
            slots[at] = number
        self._slots = slots


FILES_AT_ONCE: Final = 2000


_RECORDS_PER_ODD_ONE: Final = 100
"""One record in so many may be damaged and name any time."""


def newest_use_s(uses_s: Sequence[float] | FloatArray) -> float | None:
    """The newest time, without the newest hundredth, which may be damaged; None if there are none."""
    if not len(uses_s):
        return None
    place = -1 - len(uses_s) // _RECORDS_PER_ODD_ONE
    return float(np.partition(np.asarray(uses_s), place)[place])


class Records(NamedTuple):
    """Files by number: their sizes, their bytes on disk, and their last uses, s since 1970; NaN: no use."""

    file: IntArray
    size_bytes: IntArray
    n_bytes: IntArray
    used_s: FloatArray

    @classmethod
    def of(cls, some: Sequence[Held], number: Callable[[Held], int]) -> Records:
        return cls(
            np.array([number(held) for held in some], np.int64),
            np.array([held.size_bytes for held in some], np.int64),
            np.array([held.bytes_on_disk for held in some], np.int64),
            np.array([held.last_use_s or held.last_detach_s or math.nan for held in some], np.float64),
        )

    def used_by(self, now_s: float) -> FloatArray:
        """The last uses, s since 1970; a file without one, or with one to come, is used at `now_s`."""
        return np.fmin(self.used_s, now_s)

    def newest_s(self) -> float | None:
        """The newest use that can be believed, s since 1970; None: none is recorded."""
        return newest_use_s(self.used_s[~np.isnan(self.used_s)])


NO_RECORDS: Final = Records.of([], lambda _: 0)


class Listing(NamedTuple):
    """What a cache held by a walk that began at `at_s`: arrays in the order of `names`, which may grow.

    `used_s`, `newest_s`: see `Records`. `uptime_s`: how long the machine had run at `at_s`. Times are s since
    1970.
    """

    names: Names
    size_bytes: IntArray
    n_bytes: IntArray
    used_s: FloatArray
    newest_s: float | None
    at_s: float
    uptime_s: float


def listed(target: CacheTarget, *, now_s: float) -> Listing:
    """What `target` holds. Raises InputError and TargetUnavailable as `CacheTarget.inventory` does."""
    began_s = uptime_s()
    names = Names(_MANY)
    gc.disable()  # a million new names hold no garbage, and each search for some looks at all of them
    try:
        some = pages(target.inventory(), FILES_AT_ONCE)
        parts = (Records.of(held, lambda file: names.add(file.name)) for held in some)
        records = joined([NO_RECORDS, *parts])
    finally:
        gc.enable()
        gc.freeze()
    if records.file.size > len(names):  # a folder listed a name twice: what was read last counts
        last = np.zeros(len(names), np.int64)
        last[records.file] = np.arange(records.file.size)
        records = taken(records, last)
    _, size_bytes, n_bytes, _ = records
    return Listing(names, size_bytes, n_bytes, records.used_by(now_s), records.newest_s(), now_s, began_s)


_NAMES_AT_ONCE: Final = 2**14


class Datasets:
    """The dataset of each file in a catalogue, in 12 bytes per file, however long the names are.

    `rows`: names of files and their datasets, None where a file has none. A file is found by its whole name,
    or by the last part of it. Names are compared by a hash of 64 bits.
    """

    def __init__(self, rows: Iterable[tuple[Sequence[str], Sequence[str | None]]] = ()) -> None:
        numbers: dict[str, int] = {}
        hashes, codes = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
        for names, datasets in rows:
            known = [(name, of) for name, of in zip(names, datasets, strict=True) if of is not None]
            hashes.append(np.fromiter((hash(name) for name, _ in known), np.int64, len(known)))
            code = (numbers.setdefault(of, len(numbers)) for _, of in known)
            codes.append(np.fromiter(code, np.int32, len(known)))
        self._hashes, first = np.unique(np.concatenate(hashes), return_index=True)
        self._codes = np.concatenate(codes)[first]
        self._titles: list[str] = list(numbers)

    def of(self, names: Sequence[str]) -> list[str | None]:
        """The dataset of each of the files `names`, None if the catalogue has none for it."""
        if not self._titles:
            return [None] * len(names)
        whole, last = self._codes_of(names), self._codes_of([name.rpartition("/")[2] for name in names])
        codes = np.where(whole < 0, last, whole).tolist()
        return [self._titles[code] if code >= 0 else None for code in codes]

    def _codes_of(self, names: Sequence[str]) -> Ids:
        """The dataset's place in the titles; -1: none."""
        hashes = np.fromiter(map(hash, names), np.int64, len(names))
        at = np.minimum(np.searchsorted(self._hashes, hashes), self._hashes.size - 1)
        return np.where(self._hashes[at] == hashes, self._codes[at], np.int32(-1))


class Book:
    """The known files by their number in `steward`, from those of `listing` on.

    A file without a dataset in `datasets` belongs to that of its folder. `kinds`: the kinds of files that a
    model was trained with, in its order; empty: numbered as they come. `test_files`: patterns of names that
    only monitoring reads; `tests`: the files that match.
    """

    def __init__(
        self,
        steward: Steward,
        datasets: Datasets,
        kinds: Sequence[str] = (),
        test_files: Sequence[str] = (),
        *,
        listing: Listing | None = None,
    ) -> None:
        self.tests: dict[int, None] = {}
        self._is_test = matching(test_files)
        self.steward, self._catalogue = steward, datasets
        self._names = Names() if listing is None else listing.names
        self._datasets: dict[str, int] = {}
        self._kinds = {kind: number for number, kind in enumerate(kinds)}
        self._has_all_kinds = bool(kinds)
        if listing is not None:
            self._add(0, listing.size_bytes)

    def __len__(self) -> int:
        return len(self._names)

    def name(self, file: int) -> str:
        return self._names[file]

    def known(self, names: Iterable[str]) -> list[int]:
        return [number for name in names if (number := self.find(name)) is not None]

    def find(self, name: str) -> int | None:
        return self._names.find(name)

    def number(self, name: str, size_bytes: int = -1) -> int:
        """The number of file `name`; an unknown file is added. `size_bytes`: -1 if unknown."""
        n_known = len(self._names)
        file = self._names.add(name)
        if file == n_known:
            self._add(file, np.array([size_bytes], np.int64))
        return file

    def _add(self, first: int, size_bytes: IntArray) -> None:
        datasets, kinds, numbers = np.empty_like(size_bytes), np.empty_like(size_bytes), self._datasets
        for begin in range(0, size_bytes.size, _NAMES_AT_ONCE):
            some = slice(begin, min(size_bytes.size, begin + _NAMES_AT_ONCE))
            names = [self._names[first + at] for at in range(some.start, some.stop)]
            titles = self._catalogue.of(names)
            datasets[some] = [
                # A dataset's name is no path, so that no folder is taken for one.
                numbers.setdefault(name[: name.rfind("/") + 1] if title is None else title, len(numbers))
                for name, title in zip(names, titles, strict=True)
            ]
            kinds[some] = [self._kind(extension(name)) for name in names]
            self.tests |= {at: None for at, name in enumerate(names, first + begin) if self._is_test(name)}
        self.steward.add(datasets, kinds, size_bytes)

    def _kind(self, kind: str) -> int:
        if not self._has_all_kinds and len(self._kinds) < MOST_KINDS:
            return self._kinds.setdefault(kind, len(self._kinds))
        return self._kinds.get(kind, MOST_KINDS)
