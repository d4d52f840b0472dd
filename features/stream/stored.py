"""A state as rows of the table `states`, to be carried on later."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import FloatArray, Ids, IntArray
from features.schema import STATES, arrow_schema
from features.stream.facts import ALWAYS, Statements
from features.stream.names import numbers
from features.stream.state import D_LAST, DATASET_WIDTH, FILE_WIDTH, PASS_WIDTH, PASSES, State

FILE, DATASET = "file", "dataset"
ALONE = "\n"
"""The end of the name of a dataset that is one file without a dataset; it begins with the did."""
_CHUNK = 1 << 20  # an array of Arrow holds 2 GiB


@dataclasses.dataclass(frozen=True)
class Stored:
    """`files`, `datasets`: rows of the table `states`, each entity once."""

    files: pa.Table
    datasets: pa.Table

    @classmethod
    def of_rows(cls, rows: pa.Table) -> Stored:
        """The stored state of these rows of the table `states`, given in any order."""
        return cls(*(rows.filter(pc.equal(rows["kind"], kind)) for kind in (FILE, DATASET)))

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
        """What the state says of its files, as statements; `item`: the number of each of its files.

        A file that belongs to no dataset states none.
        """
        name = self.files["dataset"]
        named = pc.if_else(pc.ends_with(name, ALONE), pa.scalar(None, pa.string()), name)
        rows = self.files.drop_columns(["numbers"])
        stated = rows.set_column(rows.column_names.index("dataset"), "dataset", named)
        return Statements(item, np.full(item.size, ALWAYS), stated, np.arange(item.size))

    def put_into(self, state: State, item: Ids, dataset_names: pa.Array) -> None:
        """Write the stored files and datasets into `state`, which is empty.

        `item`: the number of each stored file in `state`; `dataset_names`: the names of its datasets. Stored
        datasets that are not among them are left out.
        """
        state.file[item] = _matrix(self.files["numbers"], FILE_WIDTH)
        place = numbers(self.datasets["entity"], dataset_names)
        values = _matrix(self.datasets["numbers"], DATASET_WIDTH + PASSES * PASS_WIDTH)[place >= 0]
        place = place[place >= 0]
        state.dataset[place] = values[:, :DATASET_WIDTH]
        state.passes[place] = values[:, DATASET_WIDTH:].reshape(-1, PASSES, PASS_WIDTH)


def _bytes(matrix: FloatArray) -> pa.ChunkedArray:
    """Each row as it is in memory."""
    chunks = []
    for rows in (matrix[k : k + _CHUNK] for k in range(0, len(matrix), _CHUNK)):
        starts = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(rows[:1].nbytes)
        buffers = [None, pa.py_buffer(starts), pa.py_buffer(np.ascontiguousarray(rows))]
        chunks.append(pa.Array.from_buffers(pa.binary(), len(rows), buffers))
    return pa.chunked_array(chunks, pa.binary())


def _matrix(values: pa.ChunkedArray, width: int) -> FloatArray:
    parts = [np.empty((0, width))]
    for chunk in values.chunks:
        _, starts, texts = chunk.buffers()
        ends = np.frombuffer(starts, np.int32)[[chunk.offset, chunk.offset + len(chunk)]]
        values_of_chunk = np.frombuffer(texts or b"", np.uint8)[ends[0] : ends[1]].view(np.float64)
        parts.append(values_of_chunk.reshape(len(chunk), width))
    return parts[1] if len(parts) == 2 else np.concatenate(parts)


def _fitted(columns: Mapping[str, pa.Array]) -> pa.Table:
    schema, n = arrow_schema(STATES), len(columns["kind"])
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(n, field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)
