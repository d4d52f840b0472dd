"""The names of a cache's files, and their numbers in a `replay.steward.steward.Steward`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from prefetch.steward.listing import Listing
from prefetch.steward.names import Names
from replay.access_context import MOST_KINDS
from replay.config import expression
from replay.steward.steward import Steward

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

    def of(self, name: str) -> str | None:
        """The dataset of file `name`, None if the catalogue has none for it."""
        if not self._titles:
            return None
        for told in (name, name.rpartition("/")[2]):
            number = hash(told)
            at = int(np.searchsorted(self._hashes, number))
            if at < self._hashes.size and self._hashes[at] == number:
                return self._titles[int(self._codes[at])]
        return None


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
        self._is_test = re.compile(expression(test_files)).fullmatch if test_files else lambda _: None
        self._steward, self._catalogue = steward, datasets
        self._names = Names() if listing is None else listing.names
        self._datasets: dict[str, int] = {}
        self._kinds = {kind: number for number, kind in enumerate(kinds)}
        self._has_all_kinds = bool(kinds)
        if listing is not None:
            for file, size_bytes in enumerate(listing.records.size_bytes.tolist()):
                self._add(file, self._names[file], size_bytes)

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
            self._add(file, name, size_bytes)
        return file

    def _add(self, file: int, name: str, size_bytes: int) -> None:
        self._steward.add(self._dataset(name), self._kind(name), size_bytes)
        if self._is_test(name):
            self.tests[file] = None

    def _dataset(self, name: str) -> int:
        # A dataset's name is no path, so that no folder is taken for one.
        title = self._catalogue.of(name)
        key = f"{name.rpartition('/')[0]}/" if title is None else title
        return self._datasets.setdefault(key, len(self._datasets))

    def _kind(self, name: str) -> int:
        _, dot, ending = name.rpartition(".")
        kind = ending if dot and len(ending) <= _MOST_CHARS and "/" not in ending else ""
        if not self._has_all_kinds and len(self._kinds) < MOST_KINDS:
            return self._kinds.setdefault(kind, len(self._kinds))
        return self._kinds.get(kind, MOST_KINDS)
