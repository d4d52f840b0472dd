"""Replays and evaluations as runs of a real MLflow server, and their answers without one."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from planted_region import MLFLOW_WARNINGS, Mlflow, away
from typer.testing import CliRunner

from jobs.cli.main import app
from models.serving.mlflow_session import mlflow

pytestmark = MLFLOW_WARNINGS
DAY_S = 86400
START_S = 1_750_032_000  # a midnight
TRACE = {"trace": "t.parquet", "columns": "time=t,item=file,size=bytes"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trace of sixteen days."""
    folder = tmp_path_factory.mktemp("compared")
    draw, n = np.random.default_rng(1), 2000
    file = np.where(draw.random(n) < 0.7, draw.zipf(1.4, n) % 200, 1000 + np.arange(n))
    times = np.sort(draw.integers(START_S, START_S + 16 * DAY_S, n))
    names = [f"/store/d{i % 7}/f{i}.root" for i in file.tolist()]
    table = pa.table({"t": times, "file": names, "bytes": 1_000_000 + 1000 * (file % 50)})
    pq.write_table(table, folder / TRACE["trace"])
    return folder


def words(kind: str, folder: Path) -> list[str]:
    of_trace = ["--trace", str(folder / TRACE["trace"]), "--columns", TRACE["columns"]]
    return {
        "replay": ["replay", *of_trace, "--policy", "lru,s3fifo", "--capacity-fraction", "0.1"],
        "evaluation": ["evaluate", *of_trace, "--from", "2025-06-21", "--capacity-fraction", "0.1"],
    }[kind]


def run_command(kind: str, folder: Path, at: Mlflow) -> tuple[int, str, str]:
    conf = folder / "site.toml"
    conf.write_text(f'[mlflow]\nuri = "{at.uri}"\npatience = "1s"\nexperiment = "{kind}"\n')
    done = CliRunner().invoke(app, [*words(kind, folder), "--mlflow", "--json", "--conf", str(conf)])
    return done.exit_code, done.stdout, f"{done.stderr} {done.exception}"


@pytest.mark.parametrize("kind", ["replay", "evaluation"])
def test_a_comparison_is_a_run_with_one_nested_per_policy(kind: str, folder: Path, server: Mlflow) -> None:
    code, out, error = run_command(kind, folder, server)
    assert code == 0, error
    answer = json.loads(out)
    rows = {row["policy"]: row for row in (answer if isinstance(answer, list) else answer["rows"])}
    client = mlflow.tracking.MlflowClient(server.uri, registry_uri=server.uri)
    experiment = client.get_experiment_by_name(kind)
    by_name = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    (whole,) = (run for run in by_name.values() if run.data.tags["kind"] == kind)
    files = {file.path for file in client.list_artifacts(whole.info.run_id)}
    assert any(name.endswith(".html") for name in files), files
    nested = {run.data.params["policy"]: run for run in by_name.values() if run is not whole}
    assert nested.keys() == rows.keys() and "s3fifo" in nested
    for policy, run in nested.items():
        assert run.data.tags["mlflow.parentRunId"] == whole.info.run_id
        assert run.data.metrics["wan_bytes/10pct"] == rows[policy]["wan_bytes"]
        for name in ("byte_gap_closed", "byte_gap_closed_lower", "byte_gap_closed_upper"):
            assert run.data.metrics.get(f"{name}/10pct") == rows[policy][name]
            if kind != "evaluation":
                own = whole.data.metrics.get(f"{policy}/{name}/10pct")
                assert own == (None if policy in ("lru", "bound") else rows[policy][name])
    assert whole.data.tags["mlflow.source.name"] == words(kind, folder)[0]
    assert "WAN traffic" in whole.data.tags["mlflow.note.content"]
    text = CliRunner().invoke(app, [*words(kind, folder), "--mlflow", "--conf", str(folder / "site.toml")])
    page = re.search(r"run in MLflow: (\S+)/#/experiments/(\S+)/runs/(\w+)", text.stdout)
    assert page is not None and page[1] == server.uri and page[2] == experiment.experiment_id
    assert client.get_run(page[3]).data.tags["kind"] == kind
    if kind == "replay":  # the other counts fewer than fourteen days
        assert rows["s3fifo"]["byte_gap_closed_lower"] < rows["s3fifo"]["byte_gap_closed_upper"]


@pytest.mark.parametrize("kind", ["replay", "evaluation"])
def test_without_mlflow_the_answer_is_there_and_the_command_fails(kind: str, folder: Path) -> None:
    code, out, error = run_command(kind, folder, away(patience=1))
    assert code != 0 and "MLflow" in error
    answer = json.loads(out)
    assert {"lru", "s3fifo"} <= {
        row["policy"] for row in (answer if isinstance(answer, list) else answer["rows"])
    }
