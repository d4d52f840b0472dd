"""Rows of the table of accesses from what a test says of them."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from features.schema import ACCESSES, arrow_schema

SCHEMA = arrow_schema(ACCESSES).append(pa.field("day", pa.string()))


def accesses(rows: Iterable[Mapping[str, Any]], **same: Any) -> pa.Table:
    """Reads of `/f` of CMS, each with an id of its own, known and dated when it began.

    What `same` says of all rows, and a row of itself, counts before that; the rest is null.
    """
    full = []
    for number, fields in enumerate(rows):
        known = {"scope": "cms", "name": "/f", "n_reads": 1, "source": "s", "event_id": str(number)}
        row = {**known, **same, **fields}
        at = row["accessed_at"]
        derived = {"did": f"{row['scope']}:{row['name']}", "known_at": at, "day": f"{at:%Y-%m-%d}"}
        full.append(derived | row)
    return pa.Table.from_pylist(full, SCHEMA)
