"""The context of accesses that a learned order uses: datasets, kinds of files, and readers."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import FloatArray, Ids, IntArray
from features.common.errors import InputError
from features.stream.state import Files, task_number, user_number
from replay.read import LoadedTrace
from replay.read.values import codes_of, first_known
from replay.trace import Trace

MOST_KINDS = 32
"""Kinds of files that count apart, numbered from 0; all others have this number."""
_EXTENSION = r"\.(?P<kind>[0-9]*[^./0-9][^./]{0,11})(?:\.[0-9]+)*"
_search = re.compile(rf"{_EXTENSION}\Z").search

CONTEXT = ("dataset", "user", "task")
"""Roles of columns that a context is made of."""


class QueuedReads(NamedTuple):
    """Entries of batch queues by `at_s`, float64[k], s since 1970: when an entry became known.

    From then on, work is expected to read `file`, int32[k], at `due_s`, float64[k]; NaN: no longer.
    """

    at_s: FloatArray
    file: Ids
    due_s: FloatArray


NO_QUEUE = QueuedReads(np.zeros(0), np.zeros(0, np.int32), np.zeros(0))


class AccessContext(NamedTuple):
    """What is known of the files and the readers of a trace of `n` accesses.

    `files`: see `features.stream.state`, datasets numbered from 0 to `n_datasets` - 1; `reader`: int64[n],
    the task or user of each access (`task_number`, `user_number`), 0 if it is not named. `queued`: heeded by
    learned orders.
    """

    files: Files
    n_datasets: int
    reader: IntArray
    queued: QueuedReads = NO_QUEUE


def context_of(loaded: LoadedTrace) -> AccessContext:
    """The context of a trace's accesses, by those columns of `CONTEXT` that `loaded.details` has.

    A file without a dataset belongs to that of its folder; without a folder it is a dataset of its own. No
    catalogue is used: a dataset has as many files as have been read.
    """
    trace, columns = loaded.trace, dict(zip(loaded.details.column_names, loaded.details.columns, strict=True))
    of_file = _datasets(trace, columns.get("dataset"))
    n_datasets = int(of_file.max(initial=-1)) + 1
    kinds = np.zeros(trace.n_items, np.int32)
    if trace.names is not None:
        kinds = kind_numbers(trace.names, file_kinds(trace))
    files = Files(
        of_file,
        kinds,
        trace.size_bytes,
        np.full(trace.n_items, -1, np.int32),
        np.zeros(n_datasets, np.int64),
        np.inf,
    )
    reader = np.zeros(trace.n_accesses, np.int64)
    for role, number in (("user", user_number), ("task", task_number)):
        if role in columns:
            codes = _codes(columns[role]).astype(np.int64)
            reader = np.where(codes >= 0, number(codes), reader)
    return AccessContext(files, n_datasets, reader)


def check_fits(context: AccessContext, trace: Trace) -> None:
    """Raise InputError unless `context` has the size of `trace`: kernels do not check its numbers."""
    files = context.files
    per_file = (files.dataset, files.tier, files.size_bytes, files.rank)
    fits = (
        all(column.size == trace.n_items for column in per_file)
        and context.reader.size >= trace.n_accesses
        and files.dataset.min() >= 0
        and files.dataset.max() < context.n_datasets == files.n_files.size
        and context.queued.file.max(initial=-1) < trace.n_items
        and context.queued.file.min(initial=0) >= 0
    )
    if not fits:
        raise InputError("the context is of another trace; make it from the same accesses")


def _datasets(trace: Trace, column: pa.ChunkedArray | None) -> Ids:
    """A dense number of each file's dataset, int32[m]."""
    named = pa.nulls(trace.n_items, pa.string())
    if column is not None:
        named = first_known(column, trace.item, trace.n_items)
    own = pc.cast(pa.array(np.arange(trace.n_items)), pa.string())
    if trace.names is not None:
        folder = pc.replace_substring_regex(trace.names.cast(pa.string()), r"[^/]*$", "")
        own = pc.if_else(pc.equal(folder, ""), own, folder)
    return _codes(pc.coalesce(pc.binary_join_element_wise("dataset", named, "\n"), own))


def file_kinds(trace: Trace) -> tuple[str, ...]:
    """The kinds of files by number, in the order of the first files of each; see `extension`."""
    if trace.names is None:
        return ()
    return tuple(pc.unique(extensions(trace.names)).to_pylist()[:MOST_KINDS])


def kind_numbers(names: pa.Array | pa.ChunkedArray, kinds: Sequence[str]) -> Ids:
    """The number of the kind of each file, int32; `kinds`: of `file_kinds`, of this trace or of another."""
    places = pc.index_in(extensions(names), value_set=pa.array(kinds, pa.string()))
    numbers: Ids = np.asarray(pc.fill_null(places, MOST_KINDS)).astype(np.int32)
    return numbers


def extension(name: str) -> str:
    """The kind of a file by its name, empty if it has none.

    A number at the end is a version: both `x.root` and `x.root.1` are of the kind `root`.
    """
    match = _search(name)
    return match[1] if match else ""


def extensions(names: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The `extension` of each of `names`."""
    parts = pc.extract_regex(names.cast(pa.string()), f"{_EXTENSION}$")
    return pc.fill_null(pc.struct_field(parts, "kind"), "")


def _codes(values: pa.Array | pa.ChunkedArray) -> Ids:
    """Dense numbers from 0 in the order of appearance, -1 for null, int32."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    column = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
    return codes_of(column).code
