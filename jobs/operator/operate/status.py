"""The status for operators: caches, plans, pushes, the model, alarms. No server is contacted."""

import contextlib
import dataclasses
import itertools

import pyarrow.compute as pc

from features.common.errors import InputError, ServiceError, bounded, printable
from features.common.times import as_of_label, parse_as_of
from features.results import DRIFT, PROMOTIONS
from features.schema import CONTENTS, PLANS, PREDICTIONS, RECEIPTS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Snapshot, Tables
from jobs.loop.ingest.announced import reports
from jobs.loop.plan.items import newest_plan, planned_items, unproven_plan
from jobs.operator.operate.alarms import (
    CacheStatus,
    Status,
    alarm,
    arrival_alarms,
    cache_alarms,
    region_alarms,
)
from prefetch.journal.journal import Journal
from prefetch.journal.tables import UNPROVEN
from prefetch.steward.figures import read


def run(settings: Settings, *, now_s: int) -> Status:
    """The status at `now_s`, from the tables and the journal."""
    tables = Tables.of(settings)
    region = of_region(tables, settings, now_s=now_s)
    with contextlib.closing(Journal(settings.push.journal)) as journal:
        caches = tuple(
            of_cache(tables, journal, settings, name, now_s=now_s) for name in sorted(settings.caches)
        )
    of_caches = (cache_alarms(cache, settings, now_s=now_s) for cache in caches)
    alarms = (*region.alarms, *itertools.chain.from_iterable(of_caches))
    return dataclasses.replace(region, caches=caches, alarms=alarms)


def of_region(tables: Tables, settings: Settings, *, now_s: int) -> Status:
    """The status without its caches, and the alarms that are of none of them."""
    region = settings.region.name
    decided = tables.newest(PROMOTIONS, owner=region)
    predicted = tables.newest(PREDICTIONS, owner=region, until=as_of_label(now_s))
    drift = tables.newest(DRIFT, owner=region).rows(["column", "psi", "drifted"])
    champion = printable(bounded(_first(decided, "champion") or "", 200)) or None
    scored_by = _first(predicted, "model_version")
    status = Status(
        at=as_of_label(now_s),
        region=region,
        champion=champion,
        decided_at=_at(decided),
        candidate_serves=bool(scored_by and not champion and "candidate" in settings.mlflow.serve),
        scored_by=scored_by,
        predictions_at=_at(predicted),
        predictions=sum(part.n_rows for part in predicted.partitions.values()),
        drifted=tuple(drift.filter(drift["drifted"]).sort_by([("psi", "descending")])["column"].to_pylist()),
        caches=(),
        alarms=(),
        queues=reports(tables, as_of_s=now_s),
    )
    alarms = [*region_alarms(status, tables, settings, now_s=now_s)]
    alarms += arrival_alarms(tables, settings, now_s=now_s)
    alarms += [alarm("queue-doubted", of.queue, of.fault) for of in status.queues if of.fault is not None]
    return dataclasses.replace(status, alarms=tuple(alarms))


def champion_line(status: Status) -> str:
    if status.champion:
        return f"{status.champion} (decided {status.decided_at})"
    if status.candidate_serves:
        return f"none yet; the candidate {status.scored_by} serves until one is promoted"
    return "none, caches run plain LRU"


def of_cache(tables: Tables, journal: Journal, settings: Settings, name: str, *, now_s: int) -> CacheStatus:
    cache, region, until = settings.caches[name], settings.region.name, as_of_label(now_s)
    contents, push = (tables.newest(table, owner=name, until=until) for table in (CONTENTS, RECEIPTS))
    plan, receipts = newest_plan(tables, name, until=until), tables.head(RECEIPTS)
    if its := {key: receipts.partitions[key] for key in plan.partitions if key in receipts.partitions}:
        push = dataclasses.replace(receipts, partitions=its)  # not of a prefill since
    held = None
    if contents.partitions:
        held = int(pc.sum(contents.rows(["bytes_on_disk"])["bytes_on_disk"]).as_py() or 0)
    plan_at, push_at = _at(plan), _at(push)
    since = {k: part for k, part in receipts.select(owner=name).items() if (push_at or "") < k[1] <= until}
    pins = journal.reports.pins(name, now_s=now_s)
    pushed = tables.newest(PLANS, owner=name, until=push_at)
    withheld = None
    if plan_at and plan_at != push_at:
        try:
            items = planned_items(tables, name, parse_as_of(plan_at))
            withheld = unproven_plan(tables, items, region)
        except ServiceError as error:
            withheld = str(error)
    steward, steward_fault = None, None
    try:
        steward = read(settings.steward.figures(name))
    except InputError as error:
        steward_fault = str(error)
    return CacheStatus(
        cache=name,
        capacity_bytes=cache.capacity,
        inventory_at=_latest(contents, "scanned_at") or _at(contents),
        held_files=sum(p.n_rows for p in contents.partitions.values()) if contents.partitions else None,
        held_bytes=held,
        fill_share=None if held is None else held / cache.capacity,
        pins=len(pins),
        pinned_bytes=sum(item.size_bytes for item in pins),
        plan_at=plan_at,
        plan=_count(plan, "action"),
        push_at=push_at,
        push=_count(push, "state"),
        prefills=_count(dataclasses.replace(receipts, partitions=since), "state"),
        unproven=journal.reports.unproven(name, now_s=now_s) + sum(pin.basis == UNPROVEN for pin in pins),
        withheld=withheld,
        steward=steward,
        steward_fault=steward_fault,
        watermarks=cache.watermarks,
        plan_ends=_latest(plan, "expires_at"),
        push_ends=_latest(pushed, "expires_at") if push_at else None,
        predictions_at=_at(tables.newest(PREDICTIONS, owner=region, until=until)),
    )


def _at(newest: Snapshot) -> str | None:
    return next((key[1] for key in newest.partitions), None)


def _latest(newest: Snapshot, column: str) -> str | None:
    last = pc.max(newest.rows([column])[column]).as_py()
    return None if last is None else as_of_label(int(last.timestamp()))


def _count(newest: Snapshot, column: str) -> dict[str, int]:
    counts = newest.rows([column]).group_by(column).aggregate([([], "count_all")]).sort_by(column)
    return {str(row[column]): row["count_all"] for row in counts.to_pylist()}


def _first(newest: Snapshot, column: str) -> str | None:
    return next(iter(newest.rows([column]).slice(0, 1)[column].to_pylist()), None)
