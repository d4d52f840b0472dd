"""`import cachecast`: quick, its page and examples run, and wrong types are one line."""

import contextlib
import doctest
import importlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import cachecast

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE, re.DOTALL)
TRACE = "when,item,size\n1,a,10\n2,b,10\n3,a,10\n"
READS = {"time": [1, 2, 3, 4], "item": ["a", "b", "a", "b"], "size": [10, 10, 10, 10]}


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:mlflow")
@pytest.mark.filterwarnings("ignore::FutureWarning:mlflow")
def test_the_snippets_of_the_page_run_and_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    monkeypatch.chdir(tmp_path)
    assert len(SNIPPETS) == PAGE.count("```python") >= 5
    space: dict[str, Any] = {}
    for code, output in SNIPPETS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, space)
        assert printed.getvalue() == output
    assert "first_come" in (tmp_path / "replay.html").read_text()
    assert len(space["run_id"]) == 32


OF_SEAMS = (
    *("prefetch.target", "replay.policies.policy", "replay.policies.own", "replay.planner"),
    *("replay.read.source", "replay.steward.order"),
)


@pytest.mark.parametrize("module", ["cachecast", "cachecast.replays", *OF_SEAMS])
def test_the_examples_of_the_package_and_of_each_seam_run(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted and not results.failed


def test_the_import_is_quick_and_loads_what_is_used() -> None:
    code = (
        "import time; began = time.process_time()\nimport cachecast\nimport sys\n"
        "assert time.process_time() - began < 1\n"
        "assert not {'numpy', 'numba', 'pandas', 'pyarrow'} & set(sys.modules)\n"
        f"cachecast.replay({READS}, 'lru', '20B')\n"
        "heavy = {'pyspark', 'mlflow', 'matplotlib', 'lightgbm'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_every_name_is_there_and_no_other() -> None:
    assert all(getattr(cachecast, name) is not None for name in cachecast.__all__)
    assert sorted(name for names in cachecast._HOMES.values() for name in names) == cachecast.__all__
    with pytest.raises(AttributeError, match="cachecast has no 'nothing'; it has CachecastError, "):
        _ = cachecast.nothing


def test_a_frame_a_table_and_a_file_are_the_same_trace(tmp_path: Path) -> None:
    table = pa.table(READS)
    pd.DataFrame(READS).to_csv(tmp_path / "t.csv", index=False)
    frame = pd.DataFrame(READS)
    sources = (
        READS,
        table,
        frame,
        frame.set_index("time"),
        frame[frame["size"] > 0],
        str(tmp_path / "t.csv"),
    )
    for source in sources:
        reads = cachecast.read_trace(source)
        assert reads.trace.time_s.tolist() == READS["time"]
        assert reads.trace.item.tolist() == [0, 1, 0, 1]
        assert reads.notes == ()
    late = pd.DataFrame(READS | {"time": pd.to_datetime([1, 2, 3, 4], unit="s", utc=True)})
    assert cachecast.read_trace(late).trace.time_s.tolist() == READS["time"]


def test_errors_and_notes_name_arguments_and_no_options(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("when,file,size\n2026-03-02T00:00:00,a,1\n2026-03-01T23:30:00,b,1\n")
    named = {"time": "when", "item": "file"}
    with pytest.raises(cachecast.CachecastError, match=r"give sort=True; .* twice, .* need time_zone$"):
        cachecast.read_trace(tmp_path / "t.csv", columns=named)
    (note,) = cachecast.read_trace(tmp_path / "t.csv", columns=named, sort=True).notes
    assert note.endswith("if they are local, give time_zone")
    with pytest.raises(cachecast.CachecastError, match=r"give columns=\{'time': 'NAME'\}"):
        cachecast.read_trace(tmp_path / "t.csv", columns={"item": "file"})
    with pytest.raises(cachecast.CachecastError, match="give an earlier since"):
        cachecast.bound(READS, "20B", since="2026-03-01")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cachecast.read_trace(3), "a trace is a path, a DataFrame, .* not int"),
        (lambda: cachecast.read_trace([1, 2]), "a trace is a path, .* not list"),
        (lambda: cachecast.read_trace({"time": [1]}), "which column is the item"),
        (lambda: cachecast.read_trace(READS | {"size": [1]}), "the table cannot be read: "),
        (lambda: cachecast.read_trace(READS | {"size": [1, 2, 3, object()]}), "the table cannot be read: "),
        (lambda: cachecast.read_trace(READS | {"size": ["x"] * 4}), "size"),
        (lambda: cachecast.read_trace("nowhere.csv"), "there is no trace nowhere.csv"),
        (lambda: cachecast.read_trace(READS, columns=["when"]), "columns are names by role"),  # type: ignore[arg-type]
        (lambda: cachecast.read_trace(READS, time_unit=3), "time_unit is a word"),  # type: ignore[arg-type]
        (lambda: cachecast.read_trace(READS, time_unit="min"), "no time unit 'min'"),
        (lambda: cachecast.read_trace(READS, kind="best"), "no trace kind 'best'"),
        (lambda: cachecast.replay(READS, "lru", None), "not a size: None"),  # type: ignore[arg-type]
        (lambda: cachecast.replay(READS, "lru", 1.5), "not a size: 1.5"),
        (lambda: cachecast.replay(READS, "lru", True), "not a size: True"),
        (lambda: cachecast.replay(READS, "lru", [1.0, True]), "not a size: True"),
        (lambda: cachecast.replay(READS, "lru", []), "there is no capacity"),
        (lambda: cachecast.bound(READS, [1, 2]), "not a size: .1, 2."),  # type: ignore[arg-type]
        (lambda: cachecast.replay(READS, "lru", "much"), "not a size: 'much'"),
        (lambda: cachecast.replay(READS, "lru,fifo", 20), "no policy is called 'lru,fifo'"),
        (lambda: cachecast.replay(READS, [3], 20), "3 is neither a name nor a function"),  # type: ignore[list-item]
        (lambda: cachecast.replay(READS, "lru+plan", 20), "lru.plan needs the site's tables"),
        (lambda: cachecast.replay(READS, "lru", 20, since=3), "since is a UTC day"),  # type: ignore[arg-type]
        (lambda: cachecast.lru_curve(READS).hit_ratio_at(0.1), "not a size: 0.1"),  # type: ignore[arg-type]
        (lambda: cachecast.replay(READS, "lru", 20).gap_closed("fifo"), "'fifo' was not replayed"),
        (lambda: cachecast.replay(READS, "lru", 20).write("x.pdf"), "must end in one of"),
    ],
)
def test_what_is_wrong_is_one_line(call: Any, words: str) -> None:
    with pytest.raises(cachecast.CachecastError, match=words) as error:
        call()
    assert "\n" not in str(error.value)


def test_one_byte_is_a_capacity_beside_the_share_of_all() -> None:
    rows = cachecast.replay(READS, "lru", [1.0, 1]).rows
    assert {row["capacity_bytes"] for row in rows} == {1, 20}


def test_the_notebooks_use_this_door_alone() -> None:
    rooms = "|".join(("conf", "dags", "features", "jobs", "models", "prefetch", "replay"))
    notebooks = list((ROOT / "docs" / "examples").glob("*.ipynb"))
    assert notebooks
    for path in notebooks:
        text = "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])
        assert "import cachecast" in text, path
        assert not re.findall(rf"^\s*(?:from|import) (?:{rooms})\b.*", text, re.MULTILINE), path
