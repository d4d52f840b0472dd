"""Step `evaluate`: replay the whole service over past accesses, and compare it with its rivals."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from features.errors import InputError
from features.results import BESIDE_A_STEWARD, CHAMPION_PLAN, STEWARD
from features.times import DAY_S, day_label
from features.units import duration_label
from jobs.evaluate import inputs, ready
from jobs.evaluate.record import NOBODY, Contest, contest, record
from jobs.evaluate.scores import ScoreStore
from jobs.evaluate.walk_forward import SCORERS, Workspace, score, weeks
from jobs.plan.file_facts import facts, hours_per_byte, plan_files
from jobs.plan.model_weight import model_weight
from jobs.plan.planner import limits
from jobs.progress import Advance
from jobs.settings.tree import Settings
from jobs.store.tables import Tables
from jobs.store.traces import from_tables
from jobs.train.engines import Engines
from jobs.train.order import BESIDE
from jobs.train.ready import learned_since_s
from models.evaluation.rivals import IN_LINE, Rivals, fitting_cycle_s, replay_rivals, warm_age_s
from models.evaluation.weight import UNPROVEN, choose_weight
from models.learning.order import KEPT_FOR_CHOICE, Learning
from models.parallel import each
from prefetch.plan import ValuePlanner
from replay.config import CacheConfig
from replay.policies import Policy
from replay.policies.learned import Order
from replay.steward import EvictionOrder, new_order
from replay.steward.replayed import XCACHE, Plans, Replayed
from replay.story import Story, story
from replay.trace import Trace

WATCHED_EVERY_S = 3600
WARM_AGES = 3
"""Plans begin this many eviction ages before counting does."""
TRIAL_TRAININGS = 2
"""Trainings for the days before counting begins, which only fill the caches and choose weights."""
TRIED_S = 14 * DAY_S
"""Weights are tried on no more days than this, if the caches are warm by then."""


@dataclasses.dataclass(frozen=True)
class Request:
    """The accesses to be evaluated, of a file or the site's tables, from and to days (both inclusive).

    `cycle_s` None: chosen by each capacity's LRU age; `to_s` None: the last day there is.
    """

    accesses: Path | None
    from_s: int
    to_s: int | None
    cycle_s: int | None
    fractions: Sequence[float]


@dataclasses.dataclass(frozen=True)
class EvaluationRow:
    """One policy at one capacity over the counted days.

    `cycle`: between plans, None for policies that make none. `byte_gap_closed_lower` and `_upper`: one-sided
    bounds at 95 % confidence each, by a block bootstrap over days; None if LRU reaches the bound, or if the
    days are too few.
    `core_hours`: of the jobs that read, waiting included; None of the bound.
    """

    policy: str
    capacity_fraction: float
    cycle: str | None
    hit_ratio: float
    byte_hit_ratio: float
    wan_bytes: int
    prefetch_bytes: int
    wasted_bytes: int
    byte_gap_closed: float | None
    byte_gap_closed_lower: float | None
    byte_gap_closed_upper: float | None
    core_hours: float | None = None


@dataclasses.dataclass(frozen=True)
class EvaluationAnswer:
    """A row per capacity and policy. `model_version`: the model it is recorded for; None: not recorded."""

    model_version: str | None
    first_day: str
    last_day: str
    rows: tuple[EvaluationRow, ...]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Cache:
    """A capacity with a plan every `cycle_s`, from predictions made every `predicted_every_s`.

    `age_s`: at which LRU purges; None: it never did.
    """

    fraction: float
    config: CacheConfig
    cycle_s: int
    predicted_every_s: int
    age_s: int | None


class _Days(NamedTuple):
    """Weights of models are tried from `trial_s` on; days from `from_s` on count."""

    trial_s: int
    from_s: int


@dataclasses.dataclass(frozen=True)
class _Scene:
    """The accesses of an evaluation, the tables made from them, and the replayed caches."""

    tables: Tables
    demand: Mapping[str, str]
    trace: Trace
    story: Story
    caches: Sequence[_Cache]

    @property
    def last_day_s(self) -> int:
        """First second of the last day with an access."""
        return int(self.trace.time_s[-1]) // DAY_S * DAY_S

    def n_read(self, *, before_s: int) -> int:
        """Files that were read before."""
        return np.unique(self.trace.item[: self.trace.first_at(before_s)]).size


def run(
    settings: Settings,
    *,
    accesses: Path | None,
    from_s: int,
    to_s: int | None,
    cycle_s: int | None,
    fractions: Sequence[float],
    on_progress: Advance,
) -> EvaluationAnswer:
    """Replay the service and its rivals over past accesses.

    `accesses`: a Parquet file, by default the site's tables; `cycle_s`: None for a tenth of each LRU age.
    Raises InputError, and as `evaluate`.
    """
    grid_s = settings.features.cycle
    if cycle_s is not None and grid_s % cycle_s and (cycle_s % grid_s or DAY_S % cycle_s):
        raise InputError(
            f"a cycle of {duration_label(cycle_s)} does not fit the grid of {duration_label(grid_s)} "
            "([features] cycle): choose a part of it, or a multiple that divides a day"
        )
    request = Request(accesses, from_s, to_s, cycle_s, fractions)
    on_progress(0, 1, "reading")
    known = NOBODY if accesses is not None else contest(settings, from_s=from_s)
    return evaluate(Engines.of(settings), settings, request, known, on_progress=on_progress)


def evaluate(
    engines: Engines, settings: Settings, request: Request, known: Contest, *, on_progress: Advance
) -> EvaluationAnswer:
    """Train and score week by week, replay every rival, and record the result for the site's own accesses.

    Accesses before `request.from_s` warm the caches and train the first models. The results for the site's
    accesses go to the table evaluations and the candidate's MLflow run; those for a file are only returned.
    Raises InputError, StaleInputError, ModelError, ServiceError.
    """
    with tempfile.TemporaryDirectory(prefix="cachecast-walk-") as scratch:
        scene = _scene(settings, request, Tables(f"{scratch}/tables"))
        assert scene.trace.names is not None
        store = ScoreStore(Path(scratch), scene.trace.names)
        trial_s = _trial_s(settings, scene, request.from_s)
        tried, walked = (
            weeks(
                first_s=int(scene.trace.time_s[0]),
                from_s=from_s,
                until_s=until_s,
                cycles_s=sorted({cache.predicted_every_s for cache in scene.caches}),
                every_s=settings.training.every,
                span_s=settings.training.span,
                most=most,
            )
            for from_s, until_s, most in (
                (trial_s, request.from_s, TRIAL_TRAININGS),
                (request.from_s, int(scene.trace.time_s[-1]) + 1, None),
            )
        )
        workspace = Workspace(
            scene.tables,
            settings.features.spec,
            settings.region.name,
            settings.training,
            scene.demand,
            candidates=scene.n_read(before_s=trial_s),
        )
        notes = score(
            engines, workspace, [*tried, *walked], store, champion=known.champion, on_progress=on_progress
        )
        days = _Days(trial_s, request.from_s)
        rivals = _replayed(settings, scene, store, known, days, on_progress=on_progress)
    record(settings, known, rivals, last_day_s=scene.last_day_s)
    return EvaluationAnswer(
        model_version=known.candidate,
        first_day=day_label(request.from_s),
        last_day=day_label(scene.last_day_s),
        rows=tuple(row(at, policy) for at in rivals for policy in at.replayed),
        notes=(*known.notes, *notes, *_notes(rivals)),
    )


def _scene(settings: Settings, request: Request, tables: Tables) -> _Scene:
    """The requested accesses, copied into `tables`, and the caches. Raises InputError."""
    until_s = request.to_s or ready.LAST_S
    demand: Mapping[str, str] = {}
    if request.accesses is not None:
        inputs.from_file(request.accesses, tables)
    else:
        demand = settings.sources.demand
        site = Tables(settings.tables.root)
        since_s = learned_since_s(settings.features.spec, settings.training, at_s=request.from_s)
        inputs.from_tables(site, tables, since_s=since_s, until_s=until_s)
    loaded = from_tables(tables, since_s=0, until_s=until_s, demand_sources=demand, keep=BESIDE)
    trace = loaded.trace
    first_s, last_s = int(trace.time_s[0]), int(trace.time_s[-1])
    ready.check_days(first_s, last_s, from_s=request.from_s)
    caches = each(partial(_cache, settings, trace, request), request.fractions)
    return _Scene(tables, demand, trace, story(loaded, **{name: name for name in BESIDE}), caches)


def _trial_s(settings: Settings, scene: _Scene, from_s: int) -> int:
    """When plans begin: the caches are full of their choices when counting begins, not of LRU's.

    That is a quarter of the past before, but not more than `TRIED_S`, or `WARM_AGES` of the longest eviction
    age, but never more than half of the past; never, if the past is shorter than two trainings are apart.
    Weights are tried on these days.
    """
    every_s, past_s = settings.training.every, from_s - int(scene.trace.time_s[0])
    warm_s = max(WARM_AGES * (cache.age_s or 0) for cache in scene.caches)
    tried_s = max(min(KEPT_FOR_CHOICE * past_s, TRIED_S), warm_s)
    return from_s - int(min(tried_s, past_s / 2)) // every_s * every_s


def _tried_weight(scene: _Scene, cache: _Cache, planner: ValuePlanner, days: _Days) -> float:
    """The weight of the models in plans by `planner` that was best on the days of trial."""
    if days.trial_s == days.from_s:
        return UNPROVEN
    past = scene.trace.until(days.from_s)
    return choose_weight(past, cache.config, planner, cycle_s=cache.cycle_s, from_s=days.trial_s)


def _cache(settings: Settings, trace: Trace, request: Request, fraction: float) -> _Cache:
    low, high = settings.replay.watermarks
    capacity = int(fraction * trace.footprint_bytes)
    if capacity <= 0:
        raise InputError(f"a capacity of {fraction:%} of the files read has no room for any")
    config = CacheConfig(capacity, low, high, settings.replay.purge_interval)
    grid_s, cycle_s = settings.features.cycle, request.cycle_s
    age_s = warm_age_s(trace, config, until_s=request.from_s, every_s=WATCHED_EVERY_S)
    if cycle_s is None:
        cycle_s = fitting_cycle_s(age_s, grid_s)
    return _Cache(fraction, config, cycle_s, max(grid_s, cycle_s), age_s)


def _replayed(
    settings: Settings,
    scene: _Scene,
    store: ScoreStore,
    known: Contest,
    days: _Days,
    *,
    on_progress: Advance,
) -> list[Rivals]:
    """Every rival at every capacity, planned by the planner of production."""
    names, plan = scene.trace.names, settings.plan
    assert names is not None
    benefit, regions = settings.benefit.model, settings.regions
    known_files = facts(scene.tables, names)
    files, origins = plan_files(names, known_files, plan=plan, benefit=benefit, regions=regions)
    hours = hours_per_byte(files, origins, benefit, regions)
    scorers = [*SCORERS, *([] if known.champion is None else [CHAMPION_PLAN])]
    room = [int(cache.config.capacity_bytes * cache.config.high_watermark) for cache in scene.caches]
    orders = Learning(scene.trace, scene.story, room).orders(days.from_s, on_progress)
    total = len(scene.caches) * (len(scorers) + len(IN_LINE) + 4 + (known.champion is not None))
    done: list[str] = []
    champion = "" if known.champion is None else known.champion.version
    site, region = Tables(settings.tables.root), settings.region.name
    production = model_weight(site, plan, region=region, version=champion)

    def count(policy: str) -> None:
        done.append(policy)
        on_progress(len(done), total, f"{policy} replayed")

    def planner(scorer: str, cache: _Cache) -> ValuePlanner:
        scores_at = store.reader(scorer, every_s=cache.predicted_every_s)
        found = ValuePlanner(scores_at, limits(plan, cache.cycle_s), files, plan.horizon, plan.objective)
        # A champion may have seen the days of trial: it plans with the weight of its own evaluation.
        if scorer == CHAMPION_PLAN or plan.model_weight != "auto":
            return dataclasses.replace(found, model_weight=production)
        weight = _tried_weight(scene, cache, found, days)
        return dataclasses.replace(found, model_weight=lambda _: weight)

    def rivals(at: tuple[_Cache, list[Order]]) -> Rivals:
        cache, order = at
        planners = {scorer: planner(scorer, cache) for scorer in scorers}
        return replay_rivals(
            scene.trace,
            cache.config,
            planners,
            capacity_fraction=cache.fraction,
            cycle_s=cache.cycle_s,
            from_s=days.from_s,
            plan_from_s=days.trial_s,
            stewards=_stewards(scene, cache, order, planners, days.trial_s) if order else {},
            hours=hours,
            on_done=count,
        )

    _ = scene.trace.following  # computed once, before several threads ask for it
    return each(rivals, zip(scene.caches, orders, strict=True))


def _stewards(
    scene: _Scene, cache: _Cache, order: list[Order], planners: Mapping[str, ValuePlanner], plan_from_s: int
) -> dict[str, Policy]:
    """A live steward that follows the learned `order`: alone, and beside plans that leave evictions to it."""

    def follow(capacity_bytes: int) -> EvictionOrder:
        return new_order("learned", capacity_bytes, order)

    config, rows = cache.config, {STEWARD: Replayed(scene.story, follow, XCACHE)}
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
            rows[name] = Replayed(scene.story, follow, XCACHE, plans=plans)
    return {**rows}


def _notes(rivals: Sequence[Rivals]) -> tuple[str, ...]:
    if all(STEWARD in at.replayed for at in rivals):
        return no_bounds(rivals)
    none = "no order of eviction, so no steward: too few accesses before --from to learn one from"
    return (none, *no_bounds(rivals))


def no_bounds(rivals: Sequence[Rivals]) -> tuple[str, ...]:
    """Why the gaps closed have no bounds, if they have none."""
    return tuple({at.few_days: None for at in rivals if at.few_days})


def row(at: Rivals, policy: str) -> EvaluationRow:
    """One policy of a comparison as a row of the answer."""
    result, gap, hours = at.replayed[policy].result, at.gap_closed(policy), at.replayed[policy].core_hours
    return EvaluationRow(
        policy=policy,
        capacity_fraction=at.capacity_fraction,
        cycle=duration_label(at.cycle_s) if "+" in policy else None,
        hit_ratio=result.hit_ratio,
        byte_hit_ratio=result.byte_hit_ratio,
        wan_bytes=result.wan_bytes,
        prefetch_bytes=result.prefetch_bytes,
        wasted_bytes=result.wasted_bytes,
        byte_gap_closed=None if gap is None else gap.mean,
        byte_gap_closed_lower=None if gap is None else gap.lower,
        byte_gap_closed_upper=None if gap is None else gap.upper,
        core_hours=None if hours is None else float(hours.sum()),
    )
