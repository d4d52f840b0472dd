"""The part of a file that jobs read, of what was known at a moment."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa

from features.schema import ACCESSES, arrow_schema
from jobs.ground.store.tables import Tables
from jobs.loop.plan.file_facts import read_shares

AS_OF = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)


def test_a_read_known_from_its_open_counts_once_its_bytes_are_told(tmp_path: Path) -> None:
    def row(number: int, closed_h: int, read_bytes: int) -> dict[str, object]:
        name = {"did": "s:f", "scope": "s", "name": "f", "dataset": "s:d", "source": "xrootd_fstream"}
        opened = AS_OF - dt.timedelta(hours=5)
        times = {"accessed_at": opened, "known_at": opened, "closed_at": AS_OF + dt.timedelta(hours=closed_h)}
        sizes = {"size_bytes": 100, "read_bytes": read_bytes, "n_reads": 1}
        return {**name, **times, **sizes, "event_id": str(number), "day": "2026-03-01"}

    tables = Tables(str(tmp_path))
    schema = arrow_schema(ACCESSES).append(pa.field("day", pa.string()))
    rows = [row(1, closed_h=-1, read_bytes=20), row(2, closed_h=1, read_bytes=100)]
    tables.replace_arrow(ACCESSES, pa.Table.from_pylist(rows, schema=schema))
    assert read_shares(tables, as_of_s=int(AS_OF.timestamp())) == {"s:d": 0.2}
    assert read_shares(tables, as_of_s=int(AS_OF.timestamp()) + 7200) == {"s:d": 0.6}


def test_a_record_that_got_a_size_wrong_changes_no_share(tmp_path: Path) -> None:
    rows = [
        {
            **{"did": "s:f", "scope": "s", "name": "f", "dataset": "s:d", "source": "x", "n_reads": 1},
            **{"accessed_at": AS_OF - dt.timedelta(hours=5), "known_at": AS_OF - dt.timedelta(hours=4)},
            **{"size_bytes": size, "read_bytes": 20, "event_id": str(number), "day": "2026-03-01"},
        }
        for number, size in enumerate((100, 100, 0, None, 7))
    ]
    tables = Tables(str(tmp_path))
    schema = arrow_schema(ACCESSES).append(pa.field("day", pa.string()))
    tables.replace_arrow(ACCESSES, pa.Table.from_pylist(rows, schema=schema))
    assert read_shares(tables, as_of_s=int(AS_OF.timestamp())) == {"s:d": 0.2}
