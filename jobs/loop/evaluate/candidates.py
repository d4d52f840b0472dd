"""What competes in an evaluation at each capacity: plans by every scorer, stewards, policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial

from features.common.progress import Advance
from features.results import BESIDE_A_STEWARD, CHAMPION_PLAN, LRU, S3FIFO, STEWARD
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.answer import misses_by_activity
from jobs.loop.evaluate.record import CandidateModels, Compared
from jobs.loop.evaluate.replay_setup import Cache, Days, ReplaySetup
from jobs.loop.evaluate.walk_forward import SCORERS, ScoreStore
from jobs.loop.plan.file_facts import OriginRules, facts, hours_per_byte, plan_files
from jobs.loop.plan.planner import limits, model_weight
from models.evaluation.promotion import UNPROVEN, choose_weight, daily_hours
from models.learning.order import Learning
from models.parallel import map_parallel
from prefetch.plan import ValuePlanner
from replay.comparison import BOUND, Candidates, compare
from replay.policies import PartPolicy, Policy
from replay.policies.learned import Order
from replay.steward.delayed_cache import XCACHE, Plans
from replay.steward.policies import steward_policy

PER_ACCESS = (S3FIFO, "clairvoyant")
"""Policies that decide at each access, unlike plans; the steward is another."""

Planners = Mapping[str, ValuePlanner]


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
    names, plan = setup.trace.names, settings.plan
    assert names is not None
    benefit, regions = settings.benefit.model, settings.regions
    known_facts = facts(setup.tables, names, OriginRules(regions, tape=plan.tape))
    files, origins = plan_files(names, known_facts, plan=plan, benefit=benefit, regions=regions)
    hours = hours_per_byte(files, origins, benefit, regions)
    scorers = [*SCORERS, *([] if known.champion is None else [CHAMPION_PLAN])]
    room = [int(cache.config.capacity_bytes * cache.config.high_watermark) for cache in setup.caches]
    orders = Learning(setup.trace, setup.context, room).orders(days.from_s, on_progress)
    champion = "" if known.champion is None else known.champion.version
    site, region = Tables.of(settings), settings.region.name
    production = model_weight(site, plan, region=region, version=champion)

    def planner(scorer: str, cache: Cache) -> ValuePlanner:
        scores_at = store.reader(scorer, every_s=cache.predicted_every_s)
        unweighted = ValuePlanner(scores_at, limits(plan, cache.cycle_s), files, plan.horizon, plan.objective)
        # A champion may have seen the days of trial: it plans with the weight of its own evaluation.
        if scorer == CHAMPION_PLAN or plan.model_weight != "auto":
            return dataclasses.replace(unweighted, model_weight=production)
        weight = _tried_weight(setup, cache, unweighted, days)
        return dataclasses.replace(unweighted, model_weight=lambda _: weight)

    def planners(cache: Cache) -> Planners:
        return {scorer: planner(scorer, cache) for scorer in scorers}

    plans = map_parallel(planners, setup.caches)
    candidates = [
        _candidates(setup, cache, orders, of, days) for cache, of in zip(setup.caches, plans, strict=True)
    ]
    comparisons = compare(
        setup.trace,
        candidates,
        count_from_s=days.from_s,
        hours=lambda result, hit: daily_hours(setup.trace, result, hit, hours),
        misses=misses_by_activity(setup.trace, setup.details),
        on_done=lambda done, total, policy: on_progress(done, total, f"{policy} replayed"),
    )
    return [
        Compared(cache.fraction, at, cache.cycle_s, _weights(of, cache))
        for cache, at, of in zip(setup.caches, comparisons, plans, strict=True)
    ]


def _candidates(
    setup: ReplaySetup, cache: Cache, orders: Sequence[Order], planners: Planners, days: Days
) -> Candidates:
    """All that competes at one capacity; without learned `orders` no steward does."""
    stewards = _stewards(setup, cache, orders, planners, days.trial_s) if orders else {}
    return Candidates(
        cache.config.capacity_bytes,
        {**stewards, **dict.fromkeys((*PER_ACCESS, BOUND))},
        cache.config,
        {LRU: None, **planners},
        cache.cycle_s,
        days.trial_s,
    )


def _stewards(
    setup: ReplaySetup, cache: Cache, orders: Sequence[Order], planners: Planners, plan_from_s: int
) -> dict[str, Policy | PartPolicy]:
    """A live steward that follows each week's order: alone, and beside plans that leave evictions to it."""
    config = cache.config
    follow = partial(steward_policy, STEWARD, setup.context, orders, delays=XCACHE)
    rows = {STEWARD: follow()}
    for name, scorer in BESIDE_A_STEWARD.items():
        if scorer in planners:
            plans = Plans(
                planners[scorer].beside_a_steward,
                config.capacity_bytes,
                config.low_watermark,
                config.high_watermark,
                cache.cycle_s,
                plan_from_s,
            )
            rows[name] = follow(plans=plans)
    return rows


def _tried_weight(setup: ReplaySetup, cache: Cache, planner: ValuePlanner, days: Days) -> float:
    """The weight of the models in plans by `planner` that was best on the days of trial."""
    if days.trial_s == days.from_s:
        return UNPROVEN
    past = setup.trace.until(days.from_s)
    return choose_weight(past, cache.config, planner, cycle_s=cache.cycle_s, from_s=days.trial_s)


def _weights(planners: Planners, cache: Cache) -> dict[str, float]:
    """The weight of the models in each policy's plans."""
    weights = {name: planner.model_weight(cache.config.capacity_bytes) for name, planner in planners.items()}
    return weights | {name: weights[of] for name, of in BESIDE_A_STEWARD.items() if of in weights}
