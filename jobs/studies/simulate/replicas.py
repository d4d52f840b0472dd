"""The replicas that a site stores, and which it could do without; or those of a trace's files."""

import dataclasses
from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray
from features.common.errors import InputError
from features.common.hosts import first_fit, stated
from features.common.times import DAY_S
from features.schema import FILES
from jobs.ground.store.tables import Tables
from jobs.ground.text import count
from replay.read import LoadedTrace
from replay.read.values import first_known

_COLUMNS = ("did", "name", "dataset", "size_bytes", "origins", "locked", "known_at", "updated_at")
_OLD_DAYS = 7
_SHOWN = 8


class Kind(IntEnum):
    """What keeps a site's replica: nothing, a rule, perhaps a rule, or that no other disk has the file."""

    FREE, RULED, UNKNOWN, ON_TAPE, LAST = range(5)


WORDS = {
    Kind.FREE: "no rule, and on another disk",
    Kind.RULED: "a rule keeps it, and on another disk",
    Kind.UNKNOWN: "on another disk; rules unknown",
    Kind.ON_TAPE: "elsewhere only on tape",
    Kind.LAST: "the last replica",
}
DROPPABLE = (Kind.FREE, Kind.RULED, Kind.UNKNOWN)  # of others a cache could not soon fetch the file


@dataclasses.dataclass(frozen=True)
class Stored:
    """Replicas of one kind at the site: what keeps them, and the bytes that jobs asked for of them."""

    kept_by: str
    files: int
    stored_bytes: int
    read_bytes_per_day: float
    unread_bytes: int


@dataclasses.dataclass(frozen=True, eq=False)
class Replicas:
    """The replicas of a site, a row per file; `kind`: of `Kind`; `dataset`: code of `datasets`.

    `of_item`: the row of each file of the trace, -1: none. `notes`: what was left out, and why.
    """

    size_bytes: IntArray
    kind: IntArray
    dataset: IntArray
    datasets: pa.Array
    of_item: IntArray
    notes: tuple[str, ...]

    def stored(self, read: IntArray, n_days: int) -> Iterator[Stored]:
        """What is stored, by what keeps it; `read`: how often each replica was read on `n_days` days."""
        for kind, words in WORDS.items():
            is_it = self.kind == kind
            if is_it.any():
                yield Stored(
                    kept_by=words,
                    files=int(is_it.sum()),
                    stored_bytes=int(self.size_bytes[is_it].sum()),
                    read_bytes_per_day=int(read[is_it] @ self.size_bytes[is_it]) / n_days,
                    unread_bytes=int(self.size_bytes[is_it & (read == 0)].sum()),
                )


def of_trace(loaded: LoadedTrace) -> Replicas:
    """The files of a trace, as if the site stored them all and each were on another disk, without a rule."""
    trace = loaded.trace
    names = trace.names if trace.names is not None else pa.array(map(str, range(trace.n_items)), pa.string())
    dataset: pa.Array = names
    if "dataset" in loaded.details.column_names:
        named = first_known(loaded.details["dataset"], trace.item, trace.n_items)
        dataset = pc.coalesce(named, names)
    coded = dataset.dictionary_encode()
    return Replicas(
        size_bytes=trace.size_bytes,
        kind=np.full(trace.n_items, int(Kind.FREE)),
        dataset=coded.indices.to_numpy().astype(np.int64),
        datasets=coded.dictionary,
        of_item=np.arange(trace.n_items),
        notes=("every file of the trace counts as stored, on another disk too, and without a rule",),
    )


def of_tables(
    tables: Tables, loaded: LoadedTrace, *, rses: Sequence[str], tape: Sequence[str], caches: Sequence[str]
) -> Replicas:
    """The replicas at RSEs by patterns `rses`, of the table `files`; `tape`, `caches`: which are no disk.

    Files of the trace are found by did, else name. Raises StaleInputError, InputError if no RSE fits.
    """
    files = tables.read_arrow(FILES, columns=_COLUMNS)
    n_bad = pc.sum(pc.less(files["size_bytes"], 0)).as_py() or 0
    files = files.filter(pc.greater_equal(files["size_bytes"], 0)) if n_bad else files
    at = _Places(files["origins"].combine_chunks(), rses, tape, caches)
    if not at.here.any():
        raise InputError(f"no replica is at {', '.join(rses)}; the table files has {at.known()}: give --rse")
    kind = np.where(at.elsewhere, int(Kind.UNKNOWN), np.where(at.on_tape, int(Kind.ON_TAPE), int(Kind.LAST)))
    locked = files["locked"].combine_chunks()
    is_told = pc.is_valid(locked).to_numpy(zero_copy_only=False)
    is_ruled = _Places(locked, rses, (), ()).here
    kind[at.elsewhere & is_told] = int(Kind.FREE)
    kind[at.elsewhere & is_ruled] = int(Kind.RULED)
    stored = files.filter(pa.array(at.here))
    dataset = pc.coalesce(stored["dataset"], stored["did"]).combine_chunks().dictionary_encode()
    names = loaded.trace.names
    if names is None:
        raise InputError("the trace has no names of files to find replicas by; leave out --rse")
    by_did, by_name = (pc.index_in(names, value_set=stored[key].combine_chunks()) for key in ("did", "name"))
    of_item: IntArray = pc.coalesce(by_did, by_name).fill_null(-1).to_numpy().astype(np.int64)
    return Replicas(
        size_bytes=stored["size_bytes"].to_numpy(),
        kind=kind[at.here],
        dataset=dataset.indices.to_numpy().astype(np.int64),
        datasets=dataset.dictionary,
        of_item=of_item,
        notes=tuple(_notes(loaded, of_item, stored, n_bad=n_bad, n_nowhere=at.n_nowhere)),
    )


class _Places:
    """Where files are, of a list of RSEs each: `here`, on a disk `elsewhere`, and `on_tape` elsewhere."""

    def __init__(
        self, lists: pa.ListArray, rses: Sequence[str], tape: Sequence[str], caches: Sequence[str]
    ) -> None:
        flat, parent = stated(pc.list_flatten(lists)), pc.list_parent_indices(lists)
        is_place = flat.is_valid().to_numpy(zero_copy_only=False) & (first_fit(flat, [caches]) != 0)
        flat, parent = flat.filter(pa.array(is_place)), parent.to_numpy(zero_copy_only=False)[is_place]
        self._names = flat
        is_tape = first_fit(flat, [tape]) == 0
        is_here = (first_fit(flat, [rses]) == 0) & ~is_tape

        def has_any(rows: BoolArray) -> BoolArray:
            is_parent = np.zeros(len(lists), np.bool_)
            is_parent[parent[rows]] = True
            return is_parent

        self.here = has_any(is_here)
        self.elsewhere, self.on_tape = has_any(~is_here & ~is_tape), has_any(~is_here & is_tape)
        self.n_nowhere = int(len(lists) - (self.here | self.elsewhere | self.on_tape).sum())

    def known(self) -> str:
        names = sorted(name for name in self._names.unique().to_pylist() if name)
        return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "") or "none"


def _notes(
    loaded: LoadedTrace, of_item: IntArray, stored: pa.Table, *, n_bad: int, n_nowhere: int
) -> Iterator[str]:
    known_us = pc.coalesce(stored["updated_at"], stored["known_at"]).cast(pa.int64()).to_numpy()
    if n := int((known_us < known_us.max() - _OLD_DAYS * DAY_S * 1_000_000).sum()):
        yield (
            f"{count(n)} of {count(known_us.size)} replicas were last listed more than {_OLD_DAYS} days "
            "before the others: they, or those on other disks, may be gone; pull the catalogue again "
            "before you delete"
        )
    is_stranger = of_item[loaded.trace.item] < 0
    if n := int(is_stranger.sum()):
        n_files = np.unique(loaded.trace.item[is_stranger]).size
        yield (
            f"{count(n)} of {count(is_stranger.size)} accesses read {count(n_files)} files without a replica "
            "here: they take no storage, and do not count"
        )
    if n_bad:
        yield f"{count(n_bad)} files of negative size, left out"
    if n_nowhere:
        yield f"{count(n_nowhere)} files have no replica at a known RSE, and do not count"
