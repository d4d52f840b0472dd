"""What `status` answers of a region and its caches, and their alarms, with remedies."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from features.common.times import as_of_label
from features.common.units import duration_label, format_bytes
from features.results import ARRIVALS
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.tables import Tables, read_partitions
from jobs.loop.ingest.announced import QueueReport
from prefetch.actions import ItemState
from prefetch.plan.items import most_pinned_bytes
from prefetch.steward.figures import StewardFigures
from prefetch.xcache.rolling import held_bytes

REMEDIES: Final[Mapping[str, str]] = {
    "no-champion": "run `cachecast evaluate --from DAY`, which needs weeks of records, then `cachecast "
    "promote`; `promote --why` says why one was refused",
    "prediction-late": "run `cachecast cycle --as-of TIME`: the step that fails is the cause",
    "incomplete": "see why its records are missing, faulty or late; pull them again when they are there",
    "drift": "if it lasts for days, train again: `cachecast train --until DAY`; see the table drift",
    "plan-late": "run `cachecast plan --cache NAME --as-of TIME`: its error says what is missing",
    "push-failed": "read the causes in `cachecast push status --cache NAME`; the next plan has what is "
    "still worth it",
    "not-pushed": "run `cachecast push run --cache NAME --as-of TIME`; it resumes where it stopped",
    "unproven": "`cachecast push cancel --cache NAME --unpin` stops what is undone and gives up the pins",
    "above-high-watermark": "free the disk, or restart a server that does not purge; compare `capacity` and "
    "`watermarks` with the server's; `cachecast scan --cache NAME`, or the next plan, looks again",
    "pins-over-limit": "correct `capacity` or [push] journal, then plan and push: the next plan unpins",
    "steward-silent": "restart its service; if it is not wanted any more, stop the service and delete the "
    "cache's file in [steward] state",
    "steward-outrun": "after a burst do nothing; if it happens each day, lower the low watermark of the "
    "server and of the settings",
    "steward-blind": "start the collector, add the four lines at the start of docs/steward.md to the server "
    "and restart it, or run the steward as the server's user: the text says which",
    "steward-implausible": "compare `capacity` and `watermarks` with the server's; if they agree and the "
    "cache really is too full, restart the steward with --force",
    "steward-impostor": "find out who sends to the collector in the cache's name, and let the firewall admit "
    "the caches alone",
    "steward-cache": "start the server, mount its disks, and let the steward read its namespace",
    "steward-lists": "correct [push] journal, or restore its database; before the first push of a site make "
    "one: `cachecast push resume --cache NAME`",
    "steward-tables": "mend the network or the store; its figures reach the tables then",
    "steward-order": "start MLflow if it is unavailable; else `cachecast promote --rollback`, or train, "
    "evaluate and promote",
    "steward-clock": "set both clocks by NTP",
    "queue-doubted": "compare its answer with the broker's own pages, and mend what `cachecast queue --name "
    "NAME` reads; a queue that keeps its word again is believed again",
    "collector-full": "pull the captures with --new-only, or raise [collect] quota",
}
"""What to do first, by name of the alarm. NAME and TIME stand for the cache and the decision time."""


WITHHELD_REMEDY: Final = (
    "evaluate and promote: `cachecast promote --why` says what is missing; `cachecast push run --cache NAME "
    "--as-of TIME --unproven` carries it out nevertheless"
)

CRITICAL: Final = frozenset({"above-high-watermark", "pins-over-limit", "steward-impostor"})
"""Urgent, as a disk or records are at risk; the same in the rules for Prometheus."""
_N_NAMED = 3
FULL_SHARE = 0.8
"""Captures that fill a larger share of their quota raise an alarm: datagrams will soon be dropped."""
SILENT_S = 300.0
"""A steward that has reported nothing for longer is silent; it reports every minute."""


@dataclasses.dataclass(frozen=True)
class Alarm:
    """A condition that an operator should check; `name` is its heading in docs/troubleshoot.md."""

    name: str
    about: str
    text: str
    remedy: str

    @property
    def severity(self) -> str:
        """`critical` or `warning`."""
        return "critical" if self.name in CRITICAL else "warning"

    @property
    def has_section(self) -> bool:
        """Whether docs/troubleshoot.md has a section of this name, which a steward may have made up."""
        return self.name in REMEDIES


def alarm(name: str, about: str, text: str, as_of: str = "TIME", remedy: str | None = None) -> Alarm:
    """The alarm `name` of a region or cache, with its `remedy`, maybe for the decision time `as_of`."""
    remedy = remedy or REMEDIES.get(name, "see docs/troubleshoot.md")
    return Alarm(name, about, text, remedy.replace("NAME", about).replace("TIME", as_of))


@dataclasses.dataclass(frozen=True)
class CacheStatus:
    """One cache, by its last inventory, plan and push.

    `inventory_at`: the time of what it held; `fill_share` and `watermarks`: of the capacity; `pinned_bytes`:
    of the current pins; `push`: items of the last push by state; `unproven`: items pushed although no
    promotion covers them, as long as they are undone, failed or pinned; `withheld`: why the plan, which was
    not pushed, may not act; `steward`: its last report; `steward_fault`: why that cannot be read. Unknown
    values are None.
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
    withheld: str | None = None
    steward: StewardFigures | None = None
    steward_fault: str | None = None
    watermarks: tuple[float, float] = (0.90, 0.95)


@dataclasses.dataclass(frozen=True)
class Status:
    """The region at `at`; `champion`: None if none was promoted.

    `candidate_serves`: there is no champion, and a candidate made the newest predictions, which `[mlflow]
    serve` allows; `drifted`: columns of the newest predictions, the worst first.
    """

    at: str
    region: str
    champion: str | None
    decided_at: str | None
    candidate_serves: bool
    scored_by: str | None
    predictions_at: str | None
    predictions: int
    drifted: tuple[str, ...]
    caches: tuple[CacheStatus, ...]
    alarms: tuple[Alarm, ...]
    queues: tuple[QueueReport, ...] = ()


def arrival_alarms(tables: Tables, settings: Settings, *, now_s: int) -> list[Alarm]:
    """An alarm per source whose records of the last decision time that was judged are incomplete."""
    newest = tables.newest(ARRIVALS, owner=settings.region.name, until=as_of_label(now_s))
    rows = read_partitions(newest, newest.partitions, ["source", "why", "as_of"]).to_pylist()
    return [alarm("incomplete", row["source"], f"{row['as_of']}: {row['why']}") for row in rows if row["why"]]


def queue_alarms(queues: Iterable[QueueReport]) -> Iterator[Alarm]:
    """An alarm per queue that is not believed, or grows."""
    for report in queues:
        if report.fault is not None:
            yield alarm("queue-doubted", report.queue, report.fault)


def region_alarms(status: Status, tables: Tables, settings: Settings, *, now_s: int) -> Iterator[Alarm]:
    """The alarms of a region: its model and its predictions."""
    if status.champion is None and not status.candidate_serves:
        yield alarm("no-champion", status.region, "no model was promoted: train, evaluate and promote one")
    due = _due(settings, now_s)
    yield from _late(status.region, "prediction", status.predictions_at, due, _reached(tables, settings, due))
    if status.drifted:
        worst = ", ".join(status.drifted[:_N_NAMED])
        text = f"columns that have drifted from training: {len(status.drifted)}, most of all {worst}"
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
        if cache.withheld is None:
            text = f"the plan of {cache.plan_at} was not pushed"
            yield alarm("not-pushed", cache.cache, text, cache.plan_at)
        else:
            text = f"a push of the plan of {cache.plan_at} is withheld: {cache.withheld}"
            yield alarm("not-pushed", cache.cache, text, cache.plan_at, WITHHELD_REMEDY)


def _unproven_alarms(cache: CacheStatus) -> Iterator[Alarm]:
    if cache.unproven:
        text = f"{cache.unproven} items of a model that no promotion covers were pushed with --unproven"
        yield alarm("unproven", cache.cache, text)


def _disk_alarms(cache: CacheStatus, settings: Settings) -> Iterator[Alarm]:
    low, high = settings.caches[cache.cache].watermarks
    fill_share, source, at = cache.fill_share, "inventory", cache.inventory_at
    steward = cache.steward
    if steward and steward.high_bytes and (looked_at := as_of_label(int(steward.at_s))) > (at or ""):
        fill_share, source, at = steward.used_bytes / cache.capacity_bytes, "steward's look", looked_at
    if fill_share is not None and fill_share > high:
        shares = f"{100 * fill_share:.0f} % full, above its high watermark of {100 * high:.0f} %"
        yield alarm("above-high-watermark", cache.cache, f"{shares}, by its {source} of {at}: does it purge?")
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
        state = f"the newest {subject} is of {newest}" if newest else f"there is no {subject} yet"
        text = f"{state}; that of {due.as_of} was due by {due.by}{reached}"
        yield alarm(f"{subject}-late", about, text, due.as_of)


def silence(figures: StewardFigures, *, now_s: float) -> str | None:
    """How long a steward that was not stopped has been silent; None: it reported lately."""
    silent_s = int(now_s - figures.at_s)
    return duration_label(silent_s - silent_s % 60) if silent_s > SILENT_S else None
