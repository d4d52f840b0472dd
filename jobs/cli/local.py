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
    """Start the whole deployment on this machine.

    Airflow, MLflow, the placement service, the collector and an XCache; run again, it starts what is missing.
    """
    from jobs.local import up as job

    with console.progress("up", quiet=as_json) as advance:
        answer = job.up(out, tables=tables, hdfs=hdfs, on_progress=advance)
    if as_json:
        console.show(answer, as_json=True)
        return
    pages = [{"open": one.page, "service": one.service, "state": one.state} for one in answer if one.page]
    console.show(pages, as_json=False)
    beside = [f"{one.service} at {one.at} ({one.state})" for one in answer if not one.page]
    if beside:
        console.show({"without a page": beside}, as_json=False)
    _show_where(out)


def down(out: Out = _OUT, as_json: Json = False) -> None:
    """Stop what `up` has started, and nothing else.

    The folder stays.
    """
    from jobs.local import up as job

    console.show(job.down(out), as_json=as_json)


def _show_where(out: Path) -> None:
    for what, where in (
        ("logs", f"{out}/run/*.log"),
        ("password of Airflow's user admin", f"{out}/secrets/airflow-password"),
        ("to use `airflow` and `cachecast` by hand", f". {out}/airflow/env.sh"),
    ):
        console.line(f"{what}: {where}")
