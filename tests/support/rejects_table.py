"""The table of rejects: rows for it, and what lies where it is kept."""

import pyarrow as pa

from features.schema import REJECTS, arrow_schema
from jobs.ground.store.filesystems import Store, store_at
from jobs.ground.store.tables import Tables


def rejects(day: str, *n_rows: int) -> pa.Table:
    """A row of `day` for each of `n_rows`."""
    rows = [
        {"source": "s", "input": f"i{k}", "reason": "r", "n_rows": n, "sample": None, "day": day}
        for k, n in enumerate(n_rows)
    ]
    schema = arrow_schema(REJECTS).append(pa.field("day", pa.string(), nullable=False))
    return pa.Table.from_pylist(rows, schema=schema)


def rejects_in(tables: Tables) -> Store:
    return store_at(tables.root).below("rejects")


def data_folders(tables: Tables) -> list[str]:
    return [name for name in rejects_in(tables).names() if name.startswith("data-")]
