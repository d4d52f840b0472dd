"""The settings `[benefit]` as a site's own jobs show them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import duckdb
import numpy as np

from features.common.arrays import FloatArray
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.ground.text import bounds, count, percent
from jobs.studies.efficiency.efficiency import FEWEST_TASKS, Cells, Interval, at, cells_of, interval
from jobs.studies.efficiency.reads import HIT, LOCAL, MISS, NOWHERE, REMOTE, JobSelection, jobs_with_places
from models.evaluation.bootstrap import group_sums

_RATE = f"""SELECT sum(coalesce(read_bytes, local_bytes + hit_bytes + miss_bytes + remote_bytes))
/ sum(cpu_s), count(*), count(DISTINCT task) FROM jobs
WHERE NOT failed AND cpu_s > 0 AND (read_bytes IS NOT NULL OR place <> '{NOWHERE}')"""
_OF_ONE = """SELECT max(core_s) / nullif(sum(core_s), 0) FROM
(SELECT sum(wall_s * cores) AS core_s FROM jobs WHERE NOT failed GROUP BY coalesce("user", task))"""
_MUCH = 0.5
"""A note says so if one user took a larger share."""
_EFFICIENCIES, _RATES, _SLOWDOWNS = (0.01, 1.2), (1e4, 999e6), (-0.9, 10.0)
"""Least and most that is believed; some jobs use more cores than they asked for. Rates: per CPU second."""


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


def run(settings: Settings, selection: JobSelection) -> Refit:
    """Fit `[benefit]` to the chosen jobs. Raises StaleInputError without any."""
    with jobs_with_places(Tables.of(settings), selection, settings.origin_regions) as database:
        lines = dict(_lines(database, settings.benefit.cache_rtt_ms))
        ((of_one,),) = database.sql(_OF_ONE).fetchall()
    head = f"[benefit]  # jobs that started {selection.since} to {selection.until}"
    if (of_one or 0) > _MUCH:
        head += f"; one user or task took {percent(of_one)} of the core hours"
    proposed = [line for line in lines.values() if line]
    missing = tuple(key for key, line in lines.items() if not line)
    return Refit("\n".join([head, *proposed]), missing)


def _lines(database: duckdb.DuckDBPyConnection, cache_rtt_ms: float) -> Iterator[tuple[str, str]]:
    """Each key with its line; empty: too few tasks show it, or nothing that is believed."""
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
        yield key, f"{key} = {_efficiency(found):.3f}  # {_told(found)}" if found else ""
    slower = slowdown(cells_of(database, "kind", "region", "place", where=f"place IN ('{MISS}', '{REMOTE}')"))
    yield (
        "miss_slowdown",
        ""
        if slower.value is None or not _SLOWDOWNS[0] <= slower.value <= _SLOWDOWNS[1]
        else (
            f"miss_slowdown = {max(0.0, slower.value):.3f}  # {bounds(slower.lower, slower.upper, 1)}, "
            "against direct reads of the same kind and region"
        ),
    )
    ((rate, n_jobs, n_tasks),) = database.sql(_RATE).fetchall()
    is_shown = n_tasks >= FEWEST_TASKS and _RATES[0] <= rate <= _RATES[1]
    yield "job_read_rate", f'job_read_rate = "{rate / 1e6:.3g}MB"  # {count(n_jobs)} jobs' if is_shown else ""


def _points(cells: Cells) -> list[Point]:
    """The groups (place, …, or place and round trip) with enough tasks and an efficiency that is believed."""
    drawn = group_sums(cells.task, cells.group, cells.sums, n_groups=len(cells.names))
    cpu_s, core_s, jobs = (cells.total(name) for name in ("cpu_s", "core_s", "jobs"))
    points = []
    for k in np.flatnonzero((cells.tasks >= FEWEST_TASKS) & (cpu_s > 0)).tolist():
        place, *rtt = cells.names[k]
        if rtt == ["unknown"]:
            continue
        efficiency = interval(cpu_s[k], core_s[k], drawn[:, k, [at("cpu_s"), at("core_s")]])
        if efficiency.value is None or not _EFFICIENCIES[0] <= efficiency.value <= _EFFICIENCIES[1]:
            continue
        points.append(Point(float(rtt[0]) if rtt else 0.0, efficiency, core_s[k], int(jobs[k]), place))
    return sorted(points)


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
    cpu_s, core_s = cells.total("cpu_s"), cells.total("core_s")
    both = [pair for pair in both if min(*cpu_s[[*pair]], *core_s[[*pair]]) > 0]
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


def _efficiency(point: Point) -> float:
    return min(1.0, point.efficiency.value or 0.0)


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
        f"  {{ rtt_ms = {point.rtt_ms:g}, cpu_efficiency = {_efficiency(point):.3f}, "
        f"source = {json.dumps(f'own jobs, {point.place}: {_told(point)}', ensure_ascii=False)} }},"
        for point in points
    ]
    return "\n".join([f"{key} = [", *rows, "]"])


def _told(point: Point) -> str:
    return f"{bounds(point.efficiency.lower, point.efficiency.upper, 1)}, {count(point.jobs)} jobs"
