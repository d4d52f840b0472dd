"""The report: CPU efficiency, failures and wasted hours of a site's jobs, by where their data were."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from features.common import files
from features.common.arrays import FloatArray, IntArray
from features.common.times import HOUR_S
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.studies.efficiency.reads import MIXED, NOWHERE, PLACES, JobSelection, jobs_with_places
from models.evaluation.bootstrap import group_sums

FEWEST_TASKS = 10
"""Groups of fewer tasks have no bounds: their resamples are nearly the same."""
_BOUNDS = (0.025, 0.975)
_ORDER = (*PLACES, MIXED, NOWHERE)
_SUMS = {
    "cpu_s": "sum(cpu_s) FILTER (NOT failed)",
    "core_s": "sum(wall_s * cores) FILTER (NOT failed AND cpu_s IS NOT NULL)",
    "jobs": "count(*)",
    "failed": "count(*) FILTER (failed)",
    "wasted_s": "sum(wall_s * cores) FILTER (failed)",
    "read_bytes": "sum(read_bytes)",
}


class Interval(NamedTuple):
    """A ratio with the bounds of a 95 % interval by resamples; None: too few, or nothing to divide."""

    value: float | None
    lower: float | None
    upper: float | None


@dataclasses.dataclass(frozen=True)
class Group:
    """Jobs of one place, and of one kind of work or region of origins; None: of all.

    `cpu_efficiency`: CPU seconds over the wall seconds of all cores, of the jobs that ended well, and the
    bounds of its 95 % interval by resamples of tasks (None: fewer than FEWEST_TASKS); `failed`: the share of
    jobs, likewise. `wasted_core_hours`: of failed jobs. `rtt_ms`: the median round trip to their origins.
    """

    place: str
    kind: str | None
    region: str | None
    rtt_ms: float | None
    jobs: int
    tasks: int
    cpu_efficiency_share: float | None
    cpu_efficiency_lower_share: float | None
    cpu_efficiency_upper_share: float | None
    failed_share: float | None
    failed_lower_share: float | None
    failed_upper_share: float | None
    wasted_core_hours: float
    core_hours: float
    read_bytes: int


@dataclasses.dataclass(frozen=True)
class EfficiencyAnswer:
    """The groups by place alone, by kind of work, and by the region of the origin.

    `sources`: the number of jobs by reader; a job that two of them report counts twice. `found_share`: of
    the jobs, those whose reads were found. `untimed_jobs`: those without CPU time, wall time or cores; they
    count as jobs and failures, and in no sum of what they lack. `shared_reads`: reads that fit several jobs,
    and are shared among them. `crowded_hours`: hours of a file in which they are too many to be shared.
    """

    jobs: int
    sources: Mapping[str, int]
    found_share: float
    untimed_jobs: int
    shared_reads: int
    crowded_hours: int
    by_place: tuple[Group, ...]
    by_kind: tuple[Group, ...]
    by_region: tuple[Group, ...]


def at(name: str) -> int:
    """The column of the sum called `name` in `Cells.sums`."""
    return list(_SUMS).index(name)


class Cells(NamedTuple):
    """Sums of jobs by group and task.

    `names`: of the groups, each (place, …); `group`, `task`: their numbers, int64[n]; `sums`: float64[n, k],
    a column for each of _SUMS; `rtt_ms`: median per group, None if unknown.
    """

    names: Sequence[tuple[str, ...]]
    group: IntArray
    task: IntArray
    sums: FloatArray
    rtt_ms: Sequence[float | None]

    def total(self, name: str) -> FloatArray:
        """The sum called `name` of each group."""
        return np.bincount(self.group, self.sums[:, at(name)], len(self.names))

    @property
    def tasks(self) -> IntArray:
        """The number of tasks of each group."""
        return np.bincount(self.group, minlength=len(self.names))


def run(settings: Settings, selection: JobSelection, *, out: Path | None = None) -> EfficiencyAnswer:
    """Report the chosen jobs, as an HTML page too if `out` is given. Raises StaleInputError without any."""
    with jobs_with_places(Tables.of(settings), selection, settings.origin_regions) as database:
        answer = _answer(database)
    if out is not None:
        from jobs.studies.efficiency.efficiency_page import efficiency_page  # noqa: PLC0415  matplotlib takes long

        out.parent.mkdir(parents=True, exist_ok=True)
        files.write(out, efficiency_page(answer, f"{selection.since} to {selection.until}"))
    return answer


def _answer(database: duckdb.DuckDBPyConnection) -> EfficiencyAnswer:
    ((n_jobs, n_nowhere, n_untimed, n_shared, n_crowded),) = database.sql(
        f"SELECT count(*), count(*) FILTER (place = '{NOWHERE}'), "
        "count(*) FILTER (cpu_s + wall_s + cores IS NULL), "
        "(SELECT count(DISTINCT read) FROM pair WHERE sharers > 1), (SELECT count(*) FROM crowd) FROM jobs"
    ).fetchall()
    return EfficiencyAnswer(
        jobs=n_jobs,
        sources=dict(database.sql("SELECT source, count(*) FROM jobs GROUP BY ALL ORDER BY ALL").fetchall()),
        found_share=1 - n_nowhere / n_jobs,
        untimed_jobs=n_untimed,
        shared_reads=n_shared,
        crowded_hours=n_crowded,
        by_place=tuple(groups(database)),
        by_kind=tuple(groups(database, "kind")),
        by_region=tuple(groups(database, "region")),
    )


def groups(database: duckdb.DuckDBPyConnection, *by: str) -> Iterator[Group]:
    """The groups of the table `jobs` (see `jobs_with_places`) by place and its columns `by`."""
    cells = cells_of(database, "place", *by)
    drawn = group_sums(cells.task, cells.group, cells.sums, n_groups=len(cells.names))
    totals, tasks = {name: cells.total(name) for name in _SUMS}, cells.tasks
    order = sorted(range(len(cells.names)), key=lambda k: (_ORDER.index(cells.names[k][0]), cells.names[k]))
    for k in order:
        is_bounded = tasks[k] >= FEWEST_TASKS
        efficiency, failed = (
            interval(totals[above][k], totals[below][k], drawn[:, k, [at(above), at(below)]], is_bounded)
            for above, below in (("cpu_s", "core_s"), ("failed", "jobs"))
        )
        named = dict(zip(("place", *by), cells.names[k], strict=True))
        yield Group(
            place=named["place"],
            kind=named.get("kind"),
            region=named.get("region"),
            rtt_ms=cells.rtt_ms[k],
            jobs=int(totals["jobs"][k]),
            tasks=int(tasks[k]),
            cpu_efficiency_share=efficiency.value,
            cpu_efficiency_lower_share=efficiency.lower,
            cpu_efficiency_upper_share=efficiency.upper,
            failed_share=failed.value,
            failed_lower_share=failed.lower,
            failed_upper_share=failed.upper,
            wasted_core_hours=totals["wasted_s"][k] / HOUR_S,
            core_hours=(totals["core_s"][k] + totals["wasted_s"][k]) / HOUR_S,
            read_bytes=int(totals["read_bytes"][k]),
        )


def cells_of(database: duckdb.DuckDBPyConnection, *by: str, where: str = "true") -> Cells:
    """Sums of the table `jobs` by task and the columns `by`; a null is `unknown`."""
    keys = ", ".join(f"coalesce(CAST({name} AS VARCHAR), 'unknown') AS k{n}" for n, name in enumerate(by))
    sums = ", ".join(f"CAST(coalesce({text}, 0) AS DOUBLE) AS {name}" for name, text in _SUMS.items())
    keyed = ", ".join(f"k{n}" for n in range(len(by)))
    database.execute(
        f"CREATE OR REPLACE TEMP TABLE cell AS SELECT {keys}, task, median(rtt_ms) AS rtt_ms, {sums} "
        f"FROM jobs WHERE {where} GROUP BY {keyed}, task"
    )
    cells = database.sql(
        f"SELECT dense_rank() OVER (ORDER BY {keyed}) - 1 AS g, dense_rank() OVER (ORDER BY task) - 1 AS t, "
        f"{', '.join(_SUMS)} FROM cell ORDER BY g, t"
    ).to_arrow_table()
    names = database.sql(
        f"SELECT {keyed}, median(rtt_ms) FROM cell GROUP BY {keyed} ORDER BY {keyed}"
    ).fetchall()
    return Cells(
        names=[tuple(row[:-1]) for row in names],
        group=cells["g"].to_numpy(),
        task=cells["t"].to_numpy(),
        sums=np.stack([cells[name].to_numpy() for name in _SUMS], axis=1),
        rtt_ms=[row[-1] for row in names],
    )


def interval(above: float, below: float, resamples: FloatArray, is_bounded: bool = True) -> Interval:
    """`above` / `below`, with bounds by `resamples` of both, a row each, unless there are too few tasks."""
    if below <= 0:
        return Interval(None, None, None)
    if not is_bounded or not (resamples[:, 1] > 0).all():
        return Interval(above / below, None, None)
    lower, upper = np.quantile(resamples[:, 0] / resamples[:, 1], _BOUNDS)
    return Interval(above / below, float(lower), float(upper))
