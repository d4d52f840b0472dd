"""A `Trace` made from the house's tables in memory."""

from __future__ import annotations

import pyarrow as pa

from replay.read.assemble import Choice, LoadedTrace, assemble
from replay.read.roles import house_roles
from replay.read.source import TableSource


def from_arrow(accesses: pa.Table, *, files: pa.Table | None = None, site: str | None = None) -> LoadedTrace:
    """The trace of an `accesses` table, and the number of rows dropped for want of a size.

    `accesses`: any row order; columns accessed_at, did and size_bytes, and where they are there n_reads,
    event_id, closed_at and read_bytes are used. Rows are ordered by (accessed_at, event_id); a row of k
    reads becomes k accesses at its time. A file's size is the first one an access states, else the one in
    `files` (did unique, size_bytes); a file that neither knows is dropped with its rows. Files of `files`
    that nobody reads follow the others: a planner must be able to place what will not be read. `site`: only
    its accesses. Raises SchemaError, InputError.
    """
    source = TableSource("accesses", accesses)
    catalogue = None if files is None else TableSource("files", files)
    return assemble(source, house_roles(source), Choice(site), files=catalogue)
