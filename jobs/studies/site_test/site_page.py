"""The page of `cachecast site-test`, and the file of its settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.ticker import LogFormatter

from features.common import files
from features.common.errors import InputError
from features.common.units import format_bytes
from jobs.ground.text import as_row, count
from jobs.pages.drawing import STYLE, Plot, Point
from jobs.pages.page import Figure, Section, page
from jobs.pages.plots import styles

if TYPE_CHECKING:
    from jobs.studies.site_test.answer import Rate
    from jobs.studies.site_test.run import SiteTest

_PLACES = "cold: through the cache without the files; warm: from what it holds; else directly from an origin."
_HOW = "Points are medians of the rounds, whiskers the lowest and the highest round."
MEASURED = "# measured by cachecast site-test"
"""How settings begin that were measured."""
_READINGS = ("5 %", "35 %", "whole")
_LOG_ABOVE = 30
"""Ratio of the highest rate to the lowest above which the axis is logarithmic."""
_SPREAD = 0.4


def write(answer: SiteTest, *, settings_to: Path | None, page_to: Path | None) -> None:
    """Write the settings and the page to those of the files that are given."""
    for path, content in (
        (settings_to, f"{answer.settings}\n"),
        (page_to, site_page(answer) if page_to else ""),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write(path, content)


def check_settings_file(path: Path) -> None:
    """Raise InputError if a file is there that `write` did not write: the site's own settings, perhaps."""
    if path.exists() and not path.read_text(errors="replace").startswith(MEASURED):
        raise InputError(
            f"{path} exists, and site-test did not write it; name another file, and paste from it"
        )


def site_page(answer: SiteTest) -> str:
    """The HTML page of an answer."""
    processes, places = [row for row in answer.rates if not row.in_one_process], _places(answer.rates)
    few = min(row.clients for row in answer.rates)
    ladder = sorted({row.clients for row in processes})
    sections = [Section("Round trips", rows=[as_row(one) for one in answer.round_trips])]
    single = {
        place: [_of(processes, place, reading, few) for reading in _READINGS] for place in _places(processes)
    }
    one = "one client" if few == 1 else f"{few} clients"
    figures = [
        Figure(
            _plot(_READINGS, single, "part of a file that is read", places=places),
            f"Rate of {one}, by part of a file.",
        )
    ]
    if len(ladder) > 1:
        many = {place: [_of(processes, place, "whole", n) for n in ladder] for place in _places(processes)}
        labels = [str(n) for n in ladder]
        figures.append(
            Figure(
                _plot(labels, many, "clients at once", places=places),
                "Rate of all clients together, whole files.",
            )
        )
    sections.append(
        Section(
            "Rates",
            f"{_HOW} {_PLACES}",
            figures,
            _table(processes, without=("loops", "streams", "connections", "why")),
        )
    )
    if jobs := [row for row in answer.rates if row.in_one_process]:
        sections.append(_of_clients(jobs, places))
    if answer.outliers:
        note = "Reads that took more than 5 times as long as the median of those like them."
        sections.append(Section("Reads that stood out", note, rows=[as_row(one) for one in answer.outliers]))
    lines = [{"setting": one, "change": comment.strip()} for one, comment in _lines(answer.settings)]
    sections.append(
        Section("Settings for this site", "As cachecast site-test --write FILE writes them.", rows=lines)
    )
    if remarks := (*answer.failures, *answer.notes):
        sections.append(Section("Notes", rows=[{"reason": one} for one in remarks]))
    n_files = f"{count(len(answer.files))} {'file' if len(answer.files) == 1 else 'files'}"
    used = f"{format_bytes(answer.bytes_used)} in {answer.seconds:.0f} s"
    return page(
        title=f"What cache {answer.cache} gives to jobs",
        subtitle=f"{n_files}, {used}, XRootD {answer.version}, {answer.measured_at}",
        answers=[*answer.findings, answer.advice],
        sections=sections,
    )


def _of_clients(jobs: Sequence[Rate], places: Sequence[str]) -> Section:
    labels = list(dict.fromkeys(map(_settings_of, jobs)))
    rates = {
        place: [
            next((r for r in jobs if (r.place, _settings_of(r)) == (place, label)), None) for label in labels
        ]
        for place in _places(jobs)
    }
    note = f"A job of {jobs[0].clients} threads in one process, whole files. {_HOW}"
    figure = Figure(
        _plot(labels, rates, "event loops, streams per connection, connections", places=places),
        "Rate by settings of the client.",
    )
    return Section(
        "Settings of the XRootD client", note, [figure], _table(jobs, without=("reading", "clients", "why"))
    )


def _settings_of(row: Rate) -> str:
    return f"{row.loops}, {row.streams}, {row.connections}"


def _places(rows: Sequence[Rate]) -> list[str]:
    return list(dict.fromkeys(row.place for row in rows))


def _of(rows: Sequence[Rate], place: str, reading: str, clients: int) -> Rate | None:
    key = (place, reading, clients)
    return next((row for row in rows if (row.place, row.reading, row.clients) == key), None)


def _table(rows: Sequence[Rate], *, without: Collection[str]) -> list[Mapping[str, object]]:
    """The rows as a table; failures and a busy machine only where there are any."""
    left_out = {*without, "in_one_process"}
    left_out |= set() if any(row.failed for row in rows) else {"failed"}
    left_out |= set() if any(row.is_busy for row in rows) else {"is_busy"}
    return [{key: value for key, value in as_row(row).items() if key not in left_out} for row in rows]


def _lines(toml: str) -> list[tuple[str, str]]:
    """Each line with its comment apart."""
    parts = [line.partition("#") for line in toml.splitlines() if line]
    return [(setting.strip(), comment) for setting, _, comment in parts]


def _plot(
    labels: Sequence[str],
    series: Mapping[str, Sequence[Rate | None]],
    xlabel: str,
    *,
    places: Sequence[str],
) -> Plot:
    """Rates of each series, side by side at each label; `places`: all of the page, which look alike in it."""
    with mpl.rc_context(STYLE):
        plot, looks = Plot(nearest="xy"), styles(places)
        for k, (place, rates) in enumerate(series.items()):
            aside = _SPREAD * ((k + 0.5) / len(series) - 0.5)
            points = [
                (at + aside, row, labels[at]) for at, row in enumerate(rates) if row and row.rate_bytes_per_s
            ]
            y = [row.per_s / 1e6 for _, row, _ in points]
            low = [(row.per_s - (row.lowest_bytes_per_s or 0)) / 1e6 for _, row, _ in points]
            high = [((row.highest_bytes_per_s or 0) - row.per_s) / 1e6 for _, row, _ in points]
            drawn = plot.axes.errorbar(
                [x for x, _, _ in points], y, yerr=[low, high], capsize=3, **looks[place]
            )
            said = [f"{place}: {format_bytes(row.per_s)}/s, {label}" for _, row, label in points]
            plot.add(place, drawn, [Point(x, v, t) for (x, _, _), v, t in zip(points, y, said, strict=True)])
        heights = [row.per_s for some in series.values() for row in some if row and row.rate_bytes_per_s]
        plot.axes.set_xticks(range(len(labels)), labels)
        plot.axes.set(xlabel=xlabel, ylabel="MB per second", xlim=(-0.5, len(labels) - 0.5))
        if heights and max(heights) > _LOG_ABOVE * min(heights):
            plot.axes.set_yscale("log")
            for formatter in (plot.axes.yaxis.set_major_formatter, plot.axes.yaxis.set_minor_formatter):
                formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 1)))
        else:
            plot.axes.set_ylim(0, None)
        return plot
