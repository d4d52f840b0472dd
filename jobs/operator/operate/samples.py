"""The status, and the figures that stewards report, as metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from features.common.times import parse_as_of
from jobs.operator.operate.condition import Status
from jobs.operator.operate.prometheus import Sample
from prefetch.steward.figures import StewardFigures


def of_status(status: Status) -> list[Sample]:
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
            *(
                (
                    f"cachecast_cache_{name}_bytes",
                    f"its {name} watermark",
                    label,
                    share * cache.capacity_bytes,
                )
                for name, share in zip(("low", "high"), cache.watermarks, strict=True)
            ),
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


def of_steward(found: StewardFigures) -> list[Sample]:
    """The figures of a steward as metrics for Prometheus."""
    label = {"cache": found.cache}
    values = (
        ("seen_seconds", "when it reported this, since 1970", found.at_s),
        ("used_bytes", "as the cache compares with its high watermark", found.used_bytes),
        ("target_bytes", "above it files are evicted", found.target_bytes),
        ("high_bytes", "above it the cache purges by itself", found.high_bytes),
        ("held_files", "files on disk", found.held_files),
        ("first_files", "files that go first when room is needed", found.first_files),
        ("first_bytes", "their bytes on disk", found.first_bytes),
        ("open_files", "files that are open", found.open_files),
        ("evicted_files", "evicted since its start", found.evicted_files),
        ("evicted_bytes", "evicted since its start", found.evicted_bytes),
        ("kept_files", "evictions refused or not confirmed", found.kept),
        ("lost_reports", "reports of the cache that are missing", found.lost),
        ("saved_bytes", "missed by plain LRU, less those missed", found.saved_bytes),
    )
    return [
        *((f"cachecast_steward_{name}", text, label, float(n)) for name, text, n in values),
        *_orders_and_alarms(found),
    ]


def _orders_and_alarms(found: StewardFigures) -> Iterator[Sample]:
    following = {"cache": found.cache, "order": found.following}
    yield "cachecast_steward_follows", "1 for the order followed", following, 1.0
    if found.version is not None:
        version = {"cache": found.cache, "version": found.version}
        since_s = float(found.version_since_s or 0)
        yield "cachecast_steward_order_since_seconds", "since when its order serves", version, since_s
    for name in found.alarms:
        yield "cachecast_steward_alarm", "1 while it stands", {"alarm": name, "cache": found.cache}, 1.0
