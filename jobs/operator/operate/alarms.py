"""The alarms of a region and of its caches, with remedies; docs/troubleshoot.md has a section for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from features.common.times import as_of_label
from features.common.units import duration_label, format_bytes
from features.results import ARRIVALS
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.tables import Tables, read_partitions
from jobs.operator.operate.condition import Alarm, CacheStatus, Status, alarm
from prefetch.actions import ItemState
from prefetch.plan.limits import most_pinned_bytes
from prefetch.steward.figures import StewardFigures
from prefetch.xcache.rolling import held_bytes

FULL_SHARE = 0.8
"""Captures that fill a larger share of their quota raise an alarm: datagrams will soon be dropped."""
SILENT_S = 300.0
"""A steward that has reported nothing for longer is silent; it reports every minute."""


def arrival_alarms(tables: Tables, settings: Settings, *, now_s: int) -> list[Alarm]:
    """An alarm per source whose records of the last decision time that was judged are incomplete."""
    newest = tables.newest(ARRIVALS, owner=settings.region.name, until=as_of_label(now_s))
    rows = read_partitions(newest, newest.partitions, ["source", "why", "as_of"]).to_pylist()
    return [alarm("incomplete", row["source"], f"{row['as_of']}: {row['why']}") for row in rows if row["why"]]


def region_alarms(status: Status, tables: Tables, settings: Settings, *, now_s: int) -> Iterator[Alarm]:
    """The alarms of a region: its model and its predictions."""
    if status.champion is None and not status.candidate_serves:
        yield alarm("no-champion", status.region, "no model was promoted: train, evaluate and promote one")
    due = _due(settings, now_s)
    yield from _late(status.region, "prediction", status.predictions_at, due, _reached(tables, settings, due))
    if status.drifted_columns:
        text = f"columns that have drifted from training: {status.drifted_columns}; train again if it lasts"
        yield alarm("drift", status.region, text)


def cache_alarms(cache: CacheStatus, settings: Settings, *, now_s: int) -> Iterator[Alarm]:
    """The alarms of one cache."""
    yield from _late(cache.cache, "plan", cache.plan_at, _due(settings, now_s))
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
        yield alarm("not-pushed", cache.cache, text, cache.plan_at)


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


class _Due(NamedTuple):
    """The newest decision time whose plans are to be pushed by now, and the time when they were to be."""

    as_of: str
    by: str


def _due(settings: Settings, now_s: int) -> _Due:
    cycle_s, within_s = settings.features.cycle, settings.airflow.due_s(settings.features.cycle)
    as_of_s = (now_s - within_s) // cycle_s * cycle_s
    return _Due(as_of_label(as_of_s), as_of_label(as_of_s + within_s))


def _reached(tables: Tables, settings: Settings, due: _Due) -> str:
    """The last step before the predictions that is in the tables for a decision time, in words."""
    for step, table in (("features", settings.features.spec.features_table), ("arrivals", ARRIVALS)):
        if any(key[1] >= due.as_of for key in tables.newest(table, owner=settings.region.name).partitions):
            return f"; its {step} are there"
    return "; neither its arrivals nor its features are there"


def _late(about: str, subject: str, newest: str | None, due: _Due, reached: str = "") -> Iterator[Alarm]:
    if (newest or "") < due.as_of:
        found = f"the newest {subject} is of {newest}" if newest else f"there is no {subject} yet"
        text = f"{found}; that of {due.as_of} was due by {due.by}{reached}"
        yield alarm(f"{subject}-late", about, text, due.as_of)


def silence(found: StewardFigures, *, now_s: float) -> str | None:
    """How long a steward that was not stopped has been silent; None: it reported lately."""
    silent_s = int(now_s - found.at_s)
    return duration_label(silent_s - silent_s % 60) if silent_s > SILENT_S else None
