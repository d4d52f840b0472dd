"""The command `promote`."""

from __future__ import annotations

from typing import Annotated

import typer

from features.errors import InputError
from jobs.cli import console, options
from jobs.cli.lazy import lazily
from jobs.cli.options import Conf, Json, TablesRoot

with lazily():
    from jobs.evaluate import promote as job


def promote(
    why: Annotated[bool, typer.Option("--why", help="show the last decision, and decide nothing")] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="make the previous champion the champion again")
    ] = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Make the newest evaluated model the champion if its plans won.

    They must beat every rival in replay; otherwise the model is refused, and the champion stays.
    """
    if why and rollback:
        raise InputError("give either --why or --rollback")
    run = job.why if why else job.rollback if rollback else job.promote
    answer = run(options.load(conf, tables=tables))
    if as_json:
        console.show(answer, as_json=True)
        return
    champion = answer.champion or "none, caches run plain LRU"
    console.line(f"{answer.action} {answer.model_version} at {answer.decided_at}; champion: {champion}")
    for reason in answer.reasons:
        console.line(f"  {reason}")
    if answer.comparisons:
        console.show(answer.comparisons, as_json=False, title="Daily WAN saved, with its 95 % bounds")
