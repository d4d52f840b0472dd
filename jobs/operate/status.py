"""The status for operators: caches, plans, pushes, the model, alarms. No server is contacted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow.compute as pc

from features.results import DRIFT, PROMOTIONS
from features.schema import CONTENTS, PLANS, PREDICTIONS, RECEIPTS
from features.times import as_of_label, parse_as_of
from features.units import duration_label, format_bytes
from jobs.operate.prometheus import Sample
from jobs.settings.tree import CacheSettings, Settings
from jobs.store.keys import Key
from jobs.store.tables import Snapshot, Tables, read_partitions
from prefetch.actions import ItemState
from prefetch.journal.journal import Journal
from prefetch.plan.limits import most_pinned_bytes
from prefetch.xcache.quota import held_bytes

LATE_CYCLES = 3
"""A plan or prediction older than this many cycles is late."""
FULL_SHARE = 0.8
"""Captures that fill a larger share of their quota raise an alarm: datagrams will soon be dropped."""


@dataclasses.dataclass(frozen=True)
class CacheStatus:
    """One cache, by its last inventory, plan and push.

    `inventory_at`: the time of what it held; `fill_share`: of the capacity; `pinned_bytes`: of the current
    pins; `push`: items of the last push by state. Unknown values are None.
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


@dataclasses.dataclass(frozen=True)
class Alarm:
    """A condition that an operator should check; `name` is its heading in docs/troubleshoot.md."""

    name: str
    about: str
    text: str


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
    tables, region = Tables(settings.tables.root), settings.region.name
    journal = Journal(settings.push.journal)
    try:
        caches = tuple(_cache(tables, journal, cache, now_s) for _, cache in sorted(settings.caches.items()))
    finally:
        journal.close()
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
        caches=caches,
        alarms=(),
    )
    return dataclasses.replace(status, alarms=tuple(_alarms(status, settings, now_s)))


def _cache(tables: Tables, journal: Journal, cache: CacheSettings, now_s: int) -> CacheStatus:
    contents, plan, push = (tables.newest(table, owner=cache.name) for table in (CONTENTS, PLANS, RECEIPTS))
    held = _sum(contents, "bytes_on_disk") if contents.partitions else None
    pins = journal.pins(cache.name, now_s=now_s)
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
    )


class Allowed(NamedTuple):
    """The present time, and the age that a plan may have."""

    now_s: int
    age_s: int


def _alarms(status: Status, settings: Settings, now_s: int) -> Iterator[Alarm]:
    allowed = Allowed(now_s, LATE_CYCLES * settings.features.cycle)
    if status.champion is None and not status.candidate_serves:
        yield Alarm("no-champion", status.region, "no model was promoted: train, evaluate and promote one")
    yield from _late(status.region, "prediction", status.predictions_at, allowed)
    if status.drifted_columns:
        text = f"{status.drifted_columns} columns have drifted from training; train again if it lasts"
        yield Alarm("drift", status.region, text)
    for cache in status.caches:
        yield from _late(cache.cache, "plan", cache.plan_at, allowed)
        yield from _push_alarms(cache)
        yield from _disk_alarms(cache, settings)
        yield from _capture_alarms(settings.caches[cache.cache], settings.collect.quota)


def _push_alarms(cache: CacheStatus) -> Iterator[Alarm]:
    if failed := cache.push.get(ItemState.FAILED, 0):
        text = f"{failed} of {sum(cache.push.values())} items of the last push failed"
        yield Alarm("push-failed", cache.cache, f"{text}; their errors are in the receipts table")
    if cache.plan_at is not None and cache.push_at != cache.plan_at:
        text = f"the plan of {cache.plan_at} was not pushed; cachecast push resumes it"
        yield Alarm("not-pushed", cache.cache, text)


def _disk_alarms(cache: CacheStatus, settings: Settings) -> Iterator[Alarm]:
    low, high = settings.caches[cache.cache].watermarks
    if cache.fill_share is not None and cache.fill_share > high:
        shares = f"{100 * cache.fill_share:.0f} % full, above its high watermark of {100 * high:.0f} %"
        text = f"{shares}, by its inventory of {cache.inventory_at}: does it purge?"
        yield Alarm("above-high-watermark", cache.cache, text)
    limit = most_pinned_bytes(cache.capacity_bytes, low)
    if cache.pinned_bytes > limit:
        text = f"pins hold {format_bytes(cache.pinned_bytes)}, more than {format_bytes(limit)}"
        yield Alarm("pins-over-limit", cache.cache, text)


def _capture_alarms(cache: CacheSettings, quota_bytes: int) -> Iterator[Alarm]:
    if cache.gstream is None or not cache.gstream.is_dir():
        return
    held = held_bytes(cache.gstream)
    if held > FULL_SHARE * quota_bytes:
        text = f"captures hold {format_bytes(held)} of {format_bytes(quota_bytes)} ([collect] quota)"
        yield Alarm("collector-full", cache.name, f"{text}; are they pulled with --new-only?")


def _late(about: str, subject: str, newest: str | None, allowed: Allowed) -> Iterator[Alarm]:
    name = f"{subject}-late"
    if newest is None:
        yield Alarm(name, about, f"there is no {subject} yet")
    elif (age_s := allowed.now_s - parse_as_of(newest)) > allowed.age_s:
        yield Alarm(name, about, f"the newest {subject} is {duration_label(age_s - age_s % 60)} old")


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
    for alarm in status.alarms:
        labels = {"alarm": alarm.name, "about": alarm.about}
        found.append(("cachecast_alarm", "1 while it stands", labels, 1))
    return found


def _moment(metric: str, labels: Mapping[str, str], at: str | None) -> list[Sample]:
    """The time of the newest one, since 1970; nothing if there is none."""
    return [] if at is None else [(metric, "moment of the newest, since 1970", labels, parse_as_of(at))]
