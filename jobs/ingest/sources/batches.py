"""Rows that a reader gives one by one, as Arrow batches: only a batch of them is in memory as Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import pyarrow as pa

_BATCH_ROWS = 20_000


def batches_of(rows: Iterable[Mapping[str, object]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """`rows` in their order, as batches of `schema`; a field that a row does not have is null."""
    stream = iter(rows)
    while batch := list(islice(stream, _BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist(batch, schema=schema)
