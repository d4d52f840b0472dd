"""Step `plan`: plan items with reasons, from a cache's own inventory and the region's predictions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray
from features.common.errors import InputError, StaleInputError
from features.common.times import as_of_label
from features.schema import CONTENTS, PLANS, PREDICTIONS
from jobs.ground.caches.inventory import check_evictions, check_loss
from jobs.ground.caches.paths import Paths
from jobs.ground.settings.tree import Settings
from jobs.ground.store.keys import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.arrivals import shortfalls
from jobs.loop.ingest.known_names import dids_of
from jobs.loop.ingest.queue import Queued, known_work
from jobs.loop.plan.cache_state import Moment, cycle_of, known_files, moment_of, state_of, with_held
from jobs.loop.plan.items import PlannedFile, Wanted, contents, items, planned_files
from jobs.loop.plan.planner import MODEL_COLUMNS, model_of, planner
from jobs.loop.trainings import promoted_models, unproven_because
from models.serving.versions import CHAMPION, ModelVersion
from prefetch.actions import Action
from prefetch.plan import Judgement
from prefetch.plan.explain import Explanation, explain
from prefetch.plan.value import eviction_age_s, fitting_cycle_s
from prefetch.target import Held


@dataclasses.dataclass(frozen=True)
class PlanSummary:
    """Summary of a plan: files and bytes, and per list the limit that bound it.

    `cycle_s`: time that the plan covers; `eviction_age_s`: how long a file stays there without a plan;
    `fitting_cycle_s`: the cycle of predictions and plans that suits this age. `queued_files`: files that
    queued jobs will read, `queued_prefetch` and `queued_prefetch_bytes`: those of the prefetches;
    `queued_unknown`: inputs of such jobs that the files table does not know, `queued_stale`: those that are
    stale, because their queue was not read again. `alarms`: for the operator; `files`: those asked for.
    """

    cache: str
    as_of: str
    held_files: int
    held_bytes: int
    prefetch: int
    prefetch_bytes: int
    pin: int
    pin_bytes: int
    unpin: int
    evict: int
    evict_bytes: int
    bound_by: dict[str, str]
    cycle_s: int
    eviction_age_s: int | None
    fitting_cycle_s: int
    queued_files: int
    queued_prefetch: int
    queued_prefetch_bytes: int
    queued_unknown: int
    queued_stale: int
    alarms: tuple[str, ...]
    files: tuple[PlannedFile, ...] = ()


@dataclasses.dataclass(frozen=True)
class Judged:
    """A cache at one decision time: its inventory, the plan with its inputs, and faults of these."""

    held: Sequence[Held]
    paths: Paths
    dids: pa.Array
    origins: pa.Table
    index: IntArray
    judgement: Judgement
    queued: Queued
    model: ModelVersion
    faults: tuple[str, ...] = ()

    @property
    def cycle_s(self) -> int:
        """Time that the plan covers."""
        return self.judgement.case.limits.cycle_s


def run(
    settings: Settings, *, cache: str, as_of_s: int, force: bool = False, wanted: Wanted | None = None
) -> PlanSummary:
    """Plan for one cache, from its own inventory; raises as `make`.

    `force`: also if the cache lost, or the plan evicts, more than settings allow; `wanted`: files to name.
    """
    tables = _predicted(settings, cache, as_of_s)
    tables.check_writable(PLANS)
    made = make(tables, settings, moment_of(settings, cache, as_of_s), force=force)
    if wanted is None:
        return made
    return dataclasses.replace(made, files=planned_files(tables, made.cache, as_of_s, wanted))


def explained(settings: Settings, *, cache: str, as_of_s: int, item: str) -> Explanation:
    """Why one file would be planned or not; nothing is written. Raises as `explained_by`."""
    tables = _predicted(settings, cache, as_of_s)
    moment = moment_of(settings, cache, as_of_s)
    return explained_by(judge(tables, settings, moment), moment, item=item)


def _predicted(settings: Settings, cache: str, as_of_s: int) -> Tables:
    """The tables, with predictions to plan by. Raises StaleInputError before a cache is asked."""
    _ = settings.cache(cache)
    tables, every_s, region = Tables(settings.tables.root), settings.features.cycle, settings.region.name
    if not tables.snapshot(PREDICTIONS).select(as_of=as_of_label(as_of_s - as_of_s % every_s), owner=region):
        raise _no_predictions(tables, as_of_s - as_of_s % every_s, region)
    return tables


def _no_predictions(tables: Tables, as_of_s: int, region: str) -> StaleInputError:
    known = tables.newest(PREDICTIONS, owner=region).partitions
    latest = f"the latest are at {next(iter(known))[1]}" if known else "there are none at any time"
    return StaleInputError(
        f"no predictions at {as_of_label(as_of_s)} for region {region!r}, {latest}; run `cachecast features` "
        "and `cachecast predict`"
    )


def make(tables: Tables, settings: Settings, moment: Moment, *, force: bool = False) -> PlanSummary:
    """Write the contents and plans of a cache at a decision time.

    Raises StaleInputError if there are no predictions for it, LimitError if the cache lost, or the plan
    evicts, more than settings allow without `force`.
    """
    judged, as_of_s = judge(tables, settings, moment), moment.as_of_s
    if not force:
        _check_limits(tables, settings, judged, moment)
    key = MomentKey.at(as_of_s, moment.cache.name)
    held_dids = judged.dids.take(pa.array(judged.index))
    rows = contents(judged.held, held_dids, taken_s=moment.taken_s)
    tables.replace_partition(CONTENTS, rows, key)
    plan, horizon_s = judged.judgement.plan, judged.judgement.horizon_s
    rows = items(
        plan,
        judged.dids,
        judged.origins,
        judged.paths,
        key=key,
        as_of_s=as_of_s,
        horizon_s=horizon_s,
        model=judged.model,
    )
    tables.replace_partition(PLANS, rows, key)
    region, every_s = settings.region.name, settings.features.cycle
    champion = promoted_models(tables, region=region).get(CHAMPION)
    short = shortfalls(tables, region=region, as_of_s=as_of_s - as_of_s % every_s)
    judged = dataclasses.replace(judged, faults=(*judged.faults, *short))
    return _summary(judged, key, unproven_because(judged.model, champion))


def explained_by(judged: Judged, moment: Moment, *, item: str) -> Explanation:
    """Why file `item` (a did, a name, or a held path) is planned or not in `judged`. Raises InputError."""
    item = judged.paths.did_at(item) or item
    found = pc.or_(pc.equal(judged.dids, item), pc.ends_with(judged.dids, f":{item}"))
    place = pc.index(found, True).as_py()
    if place < 0:
        raise InputError(
            f"{item!r} is neither in cache {moment.cache.name!r} nor a candidate at "
            f"{as_of_label(moment.as_of_s)}: neither it nor its dataset was read lately; write it as "
            "scope:name, or as the cache's path"
        )
    found = explain(judged.judgement, int(place))
    return dataclasses.replace(found, origin=judged.origins["why"][place].as_py())


def judge(tables: Tables, settings: Settings, moment: Moment) -> Judged:
    """The plan of a cache by the latest predictions, with its inputs."""
    plan, region, every_s = settings.plan, settings.region.name, settings.features.cycle
    as_of_s = moment.as_of_s
    inventory = sorted(moment.inventory, key=lambda file: file.name)
    held = [file for file in inventory if not file.unreadable]
    dids_held = dids_of(tables, inventory, settings.names.scopes)
    cycle_s, inflow = cycle_of(tables, moment.cache, plan, as_of_s=as_of_s, every_s=every_s)
    queued = known_work(tables, as_of_s=as_of_s, cache=moment.cache.name, site=moment.cache.at_site)
    dids, model = _candidates(tables, as_of_s - as_of_s % every_s, region, queued.files["did"])
    # Nothing else is known of unreadable files, so they are left as they are.
    unreadable = pa.array([dids_held[file.name] for file in inventory if file.unreadable], pa.string())
    dids = dids.filter(pc.invert(pc.is_in(dids, value_set=unreadable)))
    dids, index = with_held(dids, pa.array([dids_held[file.name] for file in held], pa.string()))
    known = known_files(tables, settings, moment, dids, held=dids_held.values(), cycle_s=cycle_s)
    chosen = planner(
        tables,
        dids,
        region=region,
        plan=plan,
        cycle_s=cycle_s,
        predicted_every_s=every_s,
        files=known.files,
        origin_bytes=known.budget,
        work_at=lambda _: queued.of(dids),
        version=model.version,
    )
    if moment.cache.steward:
        chosen = chosen.beside_a_steward
    state = state_of(moment, held, index, inflow.by_cycle, cycle_s)
    faults = tuple(fault for fault in (inflow.fault, moment.fault) if fault is not None)
    paths = Paths(moment.cache, dids_held)
    return Judged(held, paths, dids, known.origins, index, chosen.judge(state), queued, model, faults)


def _candidates(
    tables: Tables, as_of_s: int, region: str, queued: pa.ChunkedArray
) -> tuple[pa.Array, ModelVersion]:
    """The dids predicted at `as_of_s`, with those that `queued` jobs will read; and their model."""
    columns, label = ["did", *MODEL_COLUMNS], as_of_label(as_of_s)
    rows = tables.read_arrow(PREDICTIONS, as_of=label, owner=region, columns=columns)
    if not rows.num_rows:
        raise _no_predictions(tables, as_of_s, region)
    dids = pc.unique(pa.chunked_array([*rows["did"].chunks, *queued.chunks], pa.string()))
    return dids, model_of(rows)


def _check_limits(tables: Tables, settings: Settings, judged: Judged, moment: Moment) -> None:
    limits, cache = settings.plan, moment.cache.name
    held_bytes = sum(file.bytes_on_disk for file in judged.held)
    check_loss(tables, cache, held_bytes=held_bytes, at_s=moment.as_of_s, share=limits.lost_share)
    evicted_bytes = judged.judgement.plan.bytes_of(Action.EVICT)
    check_evictions(evicted_bytes, held_bytes, cache=cache, share=limits.evict_share)


def _summary(judged: Judged, key: MomentKey, unproven: str | None) -> PlanSummary:
    plan, faults = judged.judgement.plan, judged.faults
    if unproven is not None:
        faults = (f"{unproven}; `cachecast push` carries out none of its choices", *faults)
    age_s = eviction_age_s(judged.judgement.case.state, judged.cycle_s)
    queued = (plan.action == Action.PREFETCH.code) & (plan.n_jobs > 0)
    n = {action: int((plan.action == action.code).sum()) for action in Action}
    return PlanSummary(
        cache=key.owner,
        as_of=key.as_of,
        held_files=len(judged.held),
        held_bytes=sum(file.bytes_on_disk for file in judged.held),
        prefetch=n[Action.PREFETCH],
        prefetch_bytes=plan.bytes_of(Action.PREFETCH),
        pin=n[Action.PIN],
        pin_bytes=plan.bytes_of(Action.PIN),
        unpin=n[Action.UNPIN],
        evict=n[Action.EVICT],
        evict_bytes=plan.bytes_of(Action.EVICT),
        bound_by={action.value: limit for action, limit in plan.bound_by.items()},
        cycle_s=judged.cycle_s,
        eviction_age_s=age_s,
        fitting_cycle_s=fitting_cycle_s(age_s, judged.cycle_s),
        queued_files=judged.queued.files.num_rows,
        queued_prefetch=int(queued.sum()),
        queued_prefetch_bytes=int(plan.size_bytes[queued].sum()),
        queued_unknown=judged.queued.n_unknown,
        queued_stale=judged.queued.n_stale,
        alarms=faults,
    )
