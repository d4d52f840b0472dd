"""The command `leaderboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jobs import text
from jobs.cli import console, options, parsing

FRACTIONS = "0.01,0.02,0.05,0.1,0.2,0.4"


def leaderboard(
    out: Annotated[Path, typer.Option(help="folder for the table, the page, and the replays done so far")],
    traces: Annotated[
        list[Path] | None,
        typer.Option(
            help="TOML file that names traces; may be repeated; defaults to generated regions", exists=True
        ),
    ] = None,
    capacity_fraction: Annotated[
        str, typer.Option(help="capacities as fractions of the bytes of all files read")
    ] = FRACTIONS,
    as_json: options.Json = False,
) -> None:
    """Compare every policy on every trace at every capacity.

    What learns, learns from the days before those that count. A run that was stopped goes on where it was.
    """
    from jobs.leaderboard import entries

    named = [one for file in traces or [entries.SHIPPED] for one in entries.read_entries(file)]
    fractions = parsing.shares(capacity_fraction)
    from jobs.leaderboard import leaderboard as job
    from jobs.report import leaderboard_page

    with console.progress("leaderboard", quiet=as_json) as advance:
        answer = job.run(named, fractions=fractions, out=out, on_progress=advance)
    if as_json:
        console.show(answer, as_json=True)
        return
    console.show(
        leaderboard_page.overview([text.as_row(row) for row in answer.rows]),
        as_json=False,
        title="Gap closed, mean over capacities",
    )
    console.sentence(
        f"{answer.n_replayed} replays, {answer.n_found} found. Table: {answer.table}, page: {answer.page}"
    )
