"""Replay of several caches side by side, each plain LRU by its own rules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jobs.settings.tree import Settings
from jobs.simulate.accesses import loaded
from jobs.simulate.fleet_file import load_fleet
from jobs.simulate.replay_trace import ReplayAnswer
from jobs.store.traces import TraceFile
from replay.federation.fleet import Federation, simulate_federation
from replay.read import LoadedTrace
from replay.result import Result

TOTAL = "all"
"""The name of the row for all caches together."""
SSD, HDD = "ssd", "hdd"
"""The tiers, by their names in [benefit] read_rates."""


def run(
    settings: Settings,
    trace: TraceFile | None,
    *,
    caches: Path,
    first_day_s: int | None,
    last_day_s: int | None,
    site: str | None,
) -> ReplayAnswer:
    """Replay the caches of the TOML file `caches`, on `trace` or on days of the tables.

    Raises ConfigError, InputError, StaleInputError.
    """
    federation = load_fleet(caches)
    accesses = loaded(settings, trace, first_day_s=first_day_s, last_day_s=last_day_s, site=site)
    rates = settings.benefit.read_rates
    return replay_fleet(accesses, federation, count_from_s=first_day_s, read_rates=rates)


def replay_fleet(
    accesses: LoadedTrace,
    federation: Federation,
    *,
    count_from_s: int | None,
    read_rates: Mapping[str, int],
) -> ReplayAnswer:
    """A row for all caches together, then one for each cache that had an access.

    `read_rates`: bytes per second at which one job reads hits from `SSD` and from `HDD`.
    """
    shares = simulate_federation(accesses.trace, federation, count_from_s=count_from_s)
    results = {TOTAL: shares.total} | shares.caches
    return ReplayAnswer([_row(name, result, read_rates) for name, result in results.items()], accesses.notes)


def _row(cache: str, result: Result, read_rates: Mapping[str, int]) -> dict[str, object]:
    hdd_hit_bytes = result.hit_bytes - result.ssd_hit_bytes
    return {
        "cache": cache,
        "policy": result.policy,
        "capacity_bytes": result.capacity_bytes,
        "requests": result.requests,
        "hits": result.hits,
        "hit_ratio": result.hit_ratio,
        "byte_hit_ratio": result.byte_hit_ratio,
        "object_miss_ratio": result.object_miss_ratio,
        "byte_miss_ratio": result.byte_miss_ratio,
        "bytes_requested": result.bytes_requested,
        "wan_bytes": result.wan_bytes,
        "bypassed_bytes": result.bypassed_bytes,
        "ssd_hit_bytes": result.ssd_hit_bytes,
        "read_wait_s": result.ssd_hit_bytes / read_rates[SSD] + hdd_hit_bytes / read_rates[HDD],
        "peak_usage_bytes": result.peak_usage_bytes,
        "peak_hour_wan_bytes": result.peak_hour_wan_bytes,
        "seconds": result.seconds,
    }
