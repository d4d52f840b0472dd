"""A state as rows of the table `states`, to be carried on later."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import FloatArray, IntArray
from features.schema import STATES, arrow_schema
from features.stream.events import MICROS, numbers
from features.stream.facts import ALWAYS, Statements
from features.stream.state import DATASET_WIDTH, FILE_WIDTH, PASS_WIDTH, PASSES, Ids, State

FILE, DATASET = "file", "dataset"
ALONE = "\n"
"""The end of the name of a dataset that is one file without a dataset; it begins with the did."""
_STATED = ("dataset", "tier", "campaign", "size_bytes", "created_at")


@dataclasses.dataclass(frozen=True)
class Stored:
    """`rows`: as the table `states`, each entity once."""

    rows: pa.Table

    @classmethod
    def empty(cls) -> Stored:
        """A state that has counted nothing."""
        return cls(arrow_schema(STATES).empty_table())

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
        facts: Mapping[str, pa.Array | IntArray],
    ) -> Stored:
        """The rows of files `item` and of datasets `dataset`; `facts`: of the files, -1: unknown number."""
        numbers_of_datasets = np.concatenate(
            [state.dataset[dataset], state.passes[dataset].reshape(dataset.size, PASSES * PASS_WIDTH)], axis=1
        )
        of_files = {
            "kind": pa.repeat(FILE, item.size),
            "entity": dids.take(pa.array(item)),
            "dataset": dataset_names.take(pa.array(dataset_of[item])),
            "numbers": _lists(state.file[item]),
            **{name: _column(name, values) for name, values in facts.items()},
        }
        of_datasets = {
            "kind": pa.repeat(DATASET, dataset.size),
            "entity": dataset_names.take(pa.array(dataset)),
            "numbers": _lists(numbers_of_datasets),
        }
        schema = arrow_schema(STATES)
        parts = [_fitted(part, schema) for part in (of_files, of_datasets)]
        return cls(pa.concat_tables(parts).combine_chunks())

    @property
    def dids(self) -> pa.Array:
        """The files, sorted as the rows are."""
        return self._of(FILE)["entity"].combine_chunks()

    def statements(self, dids: pa.Array) -> Statements:
        """What the state says of its files, known from the beginning; a file that is alone has no dataset."""
        rows = self._of(FILE)
        name = rows["dataset"].combine_chunks()
        named = pc.if_else(pc.ends_with(name, ALONE), pa.scalar(None, pa.string()), name)
        stated = {one: rows[one] for one in _STATED} | {"dataset": pa.chunked_array([named])}
        item = numbers(rows["entity"], dids)
        return Statements(item, np.full(rows.num_rows, ALWAYS), pa.table(stated), np.arange(rows.num_rows))

    def put_into(self, state: State, dids: pa.Array, dataset_names: pa.Array) -> None:
        """Write the numbers into an empty state. Its datasets without a file are left out."""
        files, datasets = self._of(FILE), self._of(DATASET)
        state.file[numbers(files["entity"], dids)] = _matrix(files["numbers"], FILE_WIDTH)
        place = numbers(datasets["entity"], dataset_names)
        values = _matrix(datasets["numbers"], DATASET_WIDTH + PASSES * PASS_WIDTH)[place >= 0]
        place = place[place >= 0]
        state.dataset[place] = values[:, :DATASET_WIDTH]
        state.passes[place] = values[:, DATASET_WIDTH:].reshape(-1, PASSES, PASS_WIDTH)

    def _of(self, kind: str) -> pa.Table:
        return self.rows.filter(pc.equal(self.rows["kind"], kind))


def _lists(matrix: FloatArray) -> pa.Array:
    n, width = matrix.shape
    offsets = np.arange(n + 1, dtype=np.int32) * width
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(matrix.reshape(-1)))


def _matrix(lists: pa.ChunkedArray, width: int) -> FloatArray:
    values = pc.list_flatten(lists).to_numpy()
    return np.asarray(values, np.float64).reshape(len(lists), width)


def _column(name: str, values: pa.Array | IntArray) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    is_time = name == "created_at"
    numbers_or_times = pa.array(values * MICROS if is_time else values, mask=values < 0)
    return numbers_or_times.cast(pa.timestamp("us", tz="UTC")) if is_time else numbers_or_times


def _fitted(columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    n = len(columns["kind"])
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(n, field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)
