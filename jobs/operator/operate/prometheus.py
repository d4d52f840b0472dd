"""Metrics for Prometheus in files: node_exporter's textfile collector reads `[metrics] folder`.

A file per region, command and cache has the time, duration and success of the last run; `status` and
`collect` write their own beside it. If a metric cannot be written, that is a warning and no job fails.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from features.common import files
from features.common.errors import NotDueError
from features.common.times import parse_as_of
from jobs.operator.operate.remedies import UNTIL_THEN

if TYPE_CHECKING:
    from jobs.operator.operate.alarms import Status
    from prefetch.steward.figures import StewardFigures

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
Sample = tuple[str, str, Mapping[str, str], float]  # name, help, labels, value; one name, same labels


@contextmanager
def measured(folder: str, labels: Mapping[str, str], *, warn: Callable[[str], None]) -> Iterator[None]:
    """Write the metrics of the command in the block, by its `labels`, to `[metrics] folder`; empty: none."""
    started_s, ok = time.time(), False
    try:
        yield
        ok = True
    except NotDueError:
        ok = True
        raise
    finally:
        now_s = time.time()
        samples = [
            ("cachecast_job_ended_seconds", "when the command last ended, since 1970", labels, now_s),
            ("cachecast_job_duration_seconds", "how long it took", labels, now_s - started_s),
            ("cachecast_job_failed", "1 if it failed", labels, float(not ok)),
        ]
        leave(folder, "-".join(labels.values()), samples, warn)


def leave_counts(
    folder: str,
    service: str,
    labels: Mapping[str, str],
    counts: Mapping[str, int],
    warn: Callable[[str], None],
) -> None:
    """Write the counts of a service, for example `cachecast_collect_lost`."""
    samples = [
        (f"cachecast_{service}_{name}", "see docs/hosts.md", labels, float(n)) for name, n in counts.items()
    ]
    samples.append(
        (f"cachecast_{service}_seen_seconds", "when it reported this, since 1970", labels, time.time())
    )
    leave(folder, f"{service}-{'-'.join(labels.values())}", samples, warn)


def leave(folder: str, name: str, samples: Iterable[Sample], warn: Callable[[str], None]) -> None:
    """Replace the file of `name` in `[metrics] folder`, if one is set; a failure is a warning."""
    if not folder:
        return
    # Loading the client takes a tenth of a second, so only sites with metrics do it.
    from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415

    registry, gauges = CollectorRegistry(), dict[str, Gauge]()
    for metric, text, labels, value in samples:
        if metric not in gauges:
            gauges[metric] = Gauge(metric, text, list(labels), registry=registry)
        (gauges[metric].labels(**labels) if labels else gauges[metric]).set(value)
    place = Path(folder) / f"cachecast-{_UNSAFE.sub('-', name).strip('-')}.prom"
    try:
        # node_exporter reads it, as another account.
        files.write(place, generate_latest(registry), mode=0o644, settle=False)
    except OSError as error:
        warn(f"no metrics of this run: {error.strerror}; see [metrics] folder")


def of_status(status: Status) -> list[Sample]:
    region = {"region": status.region}
    samples: list[Sample] = [
        ("cachecast_status_seen_seconds", "when it reported, since 1970", region, parse_as_of(status.at)),
        ("cachecast_champion", "1 if a model was promoted", region, float(status.champion is not None)),
        ("cachecast_predictions", "predictions at the newest moment", region, status.predictions),
        ("cachecast_drifted_columns", "columns that have drifted", region, len(status.drifted)),
        *_moment("cachecast_predictions_as_of_seconds", region, status.predictions_at),
    ]
    for cache in status.caches:
        label, (low, high) = {"cache": cache.cache}, cache.watermarks
        samples += [
            ("cachecast_cache_capacity_bytes", "by its settings", label, cache.capacity_bytes),
            ("cachecast_cache_low_bytes", "its low watermark", label, low * cache.capacity_bytes),
            ("cachecast_cache_high_bytes", "its high watermark", label, high * cache.capacity_bytes),
            ("cachecast_cache_pins", "pins that stand", label, cache.pins),
            ("cachecast_cache_pinned_bytes", "bytes of their files", label, cache.pinned_bytes),
            *_moment("cachecast_plan_as_of_seconds", label, cache.plan_at),
            *_moment("cachecast_push_as_of_seconds", label, cache.push_at),
        ]
        if cache.held_bytes is not None and cache.held_files is not None:
            samples += [
                ("cachecast_cache_held_bytes", "by its last inventory", label, cache.held_bytes),
                ("cachecast_cache_held_files", "by its last inventory", label, cache.held_files),
            ]
        for metric, text, by, counts in (
            ("cachecast_plan_items", "items of the last plan", "action", cache.plan),
            ("cachecast_push_items", "items of the last push", "state", cache.push),
        ):
            samples += [(metric, text, label | {by: key}, n) for key, n in counts.items()]
    for alarm in status.alarms:
        labels = {"alarm": alarm.name, "about": alarm.about, **region}
        meaning = "1 while it stands, 0 while there is nothing to do but wait"
        samples.append(("cachecast_alarm", meaning, labels, int(alarm.remedy != UNTIL_THEN)))
    return samples


def _moment(metric: str, labels: Mapping[str, str], at: str | None) -> list[Sample]:
    """The time of the newest one, since 1970; nothing if there is none."""
    return [] if at is None else [(metric, "moment of the newest, since 1970", labels, parse_as_of(at))]


def of_steward(figures: StewardFigures) -> Iterator[Sample]:
    label = {"cache": figures.cache}
    values = (
        ("seen_seconds", "when it reported this, since 1970", figures.at_s),
        ("used_bytes", "as the cache compares with its high watermark", figures.used_bytes),
        ("target_bytes", "above it files are evicted", figures.target_bytes),
        ("high_bytes", "above it the cache purges by itself", figures.high_bytes),
        ("held_files", "files on disk", figures.held_files),
        ("first_files", "files that go first when room is needed", figures.first_files),
        ("first_bytes", "their bytes on disk", figures.first_bytes),
        ("open_files", "files that are open", figures.open_files),
        ("evicted_files", "evicted since its start", figures.evicted_files),
        ("evicted_bytes", "evicted since its start", figures.evicted_bytes),
        ("kept_files", "evictions refused or not confirmed", figures.kept),
        ("lost_reports", "reports of the cache that are missing", figures.lost),
        ("saved_bytes", "missed by plain LRU, less those missed", figures.saved_bytes),
    )
    for name, text, n in values:
        yield f"cachecast_steward_{name}", text, label, float(n)
    yield "cachecast_steward_follows", "1 for the order followed", label | {"order": figures.following}, 1.0
    if figures.version is not None:
        version, since_s = label | {"version": figures.version}, float(figures.version_since_s or 0)
        yield "cachecast_steward_order_since_seconds", "since when its order serves", version, since_s
    for name in figures.alarms:
        yield "cachecast_steward_alarm", "1 while it stands", {"alarm": name, **label}, 1.0
