"""`evaluate --trace`: what is learned from a trace's past, and that nothing later is used."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from cachecast_main import asked
from typer.testing import CliRunner

from jobs.cli.main import app

DAY_S = 86400
OWN = """
from replay.policies.policy import Served

def never(trace, capacity_bytes, hit):
    return 0

class Parts:
    def serve(self, trace, capacity_bytes):
        size = trace.size_bytes[trace.item]
        return Served(0, size, size // 2, size // 2, size < 0)

parts = Parts()
"""
START_S = 1_750_032_000  # a midnight
COLUMNS = "time=t,item=file,size=bytes,dataset=set,user=who"


def trace(path: Path, *, days: int = 9, seed: int = 1) -> Path:
    """Datasets that are read through again and again, among files that are read once."""
    draw = np.random.default_rng(seed)
    times, names, sets, users = [], [], [], []
    for d in range(24):
        n_files, period_s = int(draw.integers(15, 40)), float(draw.choice([0.4, 1.1, 40.0])) * DAY_S
        at = START_S + draw.random() * DAY_S
        while at < START_S + days * DAY_S:
            for f in range(n_files):
                times.append(int(at) + 20 * f)
                names.append(f"/store/set{d}/f{f:03}.root")
                sets.append(f"set{d}")
                users.append(f"user{int(draw.integers(0, 3))}")
            at += period_s * (0.8 + 0.4 * draw.random())
    columns = {"t": times, "file": names, "bytes": [1_000_000] * len(times), "set": sets, "who": users}
    pyarrow.csv.write_csv(pa.table(columns).take(np.argsort(times, kind="stable")), path)
    return path


def answered(path: Path, *words: str) -> dict[str, Any]:
    options = ["--columns", COLUMNS, "--from", "2025-06-22", "--capacity-fraction", "0.2", *words]
    answer: dict[str, Any] = asked("evaluate", "--trace", path, *options)
    return answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace")


@pytest.fixture(scope="module")
def answer(folder: Path) -> dict[str, Any]:
    """Of reads with their activity, where it is known, and a policy of one's own; beside it is the page."""
    path = trace(folder / "t.csv")
    table = pyarrow.csv.read_csv(path)
    of_set = [
        None if name == "set0" else ("production", "analysis")[len(name) % 2]
        for name in table["set"].to_pylist()
    ]
    pyarrow.csv.write_csv(table.append_column("activity", pa.array(of_set)), path)
    (folder / "own.py").write_text(OWN)
    own = ("--policy", f"{folder / 'own.py'}:never,{folder / 'own.py'}:parts,steward")
    return answered(path, "--out", str(folder / "page.html"), *own)


def test_the_learned_order_saves_what_recency_does_not(answer: dict[str, Any]) -> None:
    rows = {row["policy"]: row for row in answer["rows"]}
    wan_bytes = {policy: row["wan_bytes"] for policy, row in rows.items()}
    assert wan_bytes["bound"] <= wan_bytes["steward"] < 0.95 * wan_bytes["lru"]
    assert wan_bytes["bound"] <= wan_bytes["steward-auto"] < 0.98 * wan_bytes["lru"]
    # Whole datasets are read in turn: no better than LRU.
    assert wan_bytes["steward-auto"] < wan_bytes["steward-dataset-lru"]
    assert rows.keys() >= {"s3fifo", "sieve", "2q", "lfu-da", "gdsf", "clairvoyant"}
    assert all(row["prefetch_bytes"] == 0 for row in rows.values())


def test_what_is_saved_is_told_by_activity_and_adds_up(answer: dict[str, Any], folder: Path) -> None:
    rows = {row["policy"]: row for row in answer["rows"]}
    assert rows["never"]["byte_hit_ratio"] == 0 < rows["steward"]["byte_hit_ratio"]
    for policy in ("steward", "s3fifo", "clairvoyant", "never"):
        mine = [row for row in answer["slices"] if row["policy"] == policy]
        assert {row["activity"] for row in mine} == {"production", "analysis", "unknown"}
        assert sum(row["missed_bytes"] for row in mine) == rows[policy]["wan_bytes"]
        saved = sum(row["saved_bytes_per_day"] for row in mine) * 3
        assert saved == pytest.approx(rows["lru"]["wan_bytes"] - rows[policy]["wan_bytes"])
    assert rows["parts"]["byte_hit_ratio"] > 0.4
    assert "parts" not in {row["policy"] for row in answer["slices"]}  # of halves, no access tells them
    page = (folder / "page.html").read_text()
    assert "By activity" in page and "never" in page


def test_what_happens_later_does_not_change_what_was_done_before(tmp_path: Path) -> None:
    """The counted days are the same whether the trace goes on after them or not."""
    short, long = trace(tmp_path / "short.csv", days=5), trace(tmp_path / "long.csv", days=5)
    table = pyarrow.csv.read_csv(long)
    later = table.set_column(0, "t", pa.array(np.asarray(table["t"]) + 5 * DAY_S)).slice(0, 500)
    pyarrow.csv.write_csv(pa.concat_tables([table, later]), long)
    days = ("--from", "2025-06-19", "--to", "2025-06-20")
    answers = (answered(path, *days)["rows"] for path in (short, long))
    (missed,), (other,) = (
        [row["wan_bytes"] for row in rows if row["policy"] == "steward"] for rows in answers
    )
    assert missed == other > 0


@pytest.mark.parametrize(
    ("since", "why"), [("2025-06-16", "must leave some before it"), ("2025-08-01", "some after it")]
)
def test_days_without_a_past_or_without_accesses_are_refused(tmp_path: Path, since: str, why: str) -> None:
    words = ["evaluate", "--trace", str(trace(tmp_path / "t.csv")), "--columns", COLUMNS, "--from", since]
    assert why in str(CliRunner().invoke(app, words).exception)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--policy", "fifo"], "--policy compares further policies on a trace; give --trace"),
        (["--activity", "analysis"], "its evaluation is of all: leave out --site and --activity"),
        (["--trace", "t.csv", "--cycle", "1h"], "a --trace has no plans"),
    ],
)
def test_options_of_the_other_kind_of_evaluation_are_refused(words: Sequence[str], why: str) -> None:
    answer = CliRunner().invoke(app, ["evaluate", "--from", "2025-06-16", *words])
    assert why in str(answer.exception)


def test_without_a_past_to_learn_from_the_steward_is_lru_as_a_note_says(tmp_path: Path) -> None:
    short = tmp_path / "short.csv"
    short.write_text("time,path,size\n" + "".join(f"{day * DAY_S},f{day % 3},9\n" for day in range(20)))
    words = ("--from", "1970-01-11", "--capacity-fraction", "0.5", "--policy", "steward-lru")
    answer = asked("evaluate", "--trace", short, *words)
    wan_bytes = {row["policy"]: row["wan_bytes"] for row in answer["rows"]}
    assert wan_bytes["steward"] == wan_bytes["steward-lru"] == wan_bytes["lru"] == 90
    assert "steward is LRU" in str(answer["notes"])
    for wrong, why in (("--policy lru+plan", "needs predictions"), ("--cycle 1h", "--accesses and --cycle")):
        invoked = CliRunner().invoke(app, ["evaluate", "--trace", str(short), *words[:2], *wrong.split()])
        assert why in str(invoked.exception)
