"""Records from outside, damaged: every row is written or counted, whatever it holds (some 20 s)."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull_input
from jobs.loop.ingest.pull_input import Engine

GOLDEN = Path(__file__).parents[3] / "golden/pull"
DAY = dt.date(2026, 3, 5)


def golden(source: str) -> Path:
    """The first input of a source's golden cases."""
    return sorted(path for path in (GOLDEN / source).rglob("input.*") if path.is_file())[0]


def pulled(engine: Engine, tables: Tables, source: str, path: Path) -> pull_input.PullSummary:
    return pull_input.pull(engine, tables, source=source, path=str(path), day=DAY, salt="pepper", caches=())


BIG = 2**62


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("xcache_gstream", {"b_hit": 2**63 - 1, "b_miss": 2**63 - 1}),
        ("xcache_gstream", {"size": BIG}),
        ("rucio_traces", {"filesize": BIG}),
        ("rucio_files", {"bytes": BIG}),
    ],
)
def test_bytes_that_no_file_has_are_counted(
    engine: Engine, tmp_path: Path, source: str, change: dict[str, int]
) -> None:
    seed = golden(source)
    text = seed.read_text()
    path = tmp_path / f"poisoned{seed.suffix}"
    if source == "xcache_gstream":
        frame = "\n".join(json.dumps(part) for part in (_HEADER, _EVENT | change)) + "\n"
        path.write_text(f"@@1772323200 1 {len(frame)}\n{frame}")
    else:
        first = next(line for line in text.splitlines() if line.strip())
        path.write_text(json.dumps(json.loads(first) | change) + "\n")
    summary = pulled(engine, Tables(str(tmp_path / "tables")), source, path)
    assert (summary.n_new, summary.n_rows) == (0, 1)
    assert next(iter(summary.n_rejected)).startswith("impossible size")


_HEADER = {
    **{"code": "g", "pseq": 1, "stod": 1772323200, "sid": 1},
    **{"src": {"host": "h", "inst": "i", "site": "s", "port": 1}, "gs": {"type": "C"}},
}
_EVENT = {
    **{"event": "file_close", "lfn": "/store/x", "size": 300, "blk_size": 100, "n_blks": 3, "n_blks_done": 3},
    **{"access_cnt": 1, "attach_t": 1772323200, "detach_t": 1772323201, "remotes": []},
    **{"b_hit": 0, "b_miss": 300, "b_bypass": 0},
}
