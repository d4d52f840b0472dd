"""The DAGs, loaded by a real Airflow: they parse, document themselves, and run commands that exist."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from jobs.cli import app

ROOT = Path(__file__).parents[2]

LOAD = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
def told(task):
    after = sorted(task.upstream_task_ids)
    return {"command": task.bash_command, "after": after, "retries": task.retries, "env": task.env or {}}
bag = DagBag(sys.argv[1])
dags = {
    name: {"doc": dag.doc_md or "", "tags": list(dag.tags), "tasks": {t.task_id: told(t) for t in dag.tasks}}
    for name, dag in bag.dags.items()
}
print("BAG" + json.dumps({"errors": bag.import_errors, "dags": dags}))
"""


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("airflow")
    env = os.environ | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-c", LOAD, str(ROOT / "dags")]
    answer = subprocess.run(command, capture_output=True, text=True, env=env, timeout=180, check=False)
    lines = [line[3:] for line in answer.stdout.splitlines() if line.startswith("BAG")]
    assert lines, f"Airflow could not load the DAGs: {answer.stderr[-2000:]}"
    found: dict[str, Any] = json.loads(lines[0])
    return found


@pytest.mark.service
def test_every_dag_loads_and_is_its_own_runbook(bag: dict[str, Any]) -> None:
    assert bag["errors"] == {}
    assert set(bag["dags"]) == {"cachecast_daily", "cachecast_weekly"}
    for dag in bag["dags"].values():
        assert dag["tags"] == ["cachecast"]
        assert all(
            heading in dag["doc"] for heading in ("**Does:**", "**Safe to repeat:**", "**When it fails:**")
        )


@pytest.mark.service
def test_every_task_is_a_command_with_options_it_has(bag: dict[str, Any]) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for dag in bag["dags"].values():
        for name, task in dag["tasks"].items():
            program, command, *words = shlex.split(task["command"])
            options = {option for p in commands[command].params for option in p.opts}
            required = {max(p.opts, key=len) for p in commands[command].params if p.required}
            given = {word for word in words if word.startswith("--")}
            assert (program, name) == ("cachecast", command)
            assert required <= given <= options
            assert task["retries"] >= 1


@pytest.mark.service
def test_the_daily_steps_follow_the_loop(bag: dict[str, Any]) -> None:
    tasks = bag["dags"]["cachecast_daily"]["tasks"]
    order = ["pull", "features", "predict", "plan", "push", "outcomes"]
    assert [task["after"] for task in (tasks[name] for name in order)] == [
        [],
        *([name] for name in order[:-1]),
    ]


@pytest.mark.service
def test_values_from_outside_never_become_part_of_a_shell_command(bag: dict[str, Any]) -> None:
    for dag in bag["dags"].values():
        for task in dag["tasks"].values():
            assert "params." not in task["command"]
            assert all(value.startswith("{{ params.") for value in task["env"].values())
