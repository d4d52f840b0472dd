"""A comparison by nodes: half of a site's worker nodes, by hash, use the cache, and the rest do not."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator
from pathlib import Path

import duckdb

from features.common.errors import InputError
from features.common.names import literal
from features.common.times import DAY_S, parse_day
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.ground.text import bounds, count, percent
from jobs.studies.efficiency.efficiency import FEWEST_TASKS
from jobs.studies.efficiency.reads import PLACES, JobSelection, jobs_with_places

WITH, WITHOUT = "with", "without"
FEWEST_NODES = 10
"""With fewer nodes in a half there are no bounds."""
FEWEST_EVENLY = 5
"""Nor if a half's core time is that of fewer equal nodes, or tasks: then one of them decides."""
SEEN = 0.02
"""The share of core hours saved that `days_needed` is about."""
_WIDTH, POWER = 1.96, 0.84
"""Of the normal distribution: a 95 % interval that leaves out 0 in 80 % of comparisons."""
_READ = " + ".join(f"{place}_bytes" for place in PLACES)


@dataclasses.dataclass(frozen=True)
class Half:
    """The nodes of one half, and their jobs; `through_cache_share`: of the bytes of reads that were found."""

    half: str
    nodes: int
    jobs: int
    cpu_efficiency_share: float
    failed_share: float
    through_cache_share: float | None


@dataclasses.dataclass(frozen=True)
class Effect:
    """What the nodes with the cache save against those without.

    `saved_share`: of the core hours that the same CPU time takes, with its 95 % interval (None: too few nodes
    or tasks). `days_needed`: so many days show an effect of `SEEN` four times in five; None: unknown, or no
    number does, as the nodes differ by more. `unplaced_jobs`: of no node, left out.
    """

    name: str
    halves: tuple[Half, ...]
    saved_share: float
    saved_lower_share: float | None
    saved_upper_share: float | None
    days: int
    days_needed: int | None
    unplaced_jobs: int


def half_of(name: str, node: str) -> str:
    """The half of a node in the comparison called `name`; case does not matter."""
    digest = hashlib.sha256(f"{name}\x1f{node.lower()}".encode()).hexdigest()
    return WITH if digest[0] < "8" else WITHOUT


def assigned(name: str, nodes: Path) -> Iterator[tuple[str, str]]:
    """Each node of a file with one per line, with its half. Raises InputError."""
    try:
        lines = nodes.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {nodes}: {type(error).__name__}; give a text file, a node per line"
        ) from None
    return ((line.strip(), half_of(name, line.strip())) for line in lines if line.strip())


def run(settings: Settings, selection: JobSelection, *, name: str) -> Effect:
    """Compare the halves of `name` by the chosen jobs. Raises StaleInputError, InputError."""
    with jobs_with_places(Tables.of(settings), selection, settings.origin_regions) as database:
        days = (parse_day(selection.until) - parse_day(selection.since)) // DAY_S + 1
        return effect(database, name, days)


def effect(database: duckdb.DuckDBPyConnection, name: str, days: int) -> Effect:
    """Compare the halves of `name` by the table `jobs` (see `jobs_with_places`) of so many days."""
    is_with = f"left(sha256({literal(name)} || chr(31) || node), 1) < '8'"
    database.execute(
        f"CREATE OR REPLACE TABLE placed AS SELECT *, {is_with} AS is_with FROM jobs WHERE node IS NOT NULL"
    )
    ((n_unplaced,),) = database.sql("SELECT count(*) FROM jobs WHERE node IS NULL").fetchall()
    halves = tuple(_halves(database))
    if len(halves) < 2:
        named = [half.half for half in halves]
        lacking = " or ".join(half for half in (WITH, WITHOUT) if half not in named)
        raise InputError(f"no job of a known node {lacking} the cache ended well: {name!r} needs both halves")
    with_it, without = (half.cpu_efficiency_share for half in halves)
    comparison = Effect(name, halves, 1 - without / with_it, None, None, days, None, n_unplaced)
    ((by_node, by_task, by_both, fixed, n_tasks, fewest, evenly),) = database.sql(_VARIANCE).fetchall()
    if fewest < FEWEST_NODES or n_tasks < FEWEST_TASKS or evenly < FEWEST_EVENLY:
        return comparison
    variance = max(by_node + by_task - by_both, by_node, by_task) * fewest / (fewest - 1)
    fixed = min(max(0.0, fixed), variance)
    width = student_width(fewest - 1)
    lower, upper = (1 - without / with_it * math.exp(sign * width * math.sqrt(variance)) for sign in (1, -1))
    left = (SEEN / (width + POWER)) ** 2 - fixed
    needed = max(1, math.ceil(days * (variance - fixed) / left)) if left > 0 else None
    return dataclasses.replace(
        comparison, saved_lower_share=lower, saved_upper_share=upper, days_needed=needed
    )


def student_width(freedom: int) -> float:
    """Half the width of a 95 % interval in standard errors, about, for these degrees of freedom."""
    return _WIDTH + (_WIDTH**3 + _WIDTH) / (4 * freedom)


def sentences(effect: Effect) -> Iterator[str]:
    """The comparison in words."""
    for half in effect.halves:
        read = "–" if half.through_cache_share is None else percent(half.through_cache_share)
        yield (
            f"{half.half}: {half.nodes} nodes, {count(half.jobs)} jobs, CPU efficiency "
            f"{percent(half.cpu_efficiency_share, 1)}, {percent(half.failed_share, 1)} failed, "
            f"{read} of the bytes through a cache"
        )
    sure = "too few nodes or tasks, or one with most of the time, for an interval"
    if effect.saved_lower_share is not None:
        sure = f"95 %: {bounds(effect.saved_lower_share, effect.saved_upper_share, 1)}"
    yield f"core hours saved: {percent(effect.saved_share, 1)} ({sure}), over {effect.days} days"
    if effect.days_needed is not None:
        yield f"{percent(SEEN)} would be seen after {effect.days_needed} days"
    elif effect.saved_lower_share is not None:
        yield f"{percent(SEEN)} will not be seen: the nodes differ by more; swap the halves by another name"


def _halves(database: duckdb.DuckDBPyConnection) -> Iterator[Half]:
    """Both halves, first that with the cache; those without jobs that ended well are left out."""
    rows = database.sql(
        f"SELECT is_with, count(DISTINCT node), count(*), sum(cpu_s) FILTER (NOT failed) / "
        "sum(wall_s * cores) FILTER (NOT failed AND cpu_s IS NOT NULL) AS efficiency, "
        f"avg(CAST(failed AS INT)), sum(hit_bytes + miss_bytes) / nullif(sum({_READ}), 0) "
        "FROM placed GROUP BY is_with "
        "HAVING efficiency > 0 AND isfinite(efficiency) ORDER BY is_with DESC"
    ).fetchall()
    for is_with, *figures in rows:
        yield Half(WITH if is_with else WITHOUT, *figures)


# How far each job pulls the logarithm of the ratio of both efficiencies: its variance, with jobs alike within
# nodes and within tasks (Cameron, Gelbach and Miller, 2011), and the part of it that no further day lowers,
# which nodes have in common on odd and on even days.
_VARIANCE = """WITH good AS (SELECT *, wall_s * cores AS core_s, epoch(started_at) // 86400 % 2 = 1 AS is_odd
FROM placed WHERE NOT failed AND cpu_s IS NOT NULL),
pulls AS (SELECT node, task, is_odd, CASE WHEN is_with THEN 1 ELSE -1 END *
(cpu_s / sum(cpu_s) OVER (PARTITION BY is_with) - core_s / sum(core_s) OVER (PARTITION BY is_with)) AS pull
FROM good),
cells AS (SELECT node, task, sum(pull) AS pull, coalesce(sum(pull) FILTER (is_odd), 0) AS odd
FROM pulls GROUP BY node, task),
by_node AS (SELECT sum(pull) AS pull, sum(odd) AS odd FROM cells GROUP BY node),
by_task AS (SELECT sum(pull) AS pull FROM cells GROUP BY task)
SELECT (SELECT sum(pull * pull) FROM by_node), (SELECT sum(pull * pull) FROM by_task),
(SELECT sum(pull * pull) FROM cells), (SELECT 4 * sum(odd * (pull - odd)) FROM by_node),
(SELECT count(*) FROM by_task),
(SELECT min(n) FROM (SELECT count(DISTINCT node) AS n FROM good GROUP BY is_with)),
(SELECT min(n) FROM (SELECT sum(c) * sum(c) / sum(c * c) AS n FROM (
SELECT is_with, node AS one, 'node' AS of, sum(core_s) AS c FROM good GROUP BY ALL
UNION ALL SELECT is_with, task, 'task', sum(core_s) FROM good GROUP BY ALL) GROUP BY is_with, of))"""
