"""Rows of the table `accesses`: which count as demand, whose readers they name, and which sizes count."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.jit import kernel

EVERYWHERE = "*"
"""The key of a demand source for all places without a key of their own."""

PLACES = ("cache", "site")
"""Columns with the place of an access, by precedence."""


def demand(accesses: pa.Table, sources: Mapping[str, str]) -> pa.Table:
    """The rows that count, so that a read which two sources report counts once.

    `accesses`: with the columns cache, site and source. `sources`: the demand source of each cache or site,
    or of `EVERYWHERE`. A row counts if its source is that of its cache, else of its site, else of everywhere;
    it also counts if its place has no demand source.
    """
    source_of_place = pa.nulls(accesses.num_rows, pa.string())
    named = {place: source for place, source in sources.items() if place != EVERYWHERE}
    for place in PLACES:
        index = pc.index_in(accesses[place], value_set=pa.array(list(named), pa.string()), skip_nulls=True)
        source_of_place = pc.coalesce(
            source_of_place, pa.array(list(named.values()), pa.string()).take(index.combine_chunks())
        )
    if EVERYWHERE in sources:
        source_of_place = pc.fill_null(source_of_place, sources[EVERYWHERE])
    return accesses.filter(pc.fill_null(pc.equal(source_of_place, accesses["source"]), True))


TASK: Final = "task"
USER: Final = "user"
SESSION: Final = "session"
KINDS: Final = (TASK, USER, SESSION)
LEAST_SHARE: Final = 0.1
"""A kind counts if it names the readers of more than this share of a table's accesses."""


def reader_kinds(accesses: pa.Table, of_sessions: Sequence[str]) -> tuple[str, ...]:
    """The kinds of `KINDS`, in their order, that occur in rows with the columns user, task and source.

    The reader of an access is its task, else its user. `of_sessions`: the sources whose users are sessions of
    a server, because they know no user's name.
    """
    has_task, has_user = pc.is_valid(accesses[TASK]), pc.is_valid(accesses[USER])
    of_session = pc.is_in(accesses["source"], value_set=pa.array(of_sessions, pa.string()))
    user = pc.and_not(has_user, has_task)
    rows_of_kind = {TASK: has_task, USER: pc.and_not(user, of_session), SESSION: pc.and_(user, of_session)}
    least = LEAST_SHARE * accesses.num_rows
    return tuple(kind for kind in KINDS if (pc.sum(rows_of_kind[kind]).as_py() or 0) > least)


UNKNOWN = -1


def most_stated(file: Ids, stated: IntArray, n_files: int) -> IntArray:
    """Sizes of `n_files` files, UNKNOWN where none is stated. `stated`: by each record, below 0: none.

    A file's size is the one that most records state, of several the largest. A size of 0 counts only if
    nothing else was ever stated: uploads begin with it, and a server states it for an open after a stall.
    """
    size, differs = np.full(n_files, UNKNOWN, np.int64), np.zeros(n_files, np.bool_)
    _largest(file, stated, size, differs)
    rows = np.flatnonzero(differs[file] & (stated > 0))
    if rows.size:
        pairs, count = np.unique(np.stack([file[rows], stated[rows]], axis=1), axis=0, return_counts=True)
        order = np.lexsort((pairs[:, 1], count, pairs[:, 0]))
        size[pairs[order, 0]] = pairs[order, 1]  # the last row of a file is the one that stays
    return size


def catalogue_first(listed: IntArray, stated: IntArray) -> IntArray:
    """The size of each file: `listed` by the catalogue, else as records have `stated` it (UNKNOWN: not)."""
    return np.where((listed > 0) | (stated < 0), listed, stated)


def first_stated(file: Ids, stated: IntArray, n_files: int) -> IntArray:
    """Sizes as of `most_stated`, of a trace whose files change: the first that is stated."""
    size = np.full(n_files, UNKNOWN, np.int64)
    rows = np.flatnonzero(stated != UNKNOWN)[::-1]
    size[file[rows]] = stated[rows]  # the last row of a file stays: as they are reversed, its first
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
