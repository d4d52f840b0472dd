"""The steps from records to a champion: `pull`, `arrivals`, `features`, `train`, `predict`, `promote` …"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

from features.common.errors import InputError
from features.common.times import DAY_S, parse_day
from jobs.cli import console, parsing
from jobs.cli.options import AsOf, Day
from jobs.ground import text

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings

_VERDICTS = {True: "may evict", False: "may not evict", None: "not judged"}


def pull(
    settings: Settings,
    source: Annotated[str, "kind of records, for example rucio_traces; see docs/pull.md"],
    input: Annotated[str, "path or glob of the raw files"],
    day: Annotated[str | None, "UTC day that dates the rejected rows; defaults to today"] = None,
    new_only: Annotated[bool, "leave out files that an earlier --new-only pull has taken"] = False,
) -> None:
    """Read raw records into the accesses and files tables.

    Rows that are refused are counted in the table rejects, with their reason. Exit code 1 if every row was,
    and not only because none is a job's read, as in a quiet hour of a cache.
    """
    day_s = int(time.time()) // DAY_S * DAY_S if day is None else parse_day(day)
    from jobs.loop.ingest import pull as job
    from jobs.loop.ingest.arrivals import EXPECTED_REJECTS

    with console.progress(f"pulling {source}"):
        answer = job.run(settings, source=source, path=input, day_s=day_s, new_only=new_only)
    console.show_warning(answer)
    is_faulty = any(not re.match(EXPECTED_REJECTS, reason) for reason in answer.n_rejected)
    if is_faulty and sum(answer.n_rejected.values()) == answer.n_rows:
        raise InputError(f"every row of {input} was rejected; is {source} its kind? See the table rejects")


def arrivals(settings: Settings, as_of: AsOf = None, day: Day = None) -> None:
    """Judge whether the sources delivered what they usually do.

    By their own past, at one decision time (--as-of) or at every cycle of a day (--day). Plans of an
    incomplete decision time say so.
    """
    from jobs.loop.ingest import arrivals as job

    judged = job.run(settings, as_ofs=parsing.moments(settings, as_of, day))
    console.show(judged, title="arrivals")
    if not judged:
        console.sentence("No source of accesses is in [airflow] pull, so none is expected.")
    for arrival in judged:
        if arrival.why and not console.is_json:  # Airflow reads the last line
            console.warn(f"{arrival.source} is incomplete at {arrival.as_of}: {arrival.why}")


def features(settings: Settings, as_of: AsOf = None, day: Day = None) -> None:
    """Compute the features of the candidates.

    At one decision time (--as-of), or at every cycle of a day (--day).
    """
    from jobs.loop.train import ready

    as_ofs = parsing.moments(settings, as_of, day)
    ready.to_compute(settings, as_ofs=as_ofs)
    from jobs.loop.train import features as job

    with console.progress("features"):
        answer = job.run(settings, as_ofs=as_ofs)
    console.show(answer)


def train(
    settings: Settings,
    as_of: AsOf = None,
    compare: Annotated[
        bool,
        "fit every learner of [training] learners; the best LightGBM serves",
    ] = False,
) -> None:
    """Train a model for every horizon, and record it in MLflow beside scores that are not learned."""
    from jobs.loop.train import ready

    until_s = parsing.come(settings, as_of)
    ready.to_train(settings, until_s=until_s)
    from jobs.loop.train import training as job

    with console.progress("training") as advance:
        answer = job.run(settings, until_s=until_s, compare=compare, on_progress=advance)
    if console.shown_as_json(answer):
        return
    title = f"{answer.version}, the new candidate: models on days they were not trained on"
    console.show(answer.models, title=title, columns=text.MODEL_COLUMNS)
    for within, reason in answer.dropped.items():
        console.warn(f"no model within {within}: {reason}")
    for within, reason in answer.by_recency.items():
        console.warn(f"recency serves within {within}: {reason}")
    if answer.order is not None:
        console.sentence(f"order of eviction: {answer.order}")
    else:
        console.warn(f"no order of eviction: {answer.no_order}")


def predict(
    settings: Settings,
    as_of: AsOf = None,
    day: Day = None,
    alias: Annotated[str | None, "score with the models of this alias; defaults to [mlflow] serve"] = None,
) -> None:
    """Score the candidates with the models that serve the region.

    At one decision time (--as-of), or at every cycle of a day (--day).
    """
    from jobs.loop.train import ready

    as_ofs = parsing.moments(settings, as_of, day, of="features")
    ready.to_predict(settings, as_ofs=as_ofs, alias=alias)
    from jobs.loop.train import predict as job

    with console.progress("predictions"):
        answer = job.run(settings, as_ofs=as_ofs, alias=alias)
    console.show_warning(answer)


def promote(
    settings: Settings,
    why: Annotated[bool, "show the last decision, and decide nothing"] = False,
    rollback: Annotated[bool, "restore what served before the last promotion"] = False,
) -> None:
    """Make the newest evaluated model the champion if its plans won.

    They must beat every rival in replay; otherwise the model is refused, and the champion stays. Its order of
    eviction is judged apart: stewards of caches may follow it if it won.
    """
    if why and rollback:
        raise InputError("give either --why or --rollback")
    from features.results import STEWARD
    from jobs.ground.store.tables import Tables
    from jobs.loop.evaluate import promote as job
    from jobs.loop.evaluate.decisions import last_decision

    if why:
        answer = last_decision(Tables.of(settings), region=settings.region.name)
    else:
        answer = (job.rollback if rollback else job.promote)(settings, now_s=int(time.time()))
    if console.shown_as_json(answer):
        return
    without = "candidates serve" if "candidate" in settings.mlflow.serve else "caches run plain LRU"
    champion = answer.champion or f"none, {without}"
    console.sentence(f"{answer.action} {answer.model_version} at {answer.decided_at}; champion: {champion}")
    if answer.trained_until is not None:
        console.sentence(f"{answer.model_version} was trained on what was known at {answer.trained_until}")
    console.sentences(f"  {reason}" for reason in answer.reasons)
    console.sentence(
        f"order of eviction of {answer.model_version}: {_VERDICTS[answer.may_evict]}; "
        f"the order that evicts: {answer.steward or 'none, stewards follow no model'}"
    )
    console.sentences(f"  {reason}" for reason in answer.order_reasons)
    for what, of_order in (("plans", False), ("order of eviction", True)):
        if comparisons := [
            comparison for comparison in answer.comparisons if (comparison.policy == STEWARD) == of_order
        ]:
            title = f"Daily WAN saved by its {what}, with 95 % bounds"
            console.show(comparisons, title=title, columns=text.PROMOTION_COLUMNS)


def cycle(
    settings: Settings,
    as_of: AsOf = None,
    pull: Annotated[
        list[str] | None,
        "SOURCE=PATH to pull first, for example rucio_traces=/data/traces/; may be repeated",
    ] = None,
    train: Annotated[bool, "train on the days before, and score with the new candidate"] = False,
) -> None:
    """Pull what is new, compute features, and predict, in one command."""
    as_of_s = parsing.come(settings, as_of)
    inputs = [parsing.source_and_path(words) for words in pull or []]
    from jobs.loop import cycle as job

    with console.progress("cycle") as advance:
        answer = job.run(settings, as_of_s=as_of_s, inputs=inputs, train=train, on_progress=advance)
    console.show_warning(answer)
