"""The status for operators: caches, plans, pushes, the model, alarms. No server is contacted."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow.compute as pc

from features.common.errors import InputError
from features.common.times import as_of_label, parse_as_of
from features.common.units import format_bytes, roughly
from features.results import ARRIVALS, DRIFT, PROMOTIONS
from features.schema import CONTENTS, PLANS, PREDICTIONS, RECEIPTS
from jobs.operate.alarms import Alarm, alarm
from jobs.operate.prometheus import Sample
from jobs.operate.stewards import Figures, figures, silence
from jobs.settings.tree import CacheSettings, Settings
from jobs.store.keys import Key
from jobs.store.tables import Snapshot, Tables, read_partitions
from prefetch.actions import ItemState
from prefetch.journal.journal import Journal
from prefetch.journal.tables import UNPROVEN
from prefetch.plan.limits import most_pinned_bytes
from prefetch.xcache.rolling import held_bytes

LATE_CYCLES = 3
"""A plan or prediction older than this many cycles is late."""
FULL_SHARE = 0.8
"""Captures that fill a larger share of their quota raise an alarm: datagrams will soon be dropped."""


@dataclasses.dataclass(frozen=True)
class CacheStatus:
    """One cache, by its last inventory, plan and push.

    `inventory_at`: the time of what it held; `fill_share`: of the capacity; `pinned_bytes`: of the current
    pins; `push`: items of the last push by state; `unproven`: items pushed although no promotion covers them,
    as long as they are undone, failed, pinned, or fetched and in their time; `steward`: its last report;
    `steward_fault`: why that cannot be read. Unknown values are None.
    """

    cache: str
    capacity_bytes: int
    inventory_at: str | None
    held_files: int | None
    held_bytes: int | None
    fill_share: float | None
    pins: int
    pinned_bytes: int
    plan_at: str | None
    plan: dict[str, int]
    push_at: str | None
    push: dict[str, int]
    unproven: int
    steward: Figures | None = None
    steward_fault: str | None = None


@dataclasses.dataclass(frozen=True)
class Status:
    """The region at `at`; `champion`: None if none was promoted.

    `candidate_serves`: there is no champion, and a candidate made the newest predictions, which `[mlflow]
    serve` allows.
    """

    at: str
    region: str
    champion: str | None
    decided_at: str | None
    candidate_serves: bool
    scored_by: str | None
    predictions_at: str | None
    predictions: int
    drifted_columns: int
    caches: tuple[CacheStatus, ...]
    alarms: tuple[Alarm, ...]


def run(settings: Settings, *, now_s: int) -> Status:
    """The status at `now_s`, from the tables and the journal."""
    tables = Tables(settings.tables.root)
    region = of_region(tables, settings, now_s=now_s)
    with contextlib.closing(Journal(settings.push.journal)) as journal:
        caches = tuple(
            of_cache(tables, journal, settings, name, now_s=now_s) for name in sorted(settings.caches)
        )
    short = _short(tables, settings)
    alarms = (one for cache in caches for one in cache_alarms(cache, settings, now_s=now_s))
    return dataclasses.replace(region, caches=caches, alarms=(*region.alarms, *short, *alarms))


def _short(tables: Tables, settings: Settings) -> list[Alarm]:
    """An alarm per source whose records of the last judged decision time are incomplete."""
    newest = tables.newest(ARRIVALS, owner=settings.region.name)
    rows = read_partitions(newest, newest.partitions, ["source", "why", "as_of"]).to_pylist()
    return [alarm("incomplete", row["source"], f"{row['as_of']}: {row['why']}") for row in rows if row["why"]]


def of_region(tables: Tables, settings: Settings, *, now_s: int) -> Status:
    """The status without the caches."""
    region = settings.region.name
    decided = tables.newest(PROMOTIONS, owner=region)
    predicted = tables.newest(PREDICTIONS, owner=region)
    champion = _first(decided, ["champion"]).get("champion")
    scored_by = _first(predicted, ["model_version"]).get("model_version")
    status = Status(
        at=as_of_label(now_s),
        region=region,
        champion=champion,
        decided_at=_at(decided),
        candidate_serves=bool(scored_by and not champion and "candidate" in settings.mlflow.serve),
        scored_by=scored_by,
        predictions_at=_at(predicted),
        predictions=sum(part.n_rows for part in predicted.partitions.values()),
        drifted_columns=_count(tables.newest(DRIFT, owner=region), "drifted").get("True", 0),
        caches=(),
        alarms=(),
    )
    return dataclasses.replace(status, alarms=tuple(_region_alarms(status, _allowed(settings, now_s))))


def champion_line(found: Status) -> str:
    """What serves in the region, in words."""
    if found.champion:
        return f"{found.champion} (decided {found.decided_at})"
    if found.candidate_serves:
        return f"none yet; the candidate {found.scored_by} serves until one is promoted"
    return "none, caches run plain LRU"


def of_cache(tables: Tables, journal: Journal, settings: Settings, name: str, *, now_s: int) -> CacheStatus:
    """The status of one cache."""
    found = _cache(tables, journal, settings.caches[name], now_s)
    try:
        return dataclasses.replace(found, steward=figures(settings.steward, found.cache))
    except InputError as error:
        return dataclasses.replace(found, steward_fault=str(error))


def _cache(tables: Tables, journal: Journal, cache: CacheSettings, now_s: int) -> CacheStatus:
    contents, plan, push = (tables.newest(table, owner=cache.name) for table in (CONTENTS, PLANS, RECEIPTS))
    held = _sum(contents, "bytes_on_disk") if contents.partitions else None
    pins = journal.pins.standing(cache.name, now_s=now_s)
    return CacheStatus(
        cache=cache.name,
        capacity_bytes=cache.capacity,
        inventory_at=_at(contents),
        held_files=sum(p.n_rows for p in contents.partitions.values()) if contents.partitions else None,
        held_bytes=held,
        fill_share=None if held is None else held / cache.capacity,
        pins=len(pins),
        pinned_bytes=sum(item.size_bytes for item in pins),
        plan_at=_at(plan),
        plan=_count(plan, "action"),
        push_at=_at(push),
        push=_count(push, "state"),
        unproven=journal.reports.unproven(cache.name, now_s=now_s)
        + sum(pin.basis == UNPROVEN for pin in pins),
    )


class Allowed(NamedTuple):
    """The present time, and the age that a plan may have."""

    now_s: int
    age_s: int


def _allowed(settings: Settings, now_s: int) -> Allowed:
    return Allowed(now_s, LATE_CYCLES * settings.features.cycle)


def _region_alarms(status: Status, allowed: Allowed) -> Iterator[Alarm]:
    if status.champion is None and not status.candidate_serves:
        yield alarm("no-champion", status.region, "no model was promoted: train, evaluate and promote one")
    yield from _late(status.region, "prediction", status.predictions_at, allowed)
    if status.drifted_columns:
        text = f"columns that have drifted from training: {status.drifted_columns}; train again if it lasts"
        yield alarm("drift", status.region, text)


def cache_alarms(cache: CacheStatus, settings: Settings, *, now_s: int) -> Iterator[Alarm]:
    """The alarms of one cache."""
    yield from _late(cache.cache, "plan", cache.plan_at, _allowed(settings, now_s))
    yield from _push_alarms(cache)
    yield from _unproven_alarms(cache)
    yield from _disk_alarms(cache, settings)
    yield from _steward_alarms(cache, now_s)
    yield from _capture_alarms(settings.caches[cache.cache], settings.collect.quota)


def _push_alarms(cache: CacheStatus) -> Iterator[Alarm]:
    if failed := cache.push.get(ItemState.FAILED, 0):
        text = f"{failed} of {sum(cache.push.values())} items of the last push failed"
        yield alarm("push-failed", cache.cache, f"{text}; their errors are in the receipts table")
    if cache.plan_at is not None and cache.push_at != cache.plan_at:
        text = f"the plan of {cache.plan_at} was not pushed; cachecast push resumes it"
        yield alarm("not-pushed", cache.cache, text)


def _unproven_alarms(cache: CacheStatus) -> Iterator[Alarm]:
    if cache.unproven:
        text = f"{cache.unproven} items of a model that no promotion covers were pushed with --unproven"
        yield alarm("unproven", cache.cache, text)


def _disk_alarms(cache: CacheStatus, settings: Settings) -> Iterator[Alarm]:
    low, high = settings.caches[cache.cache].watermarks
    if cache.fill_share is not None and cache.fill_share > high:
        shares = f"{100 * cache.fill_share:.0f} % full, above its high watermark of {100 * high:.0f} %"
        text = f"{shares}, by its inventory of {cache.inventory_at}: does it purge?"
        yield alarm("above-high-watermark", cache.cache, text)
    limit = most_pinned_bytes(cache.capacity_bytes, low)
    if cache.pinned_bytes > limit:
        text = f"pins hold {format_bytes(cache.pinned_bytes)}, more than {format_bytes(limit)}"
        yield alarm("pins-over-limit", cache.cache, text)


def _steward_alarms(cache: CacheStatus, now_s: int) -> Iterator[Alarm]:
    if cache.steward_fault is not None:
        yield alarm("steward-silent", cache.cache, cache.steward_fault)
    if cache.steward is None:
        return
    if (silent := silence(cache.steward, now_s=now_s)) is not None:
        text = f"its steward has reported nothing for {silent}, and was not stopped: the cache is plain LRU"
        yield alarm("steward-silent", cache.cache, text)
        return
    for name, text in cache.steward.alarms.items():
        yield alarm(name, cache.cache, text)


def _capture_alarms(cache: CacheSettings, quota_bytes: int) -> Iterator[Alarm]:
    if cache.gstream is None or not cache.gstream.is_dir():
        return
    held = held_bytes(cache.gstream)
    if held > FULL_SHARE * quota_bytes:
        text = f"captures hold {format_bytes(held)} of {format_bytes(quota_bytes)} ([collect] quota)"
        yield alarm("collector-full", cache.name, f"{text}; are they pulled with --new-only?")


def _late(about: str, subject: str, newest: str | None, allowed: Allowed) -> Iterator[Alarm]:
    name = f"{subject}-late"
    if newest is None:
        yield alarm(name, about, f"there is no {subject} yet")
    elif (age_s := allowed.now_s - parse_as_of(newest)) > allowed.age_s:
        yield alarm(name, about, f"the newest {subject} is {roughly(age_s)} old")


def _at(newest: Snapshot) -> str | None:
    keys: list[Key] = list(newest.partitions)
    return keys[0][1] if keys else None


def _count(newest: Snapshot, column: str) -> dict[str, int]:
    """The number of rows with each value of a column."""
    if not newest.partitions:
        return {}
    rows = read_partitions(newest, newest.partitions, [column])
    counts = rows.group_by(column).aggregate([([], "count_all")]).sort_by(column).to_pylist()
    return {str(row[column]): row["count_all"] for row in counts}


def _sum(newest: Snapshot, column: str) -> int:
    return int(pc.sum(read_partitions(newest, newest.partitions, [column])[column]).as_py() or 0)


def _first(newest: Snapshot, columns: list[str]) -> Mapping[str, str | None]:
    if not newest.partitions:
        return {}
    rows = read_partitions(newest, newest.partitions, columns).slice(0, 1).to_pylist()
    return rows[0] if rows else {}


def samples(status: Status) -> list[Sample]:
    """The status as metrics for Prometheus."""
    region = {"region": status.region}
    found: list[Sample] = [
        ("cachecast_champion", "1 if a model was promoted", region, float(status.champion is not None)),
        ("cachecast_predictions", "predictions at the newest moment", region, status.predictions),
        ("cachecast_drifted_columns", "columns that have drifted", region, status.drifted_columns),
        *_moment("cachecast_predictions_as_of_seconds", region, status.predictions_at),
    ]
    for cache in status.caches:
        label = {"cache": cache.cache}
        found += [
            ("cachecast_cache_capacity_bytes", "by its settings", label, cache.capacity_bytes),
            ("cachecast_cache_pins", "pins that stand", label, cache.pins),
            ("cachecast_cache_pinned_bytes", "bytes of their files", label, cache.pinned_bytes),
            *_moment("cachecast_plan_as_of_seconds", label, cache.plan_at),
            *_moment("cachecast_push_as_of_seconds", label, cache.push_at),
        ]
        if cache.held_bytes is not None and cache.held_files is not None:
            found += [
                ("cachecast_cache_held_bytes", "by its last inventory", label, cache.held_bytes),
                ("cachecast_cache_held_files", "by its last inventory", label, cache.held_files),
            ]
        for metric, text, by, counts in (
            ("cachecast_plan_items", "items of the last plan", "action", cache.plan),
            ("cachecast_push_items", "items of the last push", "state", cache.push),
        ):
            found += [(metric, text, label | {by: key}, n) for key, n in counts.items()]
    for one in status.alarms:
        labels = {"alarm": one.name, "about": one.about}
        found.append(("cachecast_alarm", "1 while it stands", labels, 1))
    return found


def _moment(metric: str, labels: Mapping[str, str], at: str | None) -> list[Sample]:
    """The time of the newest one, since 1970; nothing if there is none."""
    return [] if at is None else [(metric, "moment of the newest, since 1970", labels, parse_as_of(at))]
