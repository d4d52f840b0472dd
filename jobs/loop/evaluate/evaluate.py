"""Step `evaluate`: replay the whole service over past accesses, or a learned order of eviction on a trace.

On a trace the order is learned once, from what lies before the counted days; nothing is prefetched, and every
policy decides at each access.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from features.common.errors import ConfigError, InputError, ServiceError, StaleInputError
from features.common.memory import give_back, keep_large_apart
from features.common.progress import Advance
from features.common.times import DAY_S, day_label
from features.common.units import duration_label
from features.results import CHALLENGER_PLAN, STEWARD
from features.schema import ACCESSES
from jobs.ground.settings.tree import MlflowSettings, Settings
from jobs.ground.store.locks import scratch_folder
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.answer import EvaluationAnswer, export_evaluation, misses_by_activity, slice_rows
from jobs.loop.evaluate.record import (
    NOBODY,
    CandidateModels,
    Compared,
    Evaluated,
    answer_rows,
    candidates,
    no_bounds,
    record_days,
    record_run,
)
from jobs.loop.evaluate.replay_setup import (
    Days,
    ReplaySetup,
    Request,
    capacity_bytes,
    check_days,
    replay_setup,
    trial_days,
)
from jobs.loop.evaluate.replays import replayed
from jobs.loop.evaluate.score_store import ScoreStore
from jobs.loop.evaluate.walk_forward import score, weeks
from jobs.loop.traces import TraceFile
from jobs.loop.train.engines import RegionData
from models.learning.order import Learning
from models.serving.bundle import RegionModels
from models.serving.runs import TableRead
from replay.access_context import CONTEXT, context_of
from replay.comparison import BOUND, PLAN, Candidates, compare
from replay.policies import PartPolicy, Policy
from replay.steward.policies import AUTO, DATASET_LRU, STEWARDS, steward_policy
from replay.study.use import ACTIVITY

TRIAL_TRAININGS = 2
"""Trainings for the days before counting begins, which only fill the caches and choose weights."""


def run(
    settings: Settings, request: Request, *, in_mlflow: bool = False, on_progress: Advance
) -> EvaluationAnswer:
    """Train and score week by week, replay every rival, and record the result for the site's own accesses.

    Accesses before `request.from_s` warm the caches and train the first models. The results for the site's
    accesses go to the table evaluations and to MLflow, if there is a candidate; with `in_mlflow` to MLflow in
    any case.
    Raises InputError, StaleInputError, ModelError, ServiceError.
    """
    grid_s, cycle_s = settings.features.cycle, request.cycle_s
    if cycle_s is not None and (not cycle_s or (grid_s % cycle_s and (cycle_s % grid_s or DAY_S % cycle_s))):
        raise InputError(
            f"a cycle of {duration_label(cycle_s)} does not fit the grid of {duration_label(grid_s)} "
            "([features] cycle): choose a part of it, or a multiple that divides a day"
        )
    on_progress(0, 1, "reading")
    keep_large_apart()
    known = NOBODY if request.accesses is not None else candidates(settings, from_s=request.from_s)
    with scratch_folder("cachecast-evaluation-") as scratch:
        setup = replay_setup(settings, request, Tables(f"{scratch}/tables"))
        assert setup.trace.names is not None
        store = ScoreStore(scratch, setup.trace.names, settings.features.spec)
        days = trial_days(settings, setup, request.from_s)
        notes = _scored(settings, setup, store, champion=known.champion, days=days, on_progress=on_progress)
        give_back()
        compared = replayed(settings, setup, store, known, days, on_progress=on_progress)
    answer = EvaluationAnswer(
        model_version=known.candidate,
        first_day=day_label(request.from_s),
        last_day=day_label(setup.last_day_s),
        rows=answer_rows(compared),
        slices=slice_rows(compared),
        notes=(*known.notes, *notes, *_notes(compared)),
    )
    evaluated = _evaluated(settings, request, answer, compared, known)
    record_days(settings, evaluated, last_day_s=setup.last_day_s)
    return (
        _recorded(settings.mlflow, evaluated, answer) if in_mlflow or known.candidate is not None else answer
    )


def _recorded(mlflow: MlflowSettings, evaluated: Evaluated, answer: EvaluationAnswer) -> EvaluationAnswer:
    """The answer with its run in MLflow, or with a note that says why there is none: hours of work stay."""
    try:
        run_id = record_run(mlflow, evaluated, partial(export_evaluation, answer))
    except (ServiceError, StaleInputError) as error:  # a version may have been deleted meanwhile
        return dataclasses.replace(answer, notes=(*answer.notes, f"not recorded in MLflow: {error}"))
    return dataclasses.replace(answer, run_id=run_id)


def _evaluated(
    settings: Settings,
    request: Request,
    answer: EvaluationAnswer,
    compared: Sequence[Compared],
    known: CandidateModels,
) -> Evaluated:
    """The evaluation with the parameters of its run in MLflow: days, accesses, settings of the models."""
    training, spec = settings.training, settings.features.spec
    params = {
        "region": settings.region.name,
        "first_day": answer.first_day,
        "last_day": answer.last_day,
        "accesses": "the site's" if request.accesses is None else request.accesses.name,
        "cycle": ", ".join(dict.fromkeys(duration_label(at.cycle_s) for at in compared if at.cycle_s)),
        "features_cycle": duration_label(spec.cycle_s),
        "horizons": ", ".join(map(duration_label, spec.horizons_s)),
        "every": duration_label(training.every),
        "span": duration_label(training.span),
        **{name: getattr(training, name) for name in ("trees", "max_rows", "seed")},
        **{
            f"model_weight/{at.figure(answer.capacity)}": at.model_weight[CHALLENGER_PLAN]
            for at in compared
            if CHALLENGER_PLAN in at.model_weight
        },
        "demand": ", ".join(sorted(set(settings.sources.demand.values()))) or "all",
    }
    tables: tuple[TableRead, ...] = ()
    if request.accesses is None:
        tables = (TableRead(ACCESSES.name, Tables.of(settings).snapshot(ACCESSES).id),)
    name = f"{settings.region.name} {answer.first_day} to {answer.last_day}"
    return Evaluated(name, params, compared, request.from_s, tables, known)


def _scored(
    settings: Settings,
    setup: ReplaySetup,
    store: ScoreStore,
    *,
    champion: RegionModels | None,
    days: Days,
    on_progress: Advance,
) -> tuple[str, ...]:
    """Write the scores of every boundary, of the days of trial and those that count, to `store`; notes."""
    tried, walked = (
        weeks(
            first_s=int(setup.trace.time_s[0]),
            from_s=from_s,
            until_s=until_s,
            cycles_s=sorted({cache.predicted_every_s for cache in setup.caches}),
            every_s=settings.training.every,
            span_s=settings.training.span,
            most=most,
        )
        for from_s, until_s, most in (
            (days.trial_s, days.from_s, TRIAL_TRAININGS),
            (days.from_s, int(setup.trace.time_s[-1]) + 1, None),
        )
    )
    data = dataclasses.replace(RegionData.of(settings), tables=setup.tables, demand_sources=setup.demand)
    return score(
        data,
        settings.training,
        [*tried, *walked],
        store,
        candidates=np.unique(setup.trace.item[: setup.trace.first_at(days.trial_s)]).size,
        champion=champion,
        on_progress=on_progress,
    )


def _notes(compared: Sequence[Compared]) -> tuple[str, ...]:
    if all(STEWARD in at.comparison.rows for at in compared):
        return no_bounds(compared)
    none = "no order of eviction, so no steward: too few accesses before --from to learn one from"
    return (none, *no_bounds(compared))


COMPETING = (
    *("lru", "fifo", "lfu", "lfu-da", "gdsf", "sieve", "2q", "s3fifo", "clairvoyant"),
    *(STEWARD, AUTO, DATASET_LRU, BOUND),
)
"""On any trace; of stewards the learned order, the choice among it and heuristics, and the one of these that
is no policy itself."""


def run_trace(
    file: TraceFile,
    *,
    from_s: int,
    fractions: Sequence[float],
    capacities: Sequence[int],
    policies: Mapping[str, Policy | PartPolicy | None],
    mlflow: MlflowSettings | None,
    on_progress: Advance,
) -> EvaluationAnswer:
    """A row per capacity and policy, counted from `from_s`; what lies before is learned from, and warms.

    `fractions`: capacities as shares of all files read, beside those in bytes. `policies`: compete too, None:
    the one of that name that is built in. `mlflow`: where the evaluation becomes a run; None: nowhere. Raises
    ConfigError, InputError, SchemaError.
    """
    compete: dict[str, Policy | PartPolicy | None] = {**dict.fromkeys(COMPETING), **policies}
    if PLAN in compete:
        raise ConfigError("--policy", f"{PLAN} needs predictions, and a trace has none; leave it out")
    on_progress(0, 1, "reading")
    loaded = file.load(keep=(*CONTEXT, ACTIVITY))
    trace = loaded.trace
    context = context_of(loaded)
    check_days(int(trace.time_s[0]), int(trace.time_s[-1]), from_s=from_s)
    sizes = [*(capacity_bytes(trace, share) for share in fractions), *capacities]
    shares = [*fractions, *(size / max(1, trace.footprint_bytes) for size in capacities)]
    orders = Learning(trace, context, sizes).orders(from_s, on_progress)
    few = () if orders else (f"{STEWARD} is LRU: too few accesses before --from to learn an order from",)
    compete |= {name: steward_policy(name, context, orders) for name in compete if name in STEWARDS}
    replayed = compare(
        trace,
        [Candidates(size, compete) for size in sizes],
        count_from_s=from_s,
        misses=misses_by_activity(trace, loaded.details),
        on_done=lambda done, total, policy: on_progress(done, total, f"{policy} replayed"),
    )
    compared = [Compared(share, at) for share, at in zip(shares, replayed, strict=True)]
    answer = EvaluationAnswer(
        model_version=None,
        first_day=day_label(from_s),
        last_day=day_label(int(trace.time_s[-1])),
        rows=answer_rows(compared),
        slices=slice_rows(compared),
        notes=(*loaded.notes, *few, *no_bounds(compared)),
        trace=file.what,
        capacity="capacity_bytes" if capacities else "capacity_fraction",
    )
    if mlflow is None:
        return answer
    params = {"trace": file.what, "first_day": answer.first_day, "last_day": answer.last_day}
    name = f"{file.what} {answer.first_day} to {answer.last_day}"
    evaluated = Evaluated(name, params, compared, from_s, capacity=answer.capacity)
    return _recorded(mlflow, evaluated, answer)
