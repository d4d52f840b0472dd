"""The command `init`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli import console
from jobs.cli.options import Json, TablesRoot

SOURCE = "rucio_traces"


def init(
    cache: Annotated[
        str | None, typer.Option(help="address of a cache: root://HOST:PORT, or a folder; empty: none yet")
    ] = None,
    name: Annotated[str | None, typer.Option(help="its name; defaults to that of its host or folder")] = None,
    capacity: Annotated[str | None, typer.Option(help="its capacity, for example 50TB")] = None,
    origin: Annotated[
        str | None, typer.Option(help="folder that the files of a cache in a folder are fetched from")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help=f"kind of access records, see docs/pull.md; defaults to {SOURCE}"),
    ] = None,
    records: Annotated[
        str | None, typer.Option(help="path or glob of the access records; empty: none yet")
    ] = None,
    rucio: Annotated[str | None, typer.Option(help="URL of a Rucio server; empty: none")] = None,
    rucio_account: Annotated[
        str | None, typer.Option(help="account there; empty: the identity's default")
    ] = None,
    out: Annotated[Path, typer.Option(help="file to write")] = Path("site.toml"),
    tables: TablesRoot = None,
    yes: Annotated[bool, typer.Option("--yes", help="ask nothing: what is not given is the default")] = False,
    force: Annotated[bool, typer.Option("--force", help="replace a file that is there")] = False,
    as_json: Json = False,
) -> None:
    """Write the settings of a new site.

    Asks for what is not given as an option; without a terminal it asks nothing. Names the next commands.
    """
    from jobs.operate import new_site as job

    ask = _Asking(not yes and not as_json and sys.stdin.isatty())
    cache = ask("Cache: root://HOST:PORT, or a folder (empty: none yet)", cache)
    is_folder = bool(cache) and not job.is_server(cache)
    answer = job.run(
        job.Answers(
            cache=cache,
            name=ask("Its name", name, job.suggested_name(cache)) if cache else "",
            capacity=ask("Its capacity, for example 50TB", capacity) if cache else "",
            origin=ask("Folder that its files are fetched from", origin) if is_folder else "",
            records=(where := ask("Access records: path or glob (empty: none yet)", records)),
            source=ask("Their kind (docs/pull.md)", source, SOURCE, only=bool(where)),
            rucio=(server := ask("URL of a Rucio server (empty: none)", rucio)),
            rucio_account=ask("Account there (empty: the default)", rucio_account, only=bool(server)),
            tables=tables or "",
        ),
        out=out,
        force=force,
        now_s=int(time.time()),
    )
    if as_json:
        console.show(answer, as_json=True)
        return
    console.line(f"settings: {answer.settings}")
    console.line(f"tables: {answer.tables}")
    console.line("next:")
    for command in answer.next:
        console.line(f"  {command}")


class _Asking:
    """Asks a person for what no option gives."""

    def __init__(self, is_wanted: bool) -> None:
        self._is_wanted = is_wanted

    def __call__(self, question: str, given: str | None, default: str = "", *, only: bool = True) -> str:
        """The answer given as an option, else a person's, else the default; not asked unless `only`."""
        if given is not None or not (self._is_wanted and only):
            return default if given is None else given
        told: str = typer.prompt(question, default=default, show_default=bool(default), err=True)
        return told.strip()
