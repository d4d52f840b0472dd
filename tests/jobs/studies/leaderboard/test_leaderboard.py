"""`leaderboard`: every policy on every trace, resumed, with parts of others, and wrong inputs in one line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cachecast_main import asked
from typer.testing import CliRunner

from features.common.errors import CachecastError, InputError
from features.common.units import TOO_FEW_DAYS
from jobs.cli.main import app
from jobs.studies.leaderboard.leaderboard import STEWARDS
from jobs.studies.leaderboard.leaderboard_page import overview

DAY_S = 86400
START_S = 1_750_032_000  # a midnight
NAMED = """\
[[trace]]
name = "small"
path = "t.parquet"
columns = { time = "t", item = "file", size = "bytes" }
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file that names one trace, and its leaderboard in `out`: popular files among those
    read once, over eight days.
    """
    tmp_path = tmp_path_factory.mktemp("board")
    draw, n = np.random.default_rng(1), 3000
    file = np.where(draw.random(n) < 0.7, draw.zipf(1.4, n) % 200, 1000 + np.arange(n))
    table = pa.table(
        {
            "t": np.sort(draw.integers(START_S, START_S + 8 * DAY_S, n)),
            "file": [f"/store/d{i % 7}/f{i}.root" for i in file.tolist()],
            "bytes": 1_000_000 + 1000 * (file % 50),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    named = tmp_path / "traces.toml"
    named.write_text(NAMED)
    board(named, tmp_path / "out")
    return tmp_path


@pytest.fixture
def traces(site: Path, tmp_path: Path) -> Path:
    """The file of traces in a copy of `site`, whose `out` is `tmp_path / "out"`."""
    shutil.copytree(site, tmp_path, dirs_exist_ok=True)
    return tmp_path / "traces.toml"


def board(traces: Path, out: Path, fractions: str = "0.1") -> dict[str, Any]:
    words = ["leaderboard", "--traces", str(traces), "--out", str(out), "--capacity-fraction", fractions]
    found: dict[str, Any] = asked(*words)
    return found


def test_each_policy_has_a_row_between_lru_and_the_bound(traces: Path, tmp_path: Path) -> None:
    answer = board(traces, tmp_path / "out")
    rows = {row["policy"]: row for row in answer["rows"]}
    assert {"lru", "s3fifo", "sieve", "2q", "gdsf", *STEWARDS, "clairvoyant", "bound"} <= rows.keys()
    assert rows["lru"]["byte_gap_closed"] == 0 and rows["bound"]["byte_gap_closed"] == 1
    assert rows["bound"]["wan_bytes"] <= min(row["wan_bytes"] for row in rows.values())
    assert rows["clairvoyant"]["byte_gap_closed"] > 0.8
    assert rows["lru"]["requests"] < rows["lru"]["accesses"] == 3000
    worst = {row["policy"]: row["worst WAN / LRU"] for row in overview(answer["rows"])}
    assert worst["fifo"] == f"{rows['fifo']['wan_bytes'] / rows['lru']['wan_bytes']:.3f}"
    assert {row["worst WAN / LRU"] for row in overview([rows["fifo"], rows["sieve"]])} == {"–"}
    table = pq.read_table(tmp_path / "out" / "leaderboard.parquet")
    assert table.num_rows == len(rows)
    html = (tmp_path / "out" / "leaderboard.html").read_text()
    assert "small" in html and "Claims of papers" in html
    assert all(row["byte_gap_closed_lower"] is row["byte_gap_closed_upper"] is None for row in rows.values())
    assert f"{TOO_FEW_DAYS}: {rows['lru']['n_days']} count" in html


def test_a_stopped_run_goes_on_where_it_was(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = board(traces, out)
    (out / "parts" / "small" / "0.1" / "gdsf.json").unlink()
    again = board(traces, out)
    assert (again["n_replayed"], again["n_found"]) == (1, first["n_found"] - 1)
    assert [r | {"cpu_us_per_access": 0} for r in again["rows"]] == [
        r | {"cpu_us_per_access": 0} for r in first["rows"]
    ]


def test_what_a_stopped_run_had_learned_is_learned_alike(traces: Path, tmp_path: Path) -> None:
    """Orders are learned for all capacities together, whichever were replayed before."""
    stopped, fresh = tmp_path / "out", tmp_path / "fresh"
    first = board(traces, fresh, "0.1,0.3")
    more = board(traces, stopped, "0.1,0.3")
    assert more["n_found"] == len(more["rows"]) // 2 - len(STEWARDS)
    for name in STEWARDS:
        (stopped / "parts" / "small" / "0.3" / f"{name}.json").unlink()
    again = board(traces, stopped, "0.3,0.1")
    assert again["n_replayed"] == len(STEWARDS)
    for found in (more, again):
        assert wan_bytes(found) == wan_bytes(first)


def wan_bytes(answer: dict[str, Any]) -> dict[tuple[float, str], int]:
    return {(row["capacity_fraction"], row["policy"]): row["wan_bytes"] for row in answer["rows"]}


def test_another_trace_of_the_same_name_is_replayed(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    traces.write_text(traces.read_text() + "count_from = 0.25\n")
    again = board(traces, out)
    assert again["n_found"] == 0
    assert {row["n_days"] for row in again["rows"]} == {6}


def test_a_trace_with_other_kinds_of_files_is_another_one(traces: Path, tmp_path: Path) -> None:
    table = pq.read_table(tmp_path / "t.parquet")
    kinds = pa.array(["txt" if name[-6] in "13579" else "root" for name in table["file"].to_pylist()])
    stems = pc.replace_substring(table["file"], "root", "")
    renamed = pc.binary_join_element_wise(stems, kinds, "")
    pq.write_table(table.set_column(1, "file", renamed), tmp_path / "t.parquet")
    assert board(traces, tmp_path / "out")["n_found"] == 0


def test_parts_of_another_program_are_rows(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    part = json.loads((out / "parts" / "small" / "0.1" / "lru.json").read_text())
    theirs = part | {"policy": "theirs", "wan_bytes": [value // 2 for value in part["wan_bytes"]]}
    (out / "parts" / "small" / "0.1" / "theirs.json").write_text(json.dumps(theirs))
    rows = {row["policy"]: row for row in board(traces, out)["rows"]}
    assert rows["theirs"]["wan_bytes"] == pytest.approx(rows["lru"]["wan_bytes"] / 2, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "trace is missing"),
        ('[[traces]]\nname = "x"\n', "unknown key traces; did you mean trace?"),
        ('[trace]\nname = "x"\n', "trace: must be a list; if it is one of tables, write [[trace]]"),
        ('[[trace]]\nname = "a"\n', "path or scenario"),
        ('[[trace]]\nname = "../a"\npath = "t.parquet"\n', "name"),
        ('[[trace]]\nname = "a"\npath = "none.csv"\n', "none.csv"),
        ('[[trace]]\nname = "a"\nscenario = "nowhere"\n', "nowhere"),
        (NAMED + 'count_from = "2030-01-01"\n', "not within it"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_traces_is_one_line(traces: Path, tmp_path: Path, text: str, words: str) -> None:
    traces.write_text(text)
    answer = CliRunner().invoke(app, ["leaderboard", "--traces", str(traces), "--out", str(tmp_path / "out")])
    assert answer.exit_code == 1
    assert isinstance(answer.exception, CachecastError)
    assert words in str(answer.exception)


def test_a_damaged_part_names_itself_and_its_remedy(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "parts" / "small" / "0.1" / "lru.json").write_text('{"policy": "../../etc"')
    refused(traces, tmp_path / "out", "lru.json")


HOSTILE: list[dict[str, Any]] = [
    {"wan_bytes": [1]},
    {"policy": "bound"},
    {"trace": "<script>alert(1)</script>"},
    {"capacity_fraction": 0.5},
    {"capacity_bytes": 2**80},
    {"wan_bytes": [-5, 0, 0, 0]},
    {"wan_bytes": [2**61] * 4},
    {"requests": 10**400},
    {"hits": 10**12},
    {"cpu_s": float("nan")},
]


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: next(iter(change)))
def test_a_part_that_is_of_something_else_or_cannot_be_is_refused(
    traces: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    out = tmp_path / "out"
    part = json.loads((out / "parts" / "small" / "0.1" / "lru.json").read_text())
    (out / "parts" / "small" / "0.1" / "theirs.json").write_text(
        json.dumps(part | {"policy": "theirs"} | change)
    )
    refused(traces, out)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_a_part_that_is_no_plain_file_is_not_read(
    traces: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "out" / "parts" / "small" / "0.1" / "theirs.json")
    refused(traces, tmp_path / "out")


def refused(traces: Path, out: Path, part: str = "theirs.json") -> None:
    answer = CliRunner().invoke(
        app, ["leaderboard", "--traces", str(traces), "--out", str(out), "--capacity-fraction", "0.1"]
    )
    assert isinstance(answer.exception, InputError)
    assert part in str(answer.exception) and "delete it" in str(answer.exception)
    assert len(str(answer.exception)) < 1000
