"""Sources that are decoded in this process: files that only make sense one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import pyarrow as pa

from features.common.input_files import InputFile
from features.schema import ACCESSES, Table
from jobs.loop.ingest.sources import Site
from jobs.loop.ingest.sources.workspace import Workspace

_BATCH_ROWS = 20_000


class Earlier(Protocol):
    """The rows of a source in a dated table, on the days (`2026-03-01`) from … to, with their `day`."""

    def __call__(self, since: str, until: str, table: Table = ACCESSES) -> Sequence[pa.Table]: ...


class Decode(Protocol):
    """Adds the rows of the files at `places` to a workspace; returns the records that the source says are
    missing. `earlier` is for sources whose records come in two parts. Raises InputError.
    """

    def __call__(
        self, space: Workspace, places: Sequence[InputFile], *, site: Site, earlier: Earlier
    ) -> int: ...


def batches_of(rows: Iterable[Mapping[str, object]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """`rows` in their order, as batches of `schema`; a field that a row does not have is null.

    Only a batch of them is in memory as Python's objects.
    """
    stream = iter(rows)
    while batch := list(islice(stream, _BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist(batch, schema=schema)
