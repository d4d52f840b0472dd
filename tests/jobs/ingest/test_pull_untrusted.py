"""Records from outside, damaged: every row is written or counted, whatever it holds (some 20 s)."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest
from damage import damaged

from features.schema import ACCESSES
from jobs.ingest import pull_input
from jobs.ingest.pull_input import Engine
from jobs.store.tables import Tables

GOLDEN = Path(__file__).parents[2] / "golden/pull"
DAY = dt.date(2026, 3, 5)
# The others, which are made of the same parts, are asked by bench/fuzz_sources.py.
ASKED = ("cms_aaa", "rucio_traces", "xcache_gstream")


def golden(source: str) -> Path:
    """The first input of a source's golden cases."""
    return sorted(path for path in (GOLDEN / source).rglob("input.*") if path.is_file())[0]


def pulled(engine: Engine, tables: Tables, source: str, path: Path) -> pull_input.PullSummary:
    return pull_input.pull(engine, tables, source=source, path=str(path), day=DAY, salt="pepper", caches=())


@pytest.mark.parametrize("source", ASKED)
def test_damaged_lines_are_written_or_counted(engine: Engine, tmp_path: Path, source: str) -> None:
    seed = golden(source)
    path = tmp_path / f"damaged{seed.suffix}"
    path.write_bytes(damaged(seed.read_bytes(), 300, seed=7))
    tables = Tables(str(tmp_path / "tables"))
    summary = pulled(engine, tables, source, path)
    assert summary.n_rows == summary.n_new + summary.n_duplicates + sum(summary.n_rejected.values())
    assert summary.n_rejected
    _sums_fit(tables)


def _sums_fit(tables: Tables) -> None:
    """What features add up cannot overflow: a hundred such records are still far from the end."""
    if not tables.exists(ACCESSES):
        return
    rows = tables.read_arrow(ACCESSES)
    for name, weight in {"n_reads": 2**32, "read_bytes": 1, "size_bytes": 1}.items():
        assert sum(value or 0 for value in rows[name].to_pylist()) * 100 * weight < 2**63


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
