"""The commands that make a site or a trial of one: `init`, `up`, `down` and `demo`."""

import dataclasses
import time
from pathlib import Path
from typing import Annotated

from jobs.cli import console, parsing
from jobs.cli.options import Conf, TablesRoot, file_to_write, folder_to_fill
from jobs.operator.operate.site_facts import NewSite

_Local = Annotated[Path, "folder of the deployment: settings, tables, logs, secrets", folder_to_fill]
_LOCAL = Path("local-out")


def init(
    site: NewSite,
    out: Annotated[Path, "file to write", file_to_write] = Path("site.toml"),
    force: Annotated[bool, "replace a file that is there"] = False,
) -> None:
    """Write the settings of a new site, and name the next commands.

    What is not given can be added to the file later.
    """
    from jobs.operator.operate import new_site as job

    if site.watermarks:
        site = dataclasses.replace(site, watermarks="{},{}".format(*parsing.watermarks(site.watermarks)))
    answer = job.run(site, out=out, force=force, now_s=int(time.time()))
    if not console.shown_as_json(answer):
        console.line(f"settings: {answer.settings}\ntables: {answer.tables}\nnext:")
        for command in answer.next:
            console.line(f"  {command}")


def up(
    out: _Local = _LOCAL,
    tables: TablesRoot = None,
    hdfs: Annotated[bool, "the first time: keep the tables on an HDFS that is started too"] = False,
) -> None:
    """Start the whole deployment on this machine.

    Airflow, MLflow, the placement service, the collector and an XCache; run again, it starts what is missing.
    """
    from jobs.local_site.local import services as job

    with console.progress("up") as advance:
        answer = job.up(out, tables=tables, hdfs=hdfs, on_progress=advance)
    if console.shown_as_json(answer):
        return
    pages = [
        {"open": service.page, "service": service.service, "state": service.state}
        for service in answer
        if service.page
    ]
    console.show(pages)
    if others := [
        f"{service.service} at {service.at} ({service.state})" for service in answer if not service.page
    ]:
        console.show({"without a page": others})
    console.line(f"logs: {out}/run/*.log")
    console.line(f"password of Airflow's user admin: {out}/secrets/airflow-password")
    console.line(f"to use `airflow` and `cachecast` by hand: . {out}/airflow/env.sh")


def down(out: _Local = _LOCAL) -> None:
    """Stop what `up` has started, and nothing else.

    The folder stays.
    """
    from jobs.local_site.local import services as job

    console.show(job.down(out))


def demo(
    out: Annotated[Path, "folder for everything the demo makes", folder_to_fill] = Path("demo-out"),
    seed: Annotated[int, "seed of the generated month"] = 1,
    conf: Conf = None,
    tables: TablesRoot = None,
) -> None:
    """Run the whole loop on a generated month.

    From raw records to what each pushed file earned.
    """
    from jobs.local_site.demo import run as job

    answer = job.run(out, seed=seed, conf=conf, tables=tables, screen=console)
    if console.is_json:
        console.show(answer)
