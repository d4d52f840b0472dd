"""The command `promote`."""

from __future__ import annotations

from typing import Annotated

import typer

from features.errors import InputError
from jobs import text
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
    settings = options.load(conf, tables=tables)
    answer = run(settings)
    if as_json:
        console.show(answer, as_json=True)
        return
    without = "candidates serve" if "candidate" in settings.mlflow.serve else "caches run plain LRU"
    console.sentence(
        f"{answer.action} {answer.model_version} at {answer.decided_at}; "
        f"champion: {answer.champion or f'none, {without}'}"
    )
    for reason in answer.reasons:
        console.sentence(f"  {reason}")
    if answer.comparisons:
        console.show(
            answer.comparisons,
            as_json=False,
            title="Daily WAN saved, with its 95 % bounds",
            columns=text.PROMOTION_COLUMNS,
        )
