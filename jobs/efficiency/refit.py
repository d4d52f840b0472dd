"""The settings `[benefit]` as a site's own jobs show them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import duckdb
import numpy as np

from features.common.arrays import FloatArray
from jobs.efficiency.efficiency import FEWEST_TASKS, Cells, Interval, at, cells_of, interval
from jobs.efficiency.reads import HIT, LOCAL, MISS, REMOTE, Chosen, jobs_with_places
from jobs.settings.tree import Settings
from jobs.store.tables import Tables
from jobs.text import bounds, count
from models.evaluation.bootstrap import group_sums

_RATE = "sum(coalesce(read_bytes, local_bytes + hit_bytes + miss_bytes + remote_bytes)) / sum(cpu_s)"


class Point(NamedTuple):
    """The CPU efficiency of jobs at one round-trip time; `core_s` that they took."""

    rtt_ms: float
    efficiency: Interval
    core_s: float
    jobs: int
    place: str


@dataclasses.dataclass(frozen=True)
class Refit:
    """The proposed settings as TOML, and what the jobs do not show."""

    toml: str
    missing: tuple[str, ...]


def run(settings: Settings, chosen: Chosen) -> Refit:
    """Fit `[benefit]` to the chosen jobs. Raises StaleInputError without any."""
    with jobs_with_places(Tables(settings.tables.root), chosen, settings.origin_regions) as database:
        lines = dict(_lines(database, settings.benefit.cache_rtt_ms))
    head = f"[benefit]  # jobs that started {chosen.since} to {chosen.until}"
    told = [line for line in lines.values() if line]
    missing = tuple(key for key, line in lines.items() if not line)
    return Refit("\n".join([head, *told]), missing)


def _lines(database: duckdb.DuckDBPyConnection, cache_rtt_ms: float) -> Iterator[tuple[str, str]]:
    """Each key with its line; empty: too few tasks show it."""
    places = {point.place: point for point in _points(cells_of(database, "place"))}
    by_rtt = _points(cells_of(database, "place", "rtt_ms"))
    local, hit = places.get(LOCAL), places.get(HIT)
    near = [local._replace(rtt_ms=0.0)] if local else []
    far = [point for point in by_rtt if point.place == REMOTE and point.rtt_ms > 0]
    yield "points", _table("points", _falling([*near, *far])) if far else ""
    hits = [hit._replace(rtt_ms=cache_rtt_ms)] if hit else []
    yield (
        "hit_points",
        _table("hit_points", _falling([*(near if cache_rtt_ms else []), *hits])) if hits else "",
    )
    for key, place in (("unknown_remote_efficiency", REMOTE), ("unknown_local_efficiency", LOCAL)):
        found = places.get(place)
        yield key, f"{key} = {found.efficiency.value:.3f}  # {_told(found)}" if found else ""
    slower = slowdown(cells_of(database, "kind", "region", "place", where=f"place IN ('{MISS}', '{REMOTE}')"))
    yield (
        "miss_slowdown",
        ""
        if slower.value is None
        else (
            f"miss_slowdown = {max(0.0, slower.value):.3f}  # {bounds(slower.lower, slower.upper, 1)}, "
            "against direct reads of the same kind and region"
        ),
    )
    ((rate,),) = database.sql(f"SELECT {_RATE} FROM jobs WHERE NOT failed AND cpu_s > 0").fetchall()
    yield "job_read_rate", f'job_read_rate = "{rate / 1e6:.3g}MB"' if rate else ""


def _points(cells: Cells) -> list[Point]:
    """The groups (place, …, or place and round trip) with enough tasks and CPU time."""
    drawn = group_sums(cells.task, cells.group, cells.sums, n_groups=len(cells.names))
    cpu_s, core_s, jobs = (cells.total(name) for name in ("cpu_s", "core_s", "jobs"))
    found = []
    for k in np.flatnonzero((cells.tasks >= FEWEST_TASKS) & (cpu_s > 0)).tolist():
        place, *rtt = cells.names[k]
        if rtt == ["unknown"]:
            continue
        efficiency = interval(cpu_s[k], core_s[k], drawn[:, k, at("cpu_s")], drawn[:, k, at("core_s")])
        found.append(Point(float(rtt[0]) if rtt else 0.0, efficiency, core_s[k], int(jobs[k]), place))
    return sorted(found)


def slowdown(cells: Cells) -> Interval:
    """How much longer misses take than direct reads of the same kind and region, as a share, with bounds.

    `cells`: of misses and direct reads by kind, region and place. Only kinds and regions with both count.
    """
    place = {name: k for k, name in enumerate(cells.names)}
    both = [
        (place[*name[:2], MISS], place[name])
        for name in cells.names
        if name[2] == REMOTE and (*name[:2], MISS) in place
    ]
    if not both or len(np.unique(cells.task)) < FEWEST_TASKS:
        return Interval(None, None, None)
    miss, direct = np.array(both).T
    total = group_sums(
        np.zeros_like(cells.task), cells.group, cells.sums, n_groups=len(cells.names), resamples=1
    )[0]
    drawn = group_sums(cells.task, cells.group, cells.sums, n_groups=len(cells.names))
    cpu, core = at("cpu_s"), at("core_s")

    def longer(sums: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore", divide="ignore"):
            as_direct = sums[..., miss, cpu] * sums[..., direct, core] / sums[..., direct, cpu]
            share: FloatArray = np.nansum(sums[..., miss, core], axis=-1) / np.nansum(as_direct, axis=-1)
            return share - 1

    resampled = longer(drawn)
    lower, upper = np.quantile(resampled[np.isfinite(resampled)], (0.025, 0.975))
    return Interval(float(longer(total)), float(lower), float(upper))


def _falling(points: Sequence[Point]) -> list[Point]:
    """`points` by round trip, each efficiency at most that before: violators are pooled by core time."""
    pools: list[list[Point]] = []
    for point in sorted(points):
        pools.append([point])
        while len(pools) > 1 and _mean(pools[-1]) > _mean(pools[-2]):
            last = pools.pop()
            pools[-1] += last
    return [
        point._replace(efficiency=point.efficiency._replace(value=_mean(pool)))
        for pool in pools
        for point in pool
    ]


def _mean(pool: Sequence[Point]) -> float:
    weights = [point.core_s for point in pool]
    return float(np.average([point.efficiency.value or 0.0 for point in pool], weights=weights))


def _table(key: str, points: Sequence[Point]) -> str:
    rows = [
        f"  {{ rtt_ms = {point.rtt_ms:g}, cpu_efficiency = {min(1.0, point.efficiency.value or 0):.3f}, "
        f"source = {json.dumps(f'own jobs, {point.place}: {_told(point)}', ensure_ascii=False)} }},"
        for point in points
    ]
    return "\n".join([f"{key} = [", *rows, "]"])


def _told(point: Point) -> str:
    return f"{bounds(point.efficiency.lower, point.efficiency.upper, 1)}, {count(point.jobs)} jobs"
