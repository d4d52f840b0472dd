"""Records of jobs that golden files cannot hold."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from jobs.ingest.local_engine import LocalEngine
from jobs.ingest.pull_input import pull
from jobs.ingest.sources.lines import MOST_LINE_BYTES
from jobs.store.tables import Tables

DAY = dt.date(2026, 3, 5)


def test_a_list_that_is_too_long_for_a_line_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_bytes(
        b'{"jobs": [{"pandaid": 1},' + b" " * MOST_LINE_BYTES + b'{"pandaid": 2}]}'
    )
    tables = Tables(str(tmp_path / "tables"))
    told = pull(LocalEngine(), tables, source="panda_jobs", path=str(tmp_path / "jobs.json"), day=DAY)
    assert told.n_rejected == {"longer than 16 MiB: write one record a line": 1}


def test_records_and_lists_of_them_may_follow_each_other(tmp_path: Path) -> None:
    lines = [
        '{"pandaid": 1}',
        '[{"pandaid": 2}, 7, {"pandaid": 3}]',
        "[]",
        '{"a": 1, "jobs": [{"pandaid": 4}]}',
        "[{]",
    ]
    (tmp_path / "jobs.json").write_text("\n".join(lines))
    tables = Tables(str(tmp_path / "tables"))
    told = pull(LocalEngine(), tables, source="panda_jobs", path=str(tmp_path / "jobs.json"), day=DAY)
    assert told.n_rejected == {"missing field: jobstatus": 4, "malformed record": 3}
