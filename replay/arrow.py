"""A `Trace` made from cachecast's own tables in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from replay.read.assemble import LoadedTrace, assemble
from replay.read.choice import Choice, house_roles
from replay.read.source import TableSource


def from_arrow(
    accesses: pa.Table, *, files: pa.Table | None = None, site: str | None = None, keep: Sequence[str] = ()
) -> LoadedTrace:
    """The trace of an `accesses` table, and what happened to rows without a known size.

    `accesses`: rows in any order; columns accessed_at, did and size_bytes, and if present n_reads, event_id,
    closed_at and read_bytes. Rows are ordered by (accessed_at, event_id); a row of k reads becomes k accesses
    at its time. A file's size is the first one that an access states, else the one in `files` (did unique,
    size_bytes). A file of unknown size is dropped with its rows. Files of `files` that nobody reads come
    after the others, since a planner may place them. `site`: only the accesses of this site;
    `keep`: columns to keep beside the trace.
    Raises SchemaError, InputError.
    """
    source = TableSource("accesses", accesses)
    catalogue = None if files is None else TableSource("files", files)
    return assemble(source, house_roles(source), Choice(site, keep=tuple(keep)), files=catalogue)
