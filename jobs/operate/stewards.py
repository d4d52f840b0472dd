"""What the caches' stewards report of themselves, for `status` and Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from features.common.units import duration_label
from jobs.operate.prometheus import Sample
from jobs.settings.steward import StewardSettings
from prefetch.steward.figures import Figures, read

__all__ = ["Figures", "figures", "samples", "silence"]

SILENT_S: Final = 300.0
"""A steward reports every minute."""


def figures(steward: StewardSettings, cache: str) -> Figures | None:
    """The last figures of a cache's steward; None if there is none, or it was stopped. Raises InputError."""
    return read(steward.figures(cache))


def silence(found: Figures, *, now_s: float) -> str | None:
    """How long a steward that was not stopped has been silent, if that is too long."""
    silent_s = int(now_s - found.at_s)
    return duration_label(silent_s - silent_s % 60) if silent_s > SILENT_S else None


def samples(found: Figures) -> list[Sample]:
    """The figures of a steward as metrics for Prometheus."""
    label = {"cache": found.cache}
    values = (
        ("seen_seconds", "when it reported this, since 1970", found.at_s),
        ("used_bytes", "as the cache compares with its high watermark", found.used_bytes),
        ("target_bytes", "above it files are evicted", found.target_bytes),
        ("high_bytes", "above it the cache purges by itself", found.high_bytes),
        ("held_files", "files on disk", found.held_files),
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


def _orders_and_alarms(found: Figures) -> Iterator[Sample]:
    following = {"cache": found.cache, "order": found.following}
    yield "cachecast_steward_follows", "1 for the order followed", following, 1.0
    if found.version is not None:
        version = {"cache": found.cache, "version": found.version}
        since_s = float(found.version_since_s or 0)
        yield "cachecast_steward_order_since_seconds", "since when its order serves", version, since_s
    for name in found.alarms:
        yield "cachecast_steward_alarm", "1 while it stands", {"alarm": name, "cache": found.cache}, 1.0
