"""Facts of files beside their reads, and from when each is known; a state as rows of the table `states`.

A fact is the one stated first, by a read or by the catalogue. So it does not matter how often, and from which
state, features are computed. Of sizes the catalogue's counts from when it is known, and 0 is none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, FloatArray, Ids, IntArray
from features.common.jit import bare
from features.schema import STATES, arrow_schema
from features.stream.events import MICROS, Numbers, usable_from
from features.stream.names import numbers, ranked, whole
from features.stream.state import D_LAST, DATASET_WIDTH, FILE_WIDTH, PASS_WIDTH, PASSES, State

NEVER = np.iinfo(np.int64).max
ALWAYS = np.iinfo(np.int64).min

CATALOGUE = ("did", "dataset", "tier", "campaign", "size_bytes", "created_at", "known_at")
"""Columns of `files` that are used."""
TEXTS = ("tier", "campaign")
OF_READS = (*TEXTS, "size_bytes")
"""Facts that reads state; a state keeps what they stated first."""
FILE, DATASET = "file", "dataset"
"""Kinds of entities in the table `states`."""
ALONE = "\n"
"""The end of the name of a dataset that is one file without a dataset; it begins with the did."""
_CHUNK_ROWS = 1 << 20
"""An array of Arrow holds 2 GiB, so rows become bytes in chunks."""
REPEATED = ("kind", "dataset", "tier", "campaign")
"""Texts of a state that many rows share; a stored state may have them coded."""
_SIZE = "size_bytes"
_TIME = pa.timestamp("us", tz="UTC")


class Fact(NamedTuple):
    """One fact of `m` files: codes into `words`, or numbers; -1: none. It is known from `from_s` on."""

    value: IntArray
    from_s: IntArray
    words: pa.Array | None = None

    def at(self, item: Ids, as_of_s: int) -> IntArray:
        """The fact of each of `item` as known at `as_of_s`, -1: not known."""
        return np.where(self.from_s[item] <= as_of_s, self.value[item], -1)

    def column(self, item: Ids, as_of_s: int) -> pa.Array:
        """The fact of each of `item` as known at `as_of_s`, as a column, texts coded; null: not known."""
        codes = self.at(item, as_of_s)
        values = pa.array(codes, mask=codes < 0)
        return values if self.words is None else pa.DictionaryArray.from_arrays(values, self.words)


class Statements(NamedTuple):
    """Rows that state facts of files, by number, earlier ones first, and from when on each may be used."""

    item: Ids
    from_s: IntArray
    rows: pa.Table

    def usable_from(self, name: str) -> IntArray:
        """The decision time from which fact `name` of each row may be used: int64[n], s since 1970."""
        column = f"{name}_s"
        if column not in self.rows.column_names:
            return self.from_s
        return np.array(pc.fill_null(self.rows[column], NEVER).to_numpy())


def fact(
    name: str,
    n_files: int,
    sources: Sequence[Statements],
    *,
    coded: tuple[pa.Array, Sequence[Ids]] | None = None,
    since_s: FloatArray | None = None,
) -> Fact:
    """The first statement of fact `name` for each file; of equally early ones that of the first source.

    `coded`: the words of a text, and their codes by source, if known; `since_s`: by file, what was stated
    before is forgotten.
    """
    words: pa.Array | None = None
    columns: Sequence[Numbers]
    if coded is not None or name in TEXTS:
        words, columns = coded or ranked([source.rows[name] for source in sources])
    else:
        columns = [_integers(source.rows[name]) for source in sources]
    value, from_s = np.full(n_files, -1, np.int64), np.full(n_files, NEVER)
    since_s = np.full(n_files, -np.inf) if since_s is None else since_s
    least = 1 if name == _SIZE else 0
    for source, codes in zip(sources, columns, strict=True):
        stated = np.where(codes >= least, codes, -1).astype(np.int64), source.usable_from(name)
        _state(source.item, stated, since_s, value, from_s)
    return Fact(value, from_s, words)


@bare
def _state(
    item: Ids, stated: tuple[IntArray, IntArray], since_s: FloatArray, value: IntArray, from_s: IntArray
) -> None:
    """Set the fact of each file that a row states earlier; `stated`: codes, below 0 none, and since when."""
    for row in range(item.size):
        file, code, usable_s = item[row], stated[0][row], stated[1][row]
        if code >= 0 and since_s[file] <= usable_s < from_s[file]:
            value[file], from_s[file] = code, usable_s


def text(name: str, n_files: int, catalogue: Statements, reads: Sequence[Statements]) -> tuple[Fact, Fact]:
    """The text `name` as `reads` state it first, and the same with the catalogue, which is before equals."""
    words, codes = ranked([statements.rows[name] for statements in (catalogue, *reads)])
    listed = fact(name, n_files, [catalogue], coded=(words, codes[:1]))
    stated = fact(name, n_files, reads, coded=(words, codes[1:]))
    value = np.where(listed.from_s <= stated.from_s, listed.value, stated.value)
    return stated, Fact(value, np.minimum(listed.from_s, stated.from_s), words)


def of_catalogue(files: pa.Table, item: Ids, *, cycle_s: int) -> Statements:
    """The rows of the catalogue as statements; `files` has each did once."""
    return Statements(item, usable_from(files["known_at"], cycle_s), files)


def listed_from(catalogue: Statements, n_files: int, *, cycle_s: int) -> IntArray:
    """The decision time from which each file is listed in its dataset, int64[m]; NEVER: not listed."""
    created = usable_from(pc.fill_null(catalogue.rows["created_at"], pa.scalar(0, _TIME)), cycle_s)
    from_s = np.full(n_files, NEVER)
    from_s[catalogue.item] = np.maximum(catalogue.from_s, created)
    return from_s


def _integers(column: pa.ChunkedArray) -> IntArray:
    values: IntArray = np.array(pc.fill_null(column.cast(pa.int64()), -1).to_numpy())
    if pa.types.is_timestamp(column.type):
        is_null: BoolArray = np.asarray(column.is_null())
        return np.where(is_null, -1, np.maximum(values // MICROS, 0))
    return values


@dataclasses.dataclass(frozen=True)
class Stored:
    """`files`, `datasets`: rows of the table `states`, each entity once."""

    files: pa.Table
    datasets: pa.Table

    @classmethod
    def of_rows(cls, rows: pa.Table) -> Stored:
        """The stored state of these rows of the table `states`, given in any order."""
        is_file = pc.equal(rows["kind"], FILE)
        n_files = pc.sum(is_file, min_count=0).as_py()
        if pc.all(is_file[:n_files], min_count=0).as_py():  # as one process writes them; nothing is copied
            return cls(rows[:n_files], rows[n_files:])
        return cls(rows.filter(is_file), rows.filter(pc.invert(is_file)))

    @classmethod
    def empty(cls) -> Stored:
        """A stored state without any read."""
        return cls.of_rows(arrow_schema(STATES).empty_table())

    @classmethod
    def of(
        cls,
        state: State,
        item: Ids,
        dataset: IntArray,
        *,
        dids: pa.Array,
        dataset_of: Ids,
        dataset_names: pa.Array,
        facts: Mapping[str, pa.Array],
    ) -> Stored:
        """The rows of files `item` and of datasets `dataset`; `facts`: what reads stated of the files."""
        passes = state.passes[dataset].reshape(dataset.size, PASSES * PASS_WIDTH)
        last_read_s = state.dataset[:, D_LAST]
        of_files = {
            "kind": pa.repeat(FILE, item.size),
            "entity": dids.take(pa.array(item)),
            "dataset": dataset_names.take(pa.array(dataset_of[item])),
            **facts,
            "last_read_s": pa.array(last_read_s[dataset_of[item]]),
            "numbers": _bytes(state.file[item]),
        }
        of_datasets = {
            "kind": pa.repeat(DATASET, dataset.size),
            "entity": dataset_names.take(pa.array(dataset)),
            "last_read_s": pa.array(last_read_s[dataset]),
            "numbers": _bytes(np.concatenate([state.dataset[dataset], passes], axis=1)),
        }
        return cls(_fitted(of_files), _fitted(of_datasets))

    @property
    def rows(self) -> pa.Table:
        """All rows as they are written to the table `states`."""
        return pa.concat_tables([self.files, self.datasets])

    def statements(self, item: Ids) -> Statements:
        """The facts of the stored files; `item`: their numbers. One of no dataset states none of it."""
        name = pc.dictionary_encode(whole(self.files["dataset"]))
        is_own = pc.ends_with(name.dictionary, ALONE).take(name.indices)
        codes = pc.if_else(is_own, pa.scalar(None, pa.int32()), name.indices)
        dataset = pa.DictionaryArray.from_arrays(codes, name.dictionary)
        rows = self.files.drop_columns(["numbers"])
        stated = rows.set_column(rows.column_names.index("dataset"), "dataset", dataset)
        return Statements(item, np.full(item.size, ALWAYS), stated)

    def put_into(self, state: State, item: Ids, dataset_names: pa.Array) -> None:
        """Write the stored files and datasets into `state`, which is empty.

        `item`: the number of each stored file in `state`; `dataset_names`: the names of its datasets. Stored
        datasets that are not among them are left out.
        """
        for rows, values in _matrices(self.files["numbers"], FILE_WIDTH):
            state.file[item[rows]] = values
        place = numbers(self.datasets["entity"], dataset_names)
        for rows, values in _matrices(self.datasets["numbers"], DATASET_WIDTH + PASSES * PASS_WIDTH):
            is_here = place[rows] >= 0
            here, there = values[is_here], place[rows][is_here]
            state.dataset[there] = here[:, :DATASET_WIDTH]
            state.passes[there] = here[:, DATASET_WIDTH:].reshape(-1, PASSES, PASS_WIDTH)


def _bytes(matrix: FloatArray) -> pa.ChunkedArray:
    """The bytes of each row in memory; `_matrices` reads them back."""
    chunks = []
    for rows in (matrix[k : k + _CHUNK_ROWS] for k in range(0, len(matrix), _CHUNK_ROWS)):
        starts = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(rows[:1].nbytes)
        buffers = [None, pa.py_buffer(starts), pa.py_buffer(np.ascontiguousarray(rows))]
        chunks.append(pa.Array.from_buffers(pa.binary(), len(rows), buffers))
    return pa.chunked_array(chunks, pa.binary())


def _matrices(values: pa.ChunkedArray, width: int) -> Iterator[tuple[slice, FloatArray]]:
    """The rows of each chunk, and their numbers, which are not copied."""
    start = 0
    for chunk in values.chunks:
        _, starts, texts = chunk.buffers()
        ends = np.frombuffer(starts, np.int32)[[chunk.offset, chunk.offset + len(chunk)]]
        numbers_of_chunk = np.frombuffer(texts or b"", np.uint8)[ends[0] : ends[1]].view(np.float64)
        yield slice(start, start + len(chunk)), numbers_of_chunk.reshape(len(chunk), width)
        start += len(chunk)


def _fitted(columns: Mapping[str, pa.Array]) -> pa.Table:
    schema, n = arrow_schema(STATES), len(columns["kind"])
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(n, field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)
