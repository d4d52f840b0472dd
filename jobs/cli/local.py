"""The commands of a deployment on one machine: `up` and `down`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jobs.cli import console
from jobs.cli.options import Json, TablesRoot

Out = Annotated[Path, typer.Option(help="folder of the deployment: settings, tables, logs, secrets")]
_OUT = Path("local-out")


def up(
    out: Out = _OUT,
    tables: TablesRoot = None,
    hdfs: Annotated[
        bool, typer.Option("--hdfs", help="the first time: keep the tables on an HDFS that is started too")
    ] = False,
    as_json: Json = False,
) -> None:
    """Start Airflow, MLflow, placement, collector and an XCache on this machine; again: what is missing."""
    from jobs.local.up import up as start

    with console.progress("up", quiet=as_json) as advance:
        answer = start(out, tables=tables, hdfs=hdfs, on_progress=advance)
    console.show(answer, as_json=as_json, columns=("service", "at", "state", "pid"))
    if not as_json:
        _tell_where(out)


def down(out: Out = _OUT, as_json: Json = False) -> None:
    """End what `up` has started, and nothing else; the folder stays."""
    from jobs.local.up import down as end

    console.show(end(out), as_json=as_json)


def _tell_where(out: Path) -> None:
    for what, where in (
        ("logs", "run/*.log"),
        ("Airflow's user admin has its password in", "secrets/airflow-password"),
        ("for `airflow` and `cachecast` by hand", ". {}/airflow/env.sh"),
    ):
        path = where.format(out) if "{}" in where else out / where
        console.out.print(f"{what}: {path}", highlight=False, soft_wrap=True)
