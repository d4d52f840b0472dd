"""The report: CPU efficiency, failures and wasted hours of a site's jobs, by where their data were."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import matplotlib as mpl
import numpy as np
import pyarrow as pa

from features.common import files
from features.common.arrays import FloatArray
from features.common.errors import bounded, printable
from features.common.times import HOUR_S
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.ground.text import as_row, bounds, count, percent
from jobs.pages.drawing import DARK, STYLE, Plot, Point
from jobs.pages.page import Figure, Section, page
from jobs.studies.efficiency.reads import MIXED, NOWHERE, PLACES, JobSelection, jobs_with_places
from models.evaluation.metrics import group_sums

FEWEST_TASKS = 10  # groups of fewer tasks have no bounds: their resamples are nearly the same
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
_Bounded = tuple[float | None, float | None, float | None]


@dataclasses.dataclass(frozen=True)
class Group:
    """Jobs of one `place`, and of one `kind` of work or `region` of origins; None: of all.

    `cpu_efficiency_share`: of jobs that ended well, CPU over wall seconds of cores; `failed_share`: of jobs;
    each with its 95 % interval by resampled tasks (None: fewer than FEWEST_TASKS). `wasted_core_hours`: of
    failed jobs; `rtt_ms`: median.
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
    """The groups by place alone, by place and kind of work, and by place and region of the origin.

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


def run(settings: Settings, selection: JobSelection, *, out: Path | None = None) -> EfficiencyAnswer:
    """Report the chosen jobs, as an HTML page too if `out` is given. Raises StaleInputError without any."""
    with jobs_with_places(Tables.of(settings), selection, settings.origin_regions) as database:
        ((n_jobs, n_nowhere, n_untimed, n_shared, n_crowded),) = database.sql(
            f"SELECT count(*), count(*) FILTER (place = '{NOWHERE}'), "
            "count(*) FILTER (cpu_s + wall_s + cores IS NULL), "
            "(SELECT count(DISTINCT read) FROM pair WHERE sharers > 1), "
            "(SELECT count(*) FROM crowd) FROM jobs"
        ).fetchall()
        answer = EfficiencyAnswer(
            jobs=n_jobs,
            sources=dict(
                database.sql("SELECT source, count(*) FROM jobs GROUP BY ALL ORDER BY ALL").fetchall()
            ),
            found_share=1 - n_nowhere / n_jobs,
            untimed_jobs=n_untimed,
            shared_reads=n_shared,
            crowded_hours=n_crowded,
            by_place=tuple(groups(database)),
            by_kind=tuple(groups(database, "kind")),
            by_region=tuple(groups(database, "region")),
        )
    if out is not None:
        files.write(out, efficiency_page(answer, f"{selection.since} to {selection.until}"))
    return answer


def groups(database: duckdb.DuckDBPyConnection, *by: str) -> Iterator[Group]:
    """The groups of the table `jobs` (see `jobs_with_places`) by place and its columns `by`."""
    cells, names, rtt_ms = _cells(database, "place", *by)
    group, task = cells["g"].to_numpy(), cells["t"].to_numpy()
    sums = np.stack([cells[name].to_numpy() for name in _SUMS], axis=1)
    resamples = group_sums(task, group, sums, n_groups=len(names))
    columns = {name: k for k, name in enumerate(_SUMS)}
    totals = {name: np.bincount(group, sums[:, k], len(names)) for name, k in columns.items()}
    tasks = np.bincount(group, minlength=len(names))
    for k in sorted(range(len(names)), key=lambda k: (_ORDER.index(names[k][0]), names[k])):
        efficiency, failed = (
            _ratio(
                totals[part][k], totals[whole][k], resamples[:, k, [columns[part], columns[whole]]], tasks[k]
            )
            for part, whole in (("cpu_s", "core_s"), ("failed", "jobs"))
        )
        key = dict(zip(("place", *by), names[k], strict=True))
        yield Group(
            key["place"],
            key.get("kind"),
            key.get("region"),
            rtt_ms[k],
            int(totals["jobs"][k]),
            int(tasks[k]),
            *efficiency,
            *failed,
            wasted_core_hours=totals["wasted_s"][k] / HOUR_S,
            core_hours=(totals["core_s"][k] + totals["wasted_s"][k]) / HOUR_S,
            read_bytes=int(totals["read_bytes"][k]),
        )


def _cells(
    database: duckdb.DuckDBPyConnection, *by: str
) -> tuple[pa.Table, list[tuple[str, ...]], list[float | None]]:
    """Sums of jobs by group g and task t; name (null: `unknown`) and median round trip of each group."""
    keys = ", ".join(f"coalesce(CAST({name} AS VARCHAR), 'unknown') AS k{n}" for n, name in enumerate(by))
    sums = ", ".join(f"CAST(coalesce({text}, 0) AS DOUBLE) AS {name}" for name, text in _SUMS.items())
    keyed = ", ".join(f"k{n}" for n in range(len(by)))
    database.execute(
        f"CREATE OR REPLACE TEMP TABLE cell AS SELECT {keys}, task, median(rtt_ms) AS rtt_ms, {sums} "
        f"FROM jobs GROUP BY {keyed}, task"
    )
    cells = database.sql(
        f"SELECT dense_rank() OVER (ORDER BY {keyed}) - 1 AS g, dense_rank() OVER (ORDER BY task) - 1 AS t, "
        f"{', '.join(_SUMS)} FROM cell ORDER BY g, t"
    ).to_arrow_table()
    rows = database.sql(
        f"SELECT {keyed}, median(rtt_ms) FROM cell GROUP BY {keyed} ORDER BY {keyed}"
    ).fetchall()
    return cells, [tuple(row[:-1]) for row in rows], [row[-1] for row in rows]


def _ratio(part: float, whole: float, resamples: FloatArray, n_tasks: int) -> _Bounded:
    """`part` / `whole` and its bounds, from a row of both per resample; None: too few tasks, or no whole."""
    if whole <= 0:
        return None, None, None
    if n_tasks < FEWEST_TASKS or not (resamples[:, 1] > 0).all():
        return part / whole, None, None
    lower, upper = np.quantile(resamples[:, 0] / resamples[:, 1], _BOUNDS)
    return part / whole, float(lower), float(upper)


_HOW = (
    "CPU seconds over the wall seconds of all cores, of jobs that ended well. Whiskers and brackets are 95 % "
    "intervals by resamples of whole tasks, for jobs of a task are alike; groups of few tasks have none."
)
_WHERE = {
    "local": "read from the site's own storage",
    "hit": "read from a cache's disk",
    "miss": "fetched from the origin through a cache",
    "remote": "read from the origin past all caches",
}
_READS = {"local": "Local reads", "hit": "Hits", "miss": "Misses", "remote": "Remote reads"}
_UNSHOWN = ("tasks", "failed_lower_share", "failed_upper_share", "rtt_ms")
"""Columns that `--json` has; with them the page would scroll sideways."""
_NAME_CHARS = 30


def efficiency_page(answer: EfficiencyAnswer, span: str) -> str:
    """The HTML page of a report; `span`: the days of the jobs' starts, in words."""
    places = ", ".join(f"{place}: {what}" for place, what in _WHERE.items())
    return page(
        title="Jobs by where their data were",
        subtitle=f"{count(answer.jobs)} jobs, {span}; the reads of {percent(answer.found_share)} were found",
        answers=list(answers(answer)),
        sections=[
            _section(
                "By place",
                f"{places}. A job is mixed if no place gave it 80 % of its bytes.",
                answer.by_place,
            ),
            _section("By kind of work", "As the batch or workload system names it.", answer.by_kind),
            _section(
                "By distance", "By the region of the origin that most bytes came from.", answer.by_region
            ),
        ],
    )


def answers(answer: EfficiencyAnswer) -> Iterator[str]:
    """What a miss costs against a hit, a sentence per place with jobs, how many jobs lack times or cores."""
    share = {group.place: group.cpu_efficiency_share for group in answer.by_place}
    if (hit := share.get("hit")) is not None and (miss := share.get("miss")) is not None:
        than = "less" if miss < hit else "more"
        yield (
            f"Jobs whose reads are misses have {abs(100 * (hit - miss)):.1f} points {than} CPU efficiency "
            "than those whose reads are hits."
        )
    for group in answer.by_place:
        if group.cpu_efficiency_share is not None and group.place in _WHERE:
            yield (
                f"{_READS[group.place]}: a CPU efficiency of {percent(group.cpu_efficiency_share, 1)} "
                f"({interval_of(group)}); {percent(group.failed_share or 0, 1)} of {count(group.jobs)} jobs "
                f"failed and wasted {count(group.wasted_core_hours)} of {count(group.core_hours)} core hours."
            )
    if answer.untimed_jobs:
        yield (
            f"{count(answer.untimed_jobs)} of {count(answer.jobs)} jobs have no CPU time, wall time or "
            "cores: they count in jobs and failures, not in the efficiency or hours that need what they lack."
        )


def _section(title: str, note: str, groups: Sequence[Group]) -> Section:
    figures = []
    if with_efficiency := [group for group in groups if group.cpu_efficiency_share is not None]:
        figures = [Figure(efficiency_plot(with_efficiency), f"CPU efficiency, {title.lower()}")]
    rows = [
        {
            key: value
            for key, value in as_row(group).items()
            if key not in _UNSHOWN and (key not in ("kind", "region") or value is not None)
        }
        for group in groups
    ]
    return Section(title, f"{note} {_HOW}", figures, rows)


def interval_of(group: Group) -> str:
    if group.cpu_efficiency_lower_share is None:
        return f"only {group.tasks} tasks"
    return bounds(group.cpu_efficiency_lower_share, group.cpu_efficiency_upper_share, 1)


def efficiency_plot(groups: Sequence[Group]) -> Plot:
    """CPU efficiency of each group, with its interval; each of `groups` has an efficiency."""
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        names = [
            " ".join(bounded(printable(part), _NAME_CHARS) for part in (g.place, g.kind, g.region) if part)
            for g in groups
        ]
        y = [100 * (g.cpu_efficiency_share or 0) for g in groups]
        intervals = [(g.cpu_efficiency_lower_share, g.cpu_efficiency_upper_share) for g in groups]
        low, high = (
            [0.0 if limit is None else abs(100 * limit - at) for at, limit in zip(y, limits, strict=True)]
            for limits in zip(*intervals, strict=True)
        )
        x = range(len(names))
        drawn = plot.axes.errorbar(x, y, yerr=[low, high], fmt="o", markersize=3, color=DARK, capsize=6)
        labels = [
            f"{name}: {percent(g.cpu_efficiency_share or 0, 1)} ({interval_of(g)}), {count(g.jobs)} jobs"
            for name, g in zip(names, groups, strict=True)
        ]
        plot.add("", drawn, map(Point, x, y, labels))
        crowded = len(names) > 6
        lines = [name.replace(" ", "\n", 1) for name in names]
        plot.axes.set_xticks(x, lines, rotation=60 if crowded else 0, ha="right" if crowded else "center")
        # Jobs that run more threads than their cores have more than 100 %.
        top = max(102, 2 + max(at + above for at, above in zip(y, high, strict=True)))
        plot.axes.set(
            ylabel="CPU efficiency, %", ylim=(max(0, min(y) - 15), top), xlim=(-0.5, max(len(names), 3) - 0.5)
        )
        return plot
