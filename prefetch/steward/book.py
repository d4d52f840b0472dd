"""The names of a cache's files, and their numbers in a `replay.steward.steward.Steward`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from features.common.arrays import Ids, IntArray
from prefetch.steward.listing import Listing
from prefetch.steward.names import Names
from replay.access_context import MOST_KINDS
from replay.config import matching
from replay.steward.steward import Steward

_NAMES_AT_ONCE: Final = 2**14
_MOST_CHARS = 12
"""Most characters of a name's ending that count as a kind of file."""


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
        self._hashes, found = np.unique(np.concatenate(hashes), return_index=True)
        self._codes = np.concatenate(codes)[found]
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
    """The known files by number, in the order in which `steward` got to know them.

    Those of `listing` are known from the beginning. A file without a dataset in `datasets` belongs to the
    dataset of its folder. `kinds`: the kinds of files that a model was trained with, in its order; empty:
    numbered as they come. `test_files`: patterns of names that only monitoring reads; `tests`: the files that
    match them.
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
        self._steward, self._catalogue = steward, datasets
        self._names = Names() if listing is None else listing.names
        self._datasets: dict[str, int] = {}
        self._kinds = {kind: number for number, kind in enumerate(kinds)}
        self._has_all_kinds = bool(kinds)
        if listing is not None:
            self._add(0, listing.size_bytes)

    def __len__(self) -> int:
        """The number of files known."""
        return len(self._names)

    def name(self, file: int) -> str:
        """The name of file number `file`."""
        return self._names[file]

    def known(self, names: Iterable[str]) -> list[int]:
        """The numbers of those of `names` that are known."""
        return [number for name in names if (number := self.find(name)) is not None]

    def find(self, name: str) -> int | None:
        """The number of file `name`; None if it is not known."""
        return self._names.find(name)

    def number(self, name: str, size_bytes: int = -1) -> int:
        """The number of file `name`; an unknown file is added. `size_bytes`: -1 if unknown."""
        n_known = len(self._names)
        file = self._names.add(name)
        if file == n_known:
            self._add(file, np.array([size_bytes], np.int64))
        return file

    def _add(self, first: int, size_bytes: IntArray) -> None:
        """Let the steward know the files from `first` on, with these sizes."""
        datasets, kinds = np.empty_like(size_bytes), np.empty_like(size_bytes)
        for begin in range(0, size_bytes.size, _NAMES_AT_ONCE):
            some = slice(begin, min(size_bytes.size, begin + _NAMES_AT_ONCE))
            names = [self._names[first + at] for at in range(some.start, some.stop)]
            titles = self._catalogue.of(names)
            datasets[some] = [self._dataset(name, title) for name, title in zip(names, titles, strict=True)]
            kinds[some] = [self._kind(name) for name in names]
            self.tests |= {at: None for at, name in enumerate(names, first + begin) if self._is_test(name)}
        self._steward.add(datasets, kinds, size_bytes)

    def _dataset(self, name: str, title: str | None) -> int:
        # A dataset's name is no path, so that no folder is taken for one.
        key = f"{name.rpartition('/')[0]}/" if title is None else title
        return self._datasets.setdefault(key, len(self._datasets))

    def _kind(self, name: str) -> int:
        _, dot, ending = name.rpartition(".")
        kind = ending if dot and len(ending) <= _MOST_CHARS and "/" not in ending else ""
        if not self._has_all_kinds and len(self._kinds) < MOST_KINDS:
            return self._kinds.setdefault(kind, len(self._kinds))
        return self._kinds.get(kind, MOST_KINDS)
