"""Every rival of an evaluation replayed at every capacity, planned by the planner of production.

The weight of the models is tried on days before those that count, and the replay that was best goes on from
there. All plans by one scorer advance together, so that they share what it predicts.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from features.common.arrays import BoolArray
from features.common.memory import give_back
from features.common.progress import Advance
from features.common.times import DAY_S
from features.results import BESIDE_A_STEWARD, CHAMPION_PLAN, LRU, S3FIFO, STEWARD
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.answer import misses_by_activity
from jobs.loop.evaluate.record import CandidateModels, Compared
from jobs.loop.evaluate.replay_setup import Cache, Days, ReplaySetup
from jobs.loop.evaluate.score_store import Reader, ScoreStore
from jobs.loop.evaluate.walk_forward import SCORERS
from jobs.loop.plan.file_facts import files_and_hours
from jobs.loop.plan.planner import limits, model_weight
from models.evaluation.promotion import (
    UNPROVEN,
    WEIGHTS,
    best_weight,
    daily_hours,
    weighed,
    weighted,
)
from models.learning.order import Learning
from prefetch.plan.planner import ValuePlanner
from replay.comparison import BOUND, Candidates, Replay, compare, replay_of
from replay.engine import Run, drive
from replay.policies import PartPolicy, Policy
from replay.policies.policy import ServedWithPrefetch
from replay.steward.delayed_cache import XCACHE, Plans
from replay.steward.policies import steward_policy
from replay.trace import Trace, window

PER_ACCESS = (S3FIFO, "clairvoyant")
"""Policies that decide at each access, unlike plans; the steward is another."""


class Planned(NamedTuple):
    """The plans by one scorer for one cache, and their replay that goes on."""

    planner: ValuePlanner
    run: Run


class Rival(NamedTuple):
    """The same when the replay is over; `reader`: what the planner reads."""

    planner: ValuePlanner
    reader: Reader
    replay: Replay


def replayed(
    settings: Settings,
    setup: ReplaySetup,
    store: ScoreStore,
    known: CandidateModels,
    days: Days,
    *,
    on_progress: Advance,
) -> list[Compared]:
    """Every rival at every capacity, planned by the planner of production."""
    plan, names = settings.plan, setup.trace.names
    assert names is not None
    files, hours = files_and_hours(settings, setup.tables, names)
    give_back()  # the catalogue
    room = [int(cache.config.capacity_bytes * cache.config.high_watermark) for cache in setup.caches]
    orders = Learning(setup.trace, setup.context, room, setup.known_s).orders(days.from_s, on_progress)
    champion = "" if known.champion is None else known.champion.version
    production = model_weight(Tables.of(settings), plan, region=settings.region.name, version=champion)

    predicted_every_s = {cache.predicted_every_s for cache in setup.caches}

    def rivals(scorer: str) -> list[Rival]:
        """The plans by a scorer for each cache; those that plan as often share a reader."""
        readers = {every_s: Reader(store, scorer, every_s) for every_s in predicted_every_s}
        planners = [
            ValuePlanner(at, bounds, files, plan.horizon, plan.objective, production, earlier_at=at)
            for cache in setup.caches
            for at, bounds in [(readers[cache.predicted_every_s], limits(plan, cache.cycle_s))]
        ]
        # A champion may have seen the days of trial: it plans with the weight of its own evaluation.
        is_tried = plan.model_weight == "auto" and scorer != CHAMPION_PLAN
        plans = _tried(setup, planners, days, on_progress) if is_tried else _by(setup, planners, days)
        _drive([of.run for of in plans], int(setup.trace.time_s[-1]) + 1, on_progress)
        for reader in readers.values():
            reader.forget()
        return [
            Rival(of.planner, readers[cache.predicted_every_s], replay_of(of.run, scorer))
            for cache, of in zip(setup.caches, plans, strict=True)
        ]

    def stewards(cache: Cache, rivals: Mapping[str, Rival]) -> dict[str, Policy | PartPolicy]:
        """Without a learned order there is none."""
        follow = partial(steward_policy, STEWARD, setup.context, orders, delays=XCACHE)
        return _stewards(follow, store, cache, rivals, days.trial_s) if orders else {}

    by_scorer = {}
    for scorer in (*SCORERS, *(() if known.champion is None else (CHAMPION_PLAN,))):
        by_scorer[scorer] = rivals(scorer)
        give_back()
    at_each = [{scorer: of[k] for scorer, of in by_scorer.items()} for k in range(len(setup.caches))]
    candidates = [
        _candidates(cache, of, stewards(cache, of)) for cache, of in zip(setup.caches, at_each, strict=True)
    ]
    comparisons = compare(
        setup.trace,
        candidates,
        count_from_s=days.from_s,
        hours=lambda result, hit: daily_hours(setup.trace, result, hit, hours),
        misses=misses_by_activity(setup.trace, setup.details),
        on_done=lambda done, total, policy: on_progress(done, total, f"{policy} replayed"),
    )
    all_hit = np.ones(setup.trace.n_accesses, np.bool_)
    least = [daily_hours(setup.trace, at.rows[LRU].result, all_hit, hours) for at in comparisons]
    return [
        Compared(cache.fraction, at, cache.cycle_s, _weights(of, cache), float(least[0].sum()))
        for cache, at, of in zip(setup.caches, comparisons, at_each, strict=True)
    ]


def _by(setup: ReplaySetup, planners: Sequence[ValuePlanner], days: Days) -> list[Planned]:
    """A replay per cache, by its planner, that has yet to begin."""
    trace, counted, from_s = setup.trace, window(setup.trace, days.from_s), days.trial_s
    return [
        Planned(of, Run(trace, cache.config, counted, of, cycle_s=cache.cycle_s, plan_from_s=from_s))
        for cache, of in zip(setup.caches, planners, strict=True)
    ]


def _tried(
    setup: ReplaySetup, planners: Sequence[ValuePlanner], days: Days, on_progress: Advance
) -> list[Planned]:
    """A replay per cache, at the end of the days of trial, with the weight of the models that was best there.

    Where nothing is read on these days, nothing is tried.
    """
    last_s = int(setup.trace.time_s[setup.trace.first_at(days.from_s) - 1])
    if last_s < days.trial_s:
        return _by(setup, [weighted(planner, UNPROVEN) for planner in planners], days)
    trials = [
        weighed(setup.trace, cache.config, planner, cycle_s=cache.cycle_s, from_s=days.trial_s, last_s=last_s)
        for cache, planner in zip(setup.caches, planners, strict=True)
    ]
    # Those of unlike caches side by side: plans of one cache wait for each other's looks back.
    _drive([by_weight[weight] for weight in WEIGHTS for by_weight in trials], last_s + 1, on_progress)
    best = []
    for by_weight, planner in zip(trials, planners, strict=True):
        weight = best_weight(by_weight)
        by_weight[weight].count_from(days.from_s)
        best.append(Planned(weighted(planner, weight), by_weight[weight]))
    return best


def _drive(runs: Sequence[Run], until_s: int, on_progress: Advance) -> None:
    """Advance replays on all cores; progress is in days."""
    first_s = min(run.boundary_s for run in runs)
    n_days = -(-(until_s - first_s) // DAY_S)

    def on_boundary(at_s: int) -> None:
        if (at_s - first_s) % DAY_S == 0:
            what = f"{len(runs)} replays with plans, days"
            on_progress((at_s - first_s) // DAY_S, n_days, what)

    with threadpool_limits(1):
        drive(runs, until_s, workers=len(os.sched_getaffinity(0)), on_boundary=on_boundary)


def _candidates(
    cache: Cache, rivals: Mapping[str, Rival], stewards: Mapping[str, Policy | PartPolicy]
) -> Candidates:
    """All that competes at one capacity."""
    return Candidates(
        cache.config.capacity_bytes,
        {**stewards, **dict.fromkeys((*PER_ACCESS, BOUND))},
        cache.config,
        {LRU: None, **{scorer: rival.replay for scorer, rival in rivals.items()}},
    )


def _stewards(
    follow: Callable[..., Policy | PartPolicy],
    store: ScoreStore,
    cache: Cache,
    rivals: Mapping[str, Rival],
    plan_from_s: int,
) -> dict[str, Policy | PartPolicy]:
    """A live steward that follows each week's order: alone, and beside plans that leave evictions to it."""
    config = cache.config

    def beside(scorer: str, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int | ServedWithPrefetch:
        # It goes on alone, so it has a reader of its own; most of what came of earlier predictions is known.
        scores_at, rival = Reader(store, scorer, cache.predicted_every_s), rivals[scorer]
        planner = dataclasses.replace(rival.planner.beside_a_steward, scores_at=scores_at)
        levels = (config.capacity_bytes, config.low_watermark, config.high_watermark)
        policy = follow(plans=Plans(planner, *levels, cache.cycle_s, plan_from_s))
        assert not isinstance(policy, PartPolicy)
        served = policy(trace, capacity_bytes, hit)
        rival.reader.forget()
        return served

    rows: dict[str, Policy | PartPolicy] = {STEWARD: follow()}
    for name, scorer in BESIDE_A_STEWARD.items():
        if scorer in rivals:
            rows[name] = partial(beside, scorer)
    return rows


def _weights(rivals: Mapping[str, Rival], cache: Cache) -> dict[str, float]:
    """The weight of the models in each policy's plans."""
    capacity_bytes = cache.config.capacity_bytes
    weights = {name: rival.planner.model_weight(capacity_bytes) for name, rival in rivals.items()}
    return weights | {name: weights[of] for name, of in BESIDE_A_STEWARD.items() if of in weights}
