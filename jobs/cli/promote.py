"""The command `promote`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from features.errors import InputError
from jobs import text
from jobs.cli import console, options
from jobs.cli.options import Conf, Json, TablesRoot

if TYPE_CHECKING:
    from models.evaluation.promotion import Comparison

_VERDICTS = {True: "may evict", False: "may not evict", None: "not judged"}


def promote(
    why: Annotated[bool, typer.Option("--why", help="show the last decision, and decide nothing")] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="restore what served before the last promotion")
    ] = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Make the newest evaluated model the champion if its plans won.

    They must beat every rival in replay; otherwise the model is refused, and the champion stays. Its order of
    eviction is judged apart: stewards of caches may follow it if it won.
    """
    if why and rollback:
        raise InputError("give either --why or --rollback")
    from features.results import STEWARD
    from jobs.evaluate import promote as job

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
    if answer.trained_until is not None:
        console.sentence(f"{answer.model_version} was trained on what was known at {answer.trained_until}")
    for reason in answer.reasons:
        console.sentence(f"  {reason}")
    console.sentence(
        f"order of eviction of {answer.model_version}: {_VERDICTS[answer.may_evict]}; "
        f"the order that evicts: {answer.steward or 'none, stewards follow no model'}"
    )
    for reason in answer.order_reasons:
        console.sentence(f"  {reason}")
    of_order = [one for one in answer.comparisons if one.policy == STEWARD]
    of_plans = [one for one in answer.comparisons if one not in of_order]
    _show(of_plans, "Daily WAN saved by its plans, with 95 % bounds")
    _show(of_order, "Daily WAN saved by its order of eviction, with 95 % bounds")


def _show(comparisons: Sequence[Comparison], title: str) -> None:
    if comparisons:
        console.show(comparisons, as_json=False, title=title, columns=text.PROMOTION_COLUMNS)
