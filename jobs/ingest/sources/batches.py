"""Rows that a reader gives one by one, as one Arrow table: only a batch of them is in memory as Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import pyarrow as pa

_BATCH_ROWS = 50_000


def table_of(rows: Iterable[Mapping[str, object]], schema: pa.Schema) -> pa.Table:
    """`rows` in their order, as a table of `schema`; a field that a row does not have is null."""
    return pa.Table.from_batches(_batches(rows, schema), schema=schema)


def _batches(rows: Iterable[Mapping[str, object]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    stream = iter(rows)
    while batch := list(islice(stream, _BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist(batch, schema=schema)
