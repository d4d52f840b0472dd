"""Rows of our tables from what a test says of them."""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from features.schema import CONTENTS, FILES, Table, arrow_schema
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables


def filled(table: Table, n: int, columns: Mapping[str, Any]) -> pa.Table:
    """`n` rows with `columns`, of which a single value stands for all rows; the other columns are null."""
    many = (pa.Array, pa.ChunkedArray, np.ndarray, list)
    nulls = {field.name: pa.nulls(n, field.type) for field in arrow_schema(table)}
    stated = {name: of if isinstance(of, many) else pa.repeat(of, n) for name, of in columns.items()}
    return pa.table(nulls | stated)


def put_files(tables: Tables, rows: Iterable[Mapping[str, Any]], **same: Any) -> None:
    """A catalogue of files of CMS, of a byte each and known since 1970, by their `name`.

    What `same` says of all files, and a row of its own, counts before that; the rest is null.
    """
    known = {"scope": "cms", "size_bytes": 1, "known_at": dt.datetime.fromtimestamp(0, dt.UTC)}
    full: list[dict[str, Any]] = [{**known, **same, **row} for row in rows]
    tables.replace_rows(FILES, [{"did": f"{row['scope']}:{row['name']}"} | row for row in full], ())


def put_contents(tables: Tables, cache: str, at_s: int, size_by_name: Mapping[str, int]) -> None:
    """An inventory of whole files of CMS that nobody reads."""
    at = dt.datetime.fromtimestamp(at_s, dt.UTC)
    same = {"complete": True, "open": False, "scanned_at": at, "last_detach": at}
    rows = [
        same | {"did": f"cms:{name}", "name": name, "size_bytes": size, "bytes_on_disk": size}
        for name, size in size_by_name.items()
    ]
    tables.replace_rows(CONTENTS, rows, MomentKey.at(at_s, cache))
