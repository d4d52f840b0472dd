"""The commands that make a site or a trial of one: `init`, `up`, `down` and `demo`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from features.common.errors import CachecastError
from features.common.units import parse_bytes
from jobs.cli import console
from jobs.cli.options import Conf, TablesRoot, file_to_write, folder_to_fill

_SOURCE = "rucio_traces"
_Local = Annotated[
    Path,
    typer.Option(
        "--out", help="folder of the deployment: settings, tables, logs, secrets", callback=folder_to_fill
    ),
]
_LOCAL = Path("local-out")


def init(
    cache: Annotated[
        str | None, typer.Option(help="address of a cache: root://HOST:PORT, or a folder; empty: none yet")
    ] = None,
    name: Annotated[str | None, typer.Option(help="its name; defaults to that of its host or folder")] = None,
    capacity: Annotated[str | None, typer.Option(help="its capacity, for example 50TB")] = None,
    origin: Annotated[
        str | None, typer.Option(help="folder that the files of a cache in a folder are fetched from")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="folder of an XCache's names (oss.localroot), if this host sees it")
    ] = None,
    gstream: Annotated[
        str | None, typer.Option(help="folder where `cachecast collect` keeps what an XCache reports")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help=f"kind of access records, see docs/pull.md; defaults to {_SOURCE}"),
    ] = None,
    records: Annotated[
        str | None, typer.Option(help="path or glob of the access records; empty: none yet")
    ] = None,
    rucio: Annotated[str | None, typer.Option(help="URL of a Rucio server; empty: none")] = None,
    rucio_account: Annotated[
        str | None, typer.Option(help="account there; empty: the identity's default")
    ] = None,
    out: Annotated[Path, typer.Option(help="file to write", callback=file_to_write)] = Path("site.toml"),
    tables: TablesRoot = None,
    yes: Annotated[bool, typer.Option("--yes", help="ask nothing: what is not given is the default")] = False,
    force: Annotated[bool, typer.Option("--force", help="replace a file that is there")] = False,
) -> None:
    """Write the settings of a new site.

    Asks for what is not given as an option; without a terminal it asks nothing. Names the next commands.
    """
    from jobs.operator.operate import new_site as job

    is_asking = not yes and not console.is_json and sys.stdin.isatty()

    def ask(
        question: str,
        given: str | None,
        default: str | None = "",
        *,
        only: bool = True,
        check: Callable[[str], object] = str,
    ) -> str:
        """The answer given as an option, else a person's, else the default; not asked unless `only`.

        A person is asked again for what `check` refuses, and for nothing where there is no default (None).
        """
        if given is not None or not (is_asking and only):
            return (default or "") if given is None else given

        def fit(typed: str) -> str:
            try:
                check(typed.strip())
            except CachecastError as error:
                raise typer.BadParameter(str(error)) from None
            return typed.strip()

        return str(typer.prompt(question, default, show_default=bool(default), value_proc=fit, err=True))

    if is_asking:
        job.refuse_existing(out, force=force)
    cache = ask("Cache: root://HOST:PORT, or a folder (empty: none yet)", cache)
    is_server = job.is_server(cache)
    is_folder = bool(cache) and not is_server
    answer = job.run(
        job.Answers(
            cache=cache,
            name=ask("Its name", name, job.suggested_name(cache)) if cache else "",
            capacity=ask(
                "Its capacity, for example 50TB", capacity, None, only=bool(cache), check=parse_bytes
            ),
            origin=ask(
                "Folder that its files are fetched from",
                origin,
                None,
                only=is_folder,
                check=job.existing_origin,
            ),
            namespace=ask(
                "Folder of its names, oss.localroot (empty: this host does not see it)",
                namespace,
                only=is_server,
            ),
            gstream=ask(
                "Folder of what it reports, by `cachecast collect` (empty: none yet)", gstream, only=is_server
            ),
            records=(
                where := ask(
                    "Access records: path or glob (empty: none yet)", records, check=job.existing_records
                )
            ),
            source=ask(
                "Their kind (docs/pull.md)",
                source,
                _SOURCE,
                only=bool(where),
                check=job.existing_source,
            ),
            rucio=(server := ask("URL of a Rucio server (empty: none)", rucio)),
            rucio_account=ask("Account there (empty: the default)", rucio_account, only=bool(server)),
            tables=tables or "",
        ),
        out=out,
        force=force,
        now_s=int(time.time()),
    )
    if console.shown_as_json(answer):
        return
    for line in (f"settings: {answer.settings}", f"tables: {answer.tables}", "next:"):
        console.line(line)
    for command in answer.next:
        console.line(f"  {command}")


def up(
    out: _Local = _LOCAL,
    tables: TablesRoot = None,
    hdfs: Annotated[
        bool, typer.Option("--hdfs", help="the first time: keep the tables on an HDFS that is started too")
    ] = False,
) -> None:
    """Start the whole deployment on this machine.

    Airflow, MLflow, the placement service, the collector and an XCache; run again, it starts what is missing.
    """
    from jobs.local_site.local import services as job

    with console.progress("up") as advance:
        answer = job.up(out, tables=tables, hdfs=hdfs, on_progress=advance)
    if console.shown_as_json(answer):
        return
    pages = [{"open": one.page, "service": one.service, "state": one.state} for one in answer if one.page]
    console.show(pages)
    if others := [f"{one.service} at {one.at} ({one.state})" for one in answer if not one.page]:
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
    out: Annotated[
        Path, typer.Option(help="folder for everything the demo makes", callback=folder_to_fill)
    ] = Path("demo-out"),
    seed: Annotated[int, typer.Option(help="seed of the generated month")] = 1,
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
