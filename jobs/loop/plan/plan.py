"""Step `plan`: plan items with reasons, from a cache's own inventory and the region's predictions.

And step `never-cache`: the site's rules of files never to cache, for the cache's decision library.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from features.common import files
from features.common.arrays import IntArray
from features.common.errors import InputError, StaleInputError
from features.common.times import as_of_label
from features.schema import CONTENTS, PLANS, PREDICTIONS
from jobs.ground.caches.inventory import check_evictions, check_loss
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.arrivals import shortfalls
from jobs.loop.ingest.queue import known_work
from jobs.loop.ingest.queued_files import Queued
from jobs.loop.plan.cache_state import CacheAtMoment
from jobs.loop.plan.items import FileFilter, PlannedFile, contents, items, planned_files
from jobs.loop.plan.planner import MODEL_COLUMNS, model_of, planner
from jobs.loop.trainings import unproven_because
from models.serving.versions import ModelVersion
from prefetch.actions import Action
from prefetch.plan.explain import Explanation, explain
from prefetch.plan.planner import Judgement
from prefetch.plan.rules import LIBRARY, blacklist
from prefetch.plan.value import eviction_age_s, fitting_cycle_s
from prefetch.target import Held

_HEAD = (
    "# Made by `cachecast never-cache` from [plan] rules; make it again instead of editing it.",
    "# Read when xrootd starts: restart the cache after a change.",
)


@dataclasses.dataclass(frozen=True)
class PlanSummary:
    """Summary of a plan: files and bytes, and per list the limit that bound it.

    `eviction_age_s`: how long a file stays there without a plan; `fitting_cycle_s`: the cycle of predictions
    and plans that suits this. `queued_*`: files that queued jobs will read, those of them to fetch, inputs
    that the files table lacks, stale ones, whose queue was not read again, and those of queues that are not
    believed. `files`: those asked for.
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
    queued_doubted: int
    alarms: tuple[str, ...]
    files: tuple[PlannedFile, ...] = ()


@dataclasses.dataclass(frozen=True)
class JudgedCache:
    """A cache at a decision time: its files, its plan with inputs, faults; `index`: of `held` in `dids`."""

    moment: CacheAtMoment
    held: Sequence[Held]
    dids: pa.Array
    origins: pa.Table
    index: IntArray
    judgement: Judgement
    queued: Queued
    model: ModelVersion
    faults: tuple[str, ...] = ()

    @property
    def held_bytes(self) -> int:
        return sum(file.bytes_on_disk for file in self.held)


def run(
    settings: Settings, *, cache: str, as_of_s: int, force: bool = False, listed: FileFilter | None = None
) -> PlanSummary:
    """Plan for one cache; raises as `make`. `force`: ignore the limits; `listed`: which files to return."""
    tables = _tables_with_predictions(settings, cache, as_of_s)
    tables.check_writable(PLANS)
    summary = make(CacheAtMoment.asked(settings, cache, as_of_s), force=force)
    if listed is None:
        return summary
    return dataclasses.replace(summary, files=planned_files(tables, summary.cache, as_of_s, listed))


def judge_and_explain(settings: Settings, *, cache: str, as_of_s: int, item: str) -> Explanation:
    """Why one file would be planned or not; nothing is written. Raises as `explain_item`."""
    _tables_with_predictions(settings, cache, as_of_s)
    return explain_item(judge(CacheAtMoment.asked(settings, cache, as_of_s)), item=item)


def _tables_with_predictions(settings: Settings, cache: str, as_of_s: int) -> Tables:
    """The tables; raises StaleInputError if they have no predictions to plan by. No cache is asked."""
    settings.cache(cache)
    tables, region = Tables.of(settings), settings.region.name
    predicted_s = as_of_s - as_of_s % settings.features.cycle
    if not tables.snapshot(PREDICTIONS).select(as_of=as_of_label(predicted_s), owner=region):
        raise _no_predictions(tables, predicted_s, region)
    return tables


def _no_predictions(tables: Tables, as_of_s: int, region: str) -> StaleInputError:
    known = tables.newest(PREDICTIONS, owner=region).partitions
    latest = f"the latest are at {next(iter(known))[1]}" if known else "there are none at any time"
    return StaleInputError(
        f"no predictions at {as_of_label(as_of_s)} for region {region!r}, {latest}; run `cachecast features` "
        "and `cachecast predict`"
    )


def make(moment: CacheAtMoment, *, force: bool = False) -> PlanSummary:
    """Write the contents and plans of a cache at a decision time.

    Raises StaleInputError if there are no predictions for it, LimitError if the cache lost, or the plan
    evicts, more than settings allow without `force`.
    """
    tables, region = moment.tables, moment.settings.region.name
    judged = judge(moment)
    cache, at_s, limits = moment.cache.name, moment.as_of_s, moment.settings.plan
    if not force:
        check_loss(tables, cache, held_bytes=judged.held_bytes, at_s=at_s, share=limits.lost_share)
        evicted_bytes = judged.judgement.plan.bytes_of(Action.EVICT)
        check_evictions(evicted_bytes, judged.held_bytes, cache=cache, share=limits.evict_share)
    key = MomentKey.at(at_s, cache)
    held_dids = judged.dids.take(pa.array(judged.index))
    tables.replace_partition(CONTENTS, contents(judged.held, held_dids, taken_s=moment.taken_s), key)
    rows = items(
        judged.judgement.plan,
        judged.dids,
        judged.origins,
        moment.paths,
        key=key,
        as_of_s=at_s,
        horizon_s=judged.judgement.horizon_s,
        model=judged.model,
        queued=judged.queued,
    )
    tables.replace_partition(PLANS, rows, key)
    faults = (*judged.faults, *shortfalls(tables, region=region, as_of_s=moment.predicted_s))
    if (unproven := unproven_because(tables, judged.model, region=region)) is not None:
        faults = (f"{unproven}; `cachecast push` carries out none of its choices", *faults)
    return _summary(judged, key, faults)


def explain_item(judged: JudgedCache, *, item: str) -> Explanation:
    """Why file `item` (a did, a name, or a held path) is planned or not in `judged`. Raises InputError."""
    moment = judged.moment
    item = moment.paths.did_at(item) or item
    is_item = pc.or_(pc.equal(judged.dids, item), pc.ends_with(judged.dids, f":{item}"))
    index = pc.index(is_item, True).as_py()
    if index < 0:
        raise InputError(
            f"{item!r} is neither in cache {moment.cache.name!r} nor a candidate at "
            f"{as_of_label(moment.as_of_s)}: neither it nor its dataset was read lately; write it as "
            "scope:name, or as the cache's path"
        )
    explanation = explain(judged.judgement, int(index))
    return dataclasses.replace(explanation, origin=judged.origins["why"][index].as_py())


def judge(moment: CacheAtMoment) -> JudgedCache:
    """The plan of a cache by the latest predictions, with its inputs."""
    tables, cache, region = moment.tables, moment.cache, moment.settings.region.name
    inventory = sorted(moment.inventory, key=lambda file: file.name)
    held = [file for file in inventory if not file.unreadable]
    queued = known_work(tables, as_of_s=moment.as_of_s, cache=cache.name, site=cache.at_site)
    dids, model = _candidates(tables, moment.predicted_s, region, queued.files["did"])
    # Nothing else is known of unreadable files, so they are left as they are.
    unreadable = pa.array([moment.dids[file.name] for file in inventory if file.unreadable], pa.string())
    dids = dids.filter(pc.invert(pc.is_in(dids, value_set=unreadable)))
    dids, index = moment.with_held(dids, held)
    facts, budget, origins = moment.facts(dids)
    value_planner = planner(
        tables,
        dids,
        region=region,
        plan=moment.settings.plan,
        cycle_s=moment.cycle_s,
        predicted_every_s=moment.settings.features.cycle,
        files=facts,
        origin_bytes=budget,
        work_at=lambda _: queued.of(dids),
        version=model.version,
    )
    if cache.steward:
        value_planner = value_planner.beside_a_steward
    judgement = value_planner.judge(moment.state(held, index))
    faults = tuple(fault for fault in (moment.inflows.fault, moment.fault) if fault is not None)
    return JudgedCache(moment, held, dids, origins, index, judgement, queued, model, faults)


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


def _summary(judged: JudgedCache, key: MomentKey, alarms: tuple[str, ...]) -> PlanSummary:
    plan = judged.judgement.plan
    age_s = eviction_age_s(judged.judgement.case.state, judged.moment.cycle_s)
    is_queued = (plan.action == Action.PREFETCH.code) & (plan.n_jobs > 0)
    n = {action: int((plan.action == action.code).sum()) for action in Action}
    return PlanSummary(
        cache=key.owner,
        as_of=key.as_of,
        held_files=len(judged.held),
        held_bytes=judged.held_bytes,
        prefetch=n[Action.PREFETCH],
        prefetch_bytes=plan.bytes_of(Action.PREFETCH),
        pin=n[Action.PIN],
        pin_bytes=plan.bytes_of(Action.PIN),
        unpin=n[Action.UNPIN],
        evict=n[Action.EVICT],
        evict_bytes=plan.bytes_of(Action.EVICT),
        bound_by={action.value: limit for action, limit in plan.bound_by.items()},
        cycle_s=judged.moment.cycle_s,
        eviction_age_s=age_s,
        fitting_cycle_s=fitting_cycle_s(age_s, judged.moment.cycle_s),
        queued_files=judged.queued.files.num_rows,
        queued_prefetch=int(is_queued.sum()),
        queued_prefetch_bytes=int(plan.size_bytes[is_queued].sum()),
        queued_unknown=judged.queued.n_unknown,
        queued_stale=judged.queued.n_stale,
        queued_doubted=judged.queued.n_doubted,
        alarms=alarms,
    )


@dataclasses.dataclass(frozen=True)
class NeverCache:
    """Summary of the file. `left_out`: rules it cannot express, and why; `configure`: the server's line."""

    cache: str
    file: str
    rules: int
    lines: int
    left_out: tuple[str, ...]
    configure: str
    takes_effect: str


def never_cache(settings: Settings, *, cache: str, out: Path) -> NeverCache:
    """Write the blacklist of a cache to `out`, atomically. Raises ConfigError, InputError."""
    if settings.cache(cache).kind != "xcache":
        raise InputError(
            f"cache {cache!r} is a folder, which has no decision library; its plans obey the rules"
        )
    rules = blacklist([configured.rule for configured in settings.plan.rules])
    path = out.absolute()
    try:
        # The cache's server reads it, as another account.
        files.write(path, "\n".join([*_HEAD, *rules.lines, ""]), mode=0o644)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; choose another --out") from None
    return NeverCache(
        cache=cache,
        file=str(path),
        rules=rules.n_rules,
        lines=len(rules.lines),
        left_out=rules.left_out,
        configure=f"pfc.decisionlib {LIBRARY} {path}",
        takes_effect="when xrootd starts: restart the cache",
    )
