"""The receipts of a plan: from the journal into the receipts table."""

from __future__ import annotations

import pyarrow as pa

from features.common.errors import ConflictError
from features.schema import RECEIPTS, arrow_schema
from jobs.store.keys import MomentKey
from jobs.store.tables import Tables
from prefetch.databases import pages
from prefetch.journal.journal import Journal

_WRITE_ATTEMPTS = 5
_ROWS_AT_ONCE = 5000


def write_receipts(tables: Tables, journal: Journal, cache: str, as_of_s: int) -> None:
    """Replace the receipts of one plan by those in the journal; those of a pruned plan stay as they are.

    Raises ConflictError if other pushers of the plan commit first, time after time.
    """
    key = MomentKey.at(as_of_s, cache)
    for attempt in range(1, _WRITE_ATTEMPTS + 1):
        rows = _in_journal(journal, cache, as_of_s)
        # Checked after the rows were read: if the plan is pruned meanwhile, some of them may be missing.
        if journal.pruning.pruned_at_s(cache, as_of_s) is not None:
            return
        try:
            tables.replace_partition(RECEIPTS, rows, key)
            return
        except ConflictError:
            # Another pusher of the same plan committed first. The journal is newer than both.
            if attempt == _WRITE_ATTEMPTS:
                raise


def are_written(tables: Tables, journal: Journal, cache: str, as_of_s: int) -> bool:
    """Whether the receipts table agrees with the journal about one plan."""
    key = MomentKey.at(as_of_s, cache)
    if not tables.exists(RECEIPTS) or key not in tables.snapshot(RECEIPTS).partitions:
        return False
    columns = ["item_id", "state", "updated_at"]
    written = tables.read_arrow(RECEIPTS, as_of=key.as_of, owner=cache, columns=columns)
    known = _in_journal(journal, cache, as_of_s).select(columns)
    written, known = (rows.sort_by("item_id") for rows in (written, known))
    return all(written[name].equals(known[name]) for name in columns)


def _in_journal(journal: Journal, cache: str, as_of_s: int) -> pa.Table:
    """The receipts of one plan as columns: as Python rows, a million of them would take some GB."""
    schema = arrow_schema(RECEIPTS)
    batches = (
        pa.RecordBatch.from_pylist(rows, schema)
        for rows in pages(journal.reports.receipts(cache, as_of_s), _ROWS_AT_ONCE)
    )
    return pa.Table.from_batches(batches, schema)
