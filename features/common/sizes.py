"""One size per file, of records that may contradict each other.

A file's size is the catalogue's, else the one that most records state, of several the largest. A size of 0
counts only if nothing else was ever stated: uploads begin with it, and an open after a stall is answered so.
"""

from __future__ import annotations

import numpy as np

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.jit import kernel

UNKNOWN = -1


def most_stated(file: Ids, stated: IntArray, n_files: int) -> IntArray:
    """Sizes of `n_files`, UNKNOWN where none is stated. `stated`: by each record, below 0: none."""
    size, differs = np.full(n_files, UNKNOWN, np.int64), np.zeros(n_files, np.bool_)
    _largest(file, stated, size, differs)
    rows = np.flatnonzero(differs[file] & (stated > 0))
    if rows.size:
        pairs, count = np.unique(np.stack([file[rows], stated[rows]], axis=1), axis=0, return_counts=True)
        order = np.lexsort((pairs[:, 1], count, pairs[:, 0]))
        size[pairs[order, 0]] = pairs[order, 1]  # of equal files the last is set
    return size


def catalogue_first(listed: IntArray, stated: IntArray) -> IntArray:
    """The size of each file: `listed` by the catalogue, else as records have `stated` it (UNKNOWN: not)."""
    return np.where((listed > 0) | (stated < 0), listed, stated)


def first_stated(file: Ids, stated: IntArray, n_files: int) -> IntArray:
    """The same of a trace whose files do change: the size that a file has first."""
    size = np.full(n_files, UNKNOWN, np.int64)
    rows = np.flatnonzero(stated != UNKNOWN)[::-1]
    size[file[rows]] = stated[rows]  # of equal files the last is set, in reversed order the first row
    return size


@kernel
def _largest(file: Ids, stated: IntArray, size: IntArray, differs: BoolArray) -> None:
    """Set each file's `size` to the largest stated, and whether it `differs` between records."""
    for i in range(file.size):
        known = size[file[i]]
        if known > 0 and stated[i] > 0 and stated[i] != known:
            differs[file[i]] = True
        if stated[i] > known:
            size[file[i]] = stated[i]
