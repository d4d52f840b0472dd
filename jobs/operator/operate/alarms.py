"""What `status` answers of a region and its caches, and their alarms, with remedies."""

import collections
import dataclasses
import itertools
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from features.common import files
from features.common.errors import ServiceError
from features.common.times import DAY_S, as_of_label, day_label, parse_as_of, parse_day
from features.common.units import duration_label, format_bytes
from features.results import ARRIVALS
from features.schema import ACCESSES
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.announced import QueueReport
from jobs.loop.trainings import trained_versions
from jobs.operator.operate.asking import TIMEOUT_S
from jobs.operator.operate.remedies import NEW_MODEL, REMEDIES, UNTIL_THEN, WITHHELD
from models.serving.versions import CANDIDATE
from prefetch.actions import ItemState
from prefetch.plan.items import most_pinned_bytes
from prefetch.steward.figures import StewardFigures
from prefetch.xcache.rolling import held_bytes

WEEK_S: Final = 7 * DAY_S
LEARNED_S: Final = 2 * DAY_S  # at the least, an evaluation learns from so much before the days that it counts
CRITICAL: Final = frozenset({"above-high-watermark", "pins-over-limit", "steward-impostor"})
"""Urgent, as a disk or records are at risk; the same in the rules for Prometheus."""
_N_NAMED = 3
FULL_SHARE = 0.8  # captures that fill more of their quota raise an alarm: datagrams will be dropped
SILENT_S = 300.0  # a steward that has reported nothing for longer is silent; it reports every minute


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
    """The alarm `name` of a region or cache; by default with the remedy of its name, for `as_of`."""
    if remedy is None:
        remedy = filled(REMEDIES.get(name, "see docs/troubleshoot.md"), about, as_of)
    return Alarm(name, about, text, remedy)


def filled(remedy: str, about: str, as_of: str = "TIME") -> str:
    """A remedy with the cache and the decision time that NAME and TIME stand for."""
    return remedy.replace("TIME", as_of).replace("NAME", about)


@dataclasses.dataclass(frozen=True)
class CacheStatus:
    """One cache, by its last inventory, plan and push.

    `inventory_at`: the time of what it held; `fill_share` and `watermarks`: of the capacity; `pinned_bytes`:
    of the current pins; `push`: items of the last push by state, `prefills`: those of prefills since;
    `plan_ends`, `push_ends`: when the time of their items is over; `predictions_at`: the newest that a plan
    may use; `unproven`: items pushed although no promotion covers them, as long as they are undone, failed or
    pinned; `withheld`: why the plan, which was not pushed, may not act; `steward`: its last report;
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
    withheld: str | None = None
    steward: StewardFigures | None = None
    steward_fault: str | None = None
    watermarks: tuple[float, float] = (0.90, 0.95)
    plan_ends: str | None = None
    push_ends: str | None = None
    predictions_at: str | None = None
    prefills: Mapping[str, int] = dataclasses.field(default_factory=dict)


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
    rows = newest.rows(["source", "why", "as_of"]).to_pylist()
    return [
        alarm(
            "incomplete",
            row["source"],
            f"{row['as_of']}: {row['why']}",
            remedy=f"{REMEDIES['incomplete']}: {pulls(settings, row['source'])}, then `cachecast arrivals "
            f"--as-of {row['as_of']}`",
        )
        for row in rows
        if row["why"]
    ]


def region_alarms(status: Status, tables: Tables, settings: Settings, *, now_s: int) -> Iterator[Alarm]:
    """The alarms of a region: its model and its predictions. Without a model that may serve, none are due."""
    due, serving = _due(settings, now_s), _serving(status, tables, settings)
    if not serving:
        yield _no_champion(status, tables, settings, now_s)
    elif (status.predictions_at or "") < due.as_of:
        text = due.late("prediction", status.predictions_at) + _reached(tables, settings, due)
        newest, until_s = max(serving.items(), key=lambda model: model[1])
        if 0 < until_s < parse_as_of(due.as_of) - settings.training.max_age:
            text = f"{text}; {newest} is of {as_of_label(until_s)}, older than [training] max_age"
            remedy = f"{_new_model(_days(tables, now_s), settings)}, then `cachecast cycle`"
            yield alarm("prediction-late", status.region, text, remedy=remedy)
        else:
            at = max(due.as_of, as_of_label(until_s))  # no model scores a time before its training
            options = [f" --pull {source}={shlex.quote(path)}" for source, path in _inputs(settings)]
            remedy = REMEDIES["prediction-late"].replace("TIME", f"{at}{''.join(options)}")
            yield alarm("prediction-late", status.region, text, remedy=remedy)
    if status.drifted:
        worst = ", ".join(status.drifted[:_N_NAMED])
        text = f"columns that have drifted from training: {len(status.drifted)}, most of all {worst}"
        yield alarm("drift", status.region, text)


def _serving(status: Status, tables: Tables, settings: Settings) -> Mapping[str, int]:
    """The models that may serve by `[mlflow] serve`, and until when each has learned (0: not known)."""
    try:
        known = trained_versions(tables, region=status.region)
    except ServiceError:  # a table that others have written to: `predict` says so
        known = {}
    names = [status.champion]
    if status.champion is None and CANDIDATE in settings.mlflow.serve:
        names = [*known, status.scored_by]
    return {name: known[name].until_s if name in known else 0 for name in names if name is not None}


def _no_champion(status: Status, tables: Tables, settings: Settings, now_s: int) -> Alarm:
    """The alarm that no model may serve, with the commands to run now, or the day to wait for."""
    days, min_days = _days(tables, now_s), settings.training.min_test_days
    if not days:
        text = "no model was promoted, and there are no accesses to learn from"
        return alarm("no-champion", status.region, text, remedy=f"pull records: {pulls(settings)}")
    text = f"no model was promoted; there are accesses since {day_label(days[0])}"
    ready_s = days[0] + LEARNED_S + min_days * DAY_S
    if days[-1] < ready_s - DAY_S:
        text = (
            f"{text}, and an evaluation of {min_days} days, which may promote one, can be run from "
            f"{day_label(ready_s)} on"
        )
        return alarm("no-champion", status.region, text, remedy=UNTIL_THEN)
    if status.decided_at is not None:
        text = f"{text}; at {status.decided_at} the last one was refused, which may be right"
    return alarm("no-champion", status.region, text, remedy=_new_model(days, settings))


def _days(tables: Tables, now_s: int) -> list[int]:
    """The days with accesses up to now, s since 1970, since the last gap of a week: a few may be wrong."""
    parts = tables.head(ACCESSES).partitions
    known = (parse_day(key[0]) for key, part in parts.items() if part.n_rows)
    days = sorted(day for day in known if day <= now_s)
    gaps = [
        n for n, (day, following) in enumerate(itertools.pairwise(days), start=1) if following - day > WEEK_S
    ]
    return days[max(gaps, default=0) :]


def _new_model(days: Sequence[int], settings: Settings) -> str:
    """How to get a model, with the day from which an evaluation has days enough to promote it."""
    if not days:
        return NEW_MODEL
    first_s = max(days[0] + LEARNED_S, days[-1] - settings.training.min_test_days * DAY_S)
    return NEW_MODEL.replace("DAY", day_label(first_s))


def pulls(settings: Settings, of: str | None = None) -> str:
    """The commands that pull what `[airflow] pull` names, or one source of it."""
    commands = [
        f"`cachecast pull --source {source} --input {shlex.quote(path)}`"
        for source, path in _inputs(settings)
        if of in (None, source)
    ]
    return ", ".join(commands) or "see docs/pull.md"


def _inputs(settings: Settings) -> Collection[tuple[str, str]]:
    """What `[airflow] pull` names; Rucio last, which is asked for what the records show to be in use."""
    return (settings.airflow.records | settings.airflow.pull).items()


def cache_alarms(cache: CacheStatus, settings: Settings, *, now_s: int) -> Iterator[Alarm]:
    due = _due(settings, now_s)
    if (cache.plan_at or "") < due.as_of <= (cache.predictions_at or ""):
        yield alarm("plan-late", cache.cache, due.late("plan", cache.plan_at))
    yield from _push_alarms(cache, as_of_label(now_s))
    if cache.unproven:
        text = f"{cache.unproven} items of a model that no promotion covers were pushed with --unproven"
        yield alarm("unproven", cache.cache, text)
    yield from _disk_alarms(cache, settings)
    yield from _steward_alarms(cache, now_s)
    yield from _capture_alarms(cache.cache, settings)


def _push_alarms(cache: CacheStatus, now: str) -> Iterator[Alarm]:
    pushed = collections.Counter(cache.push) + collections.Counter(cache.prefills)
    failed = pushed[ItemState.FAILED]
    if failed and (cache.push_ends is None or now < cache.push_ends):
        text = f"{failed} of {pushed.total()} items of the last push failed"
        over = "" if cache.push_ends is None else f", whose time is over at {cache.push_ends}"
        yield alarm("push-failed", cache.cache, f"{text}{over}; their errors are in the receipts table")
    if cache.plan_at is None or now >= (cache.plan_ends or ""):
        return
    plan, over = f"the plan of {cache.plan_at}", f"its time is over at {cache.plan_ends}"
    if cache.push_at == cache.plan_at:
        if n_left := cache.push.get(ItemState.PLANNED, 0):
            text = f"{n_left} of {sum(cache.push.values())} items of {plan} were not pushed; {over}"
            yield alarm("not-pushed", cache.cache, text, cache.plan_at)
    elif cache.withheld is None:
        yield alarm("not-pushed", cache.cache, f"{plan} was not pushed; {over}", cache.plan_at)
    else:
        text = f"a push of {plan} is withheld: {cache.withheld}"
        yield alarm("not-pushed", cache.cache, text, remedy=filled(WITHHELD, cache.cache, cache.plan_at))


def _disk_alarms(cache: CacheStatus, settings: Settings) -> Iterator[Alarm]:
    configured = settings.caches[cache.cache]
    low, high = configured.watermarks
    fill_share, source, at = cache.fill_share, "inventory", cache.inventory_at
    looks = "`cachecast scan --cache NAME`" if configured.kind == "xcache" else "the next plan"
    if configured.kind == "xcache" and configured.namespace is None:
        looks = f"{looks} on its host"
    steward = cache.steward
    if steward and steward.high_bytes and (looked_at := as_of_label(int(steward.at_s))) > (at or ""):
        fill_share, source, at = steward.used_bytes / cache.capacity_bytes, "steward's look", looked_at
        looks = "its steward"
    if fill_share is not None and fill_share > high:
        shares = f"{100 * fill_share:.0f} % full, above its high watermark of {100 * high:.0f} %"
        text = f"{shares}, by its {source} of {at}; it may not purge"
        remedy = f"{REMEDIES['above-high-watermark']}; {filled(looks, cache.cache)} looks again"
        yield alarm("above-high-watermark", cache.cache, text, remedy=remedy)
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


def _capture_alarms(cache: str, settings: Settings) -> Iterator[Alarm]:
    """An alarm of the folder that a cache reports to, with the first of the caches that share it."""
    collect, folder = settings.collect, settings.caches[cache].gstream
    if folder is None or cache != min(c.name for c in settings.caches.values() if c.gstream == folder):
        return
    if files.silent([folder], within_s=TIMEOUT_S) is not None or not folder.is_dir():
        return  # one that hangs must not hold up the others; the doctor names it
    held = held_bytes(folder)
    if held > FULL_SHARE * collect.quota:
        text = f"captures hold {format_bytes(held)} of {format_bytes(collect.quota)} ([collect] quota)"
        remedy = (
            f"`cachecast pull --source xcache_gstream --input {shlex.quote(str(folder))} --new-only` "
            f"takes them, and deletes those older than {duration_label(collect.keep)} ([collect] keep); or "
            "raise [collect] quota"
        )
        yield alarm("collector-full", cache, text, remedy=remedy)


class _Due(NamedTuple):
    """The newest decision time whose plans are to be pushed by now, and the time when they were to be."""

    as_of: str
    by: str

    def late(self, subject: str, newest: str | None) -> str:
        """That the newest `subject` is older, in words."""
        state = f"the newest {subject} is of {newest}" if newest else f"there is no {subject} yet"
        return f"{state}; that of {self.as_of} was due by {self.by}"


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


def silence(figures: StewardFigures, *, now_s: float) -> str | None:
    """How long a steward that was not stopped has been silent; None: it reported lately."""
    silent_s = int(now_s - figures.at_s)
    return duration_label(silent_s - silent_s % 60) if silent_s > SILENT_S else None
