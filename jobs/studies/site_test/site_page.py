"""The page of `cachecast site-test`, and the file of its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
MEASURED = "# measured by cachecast site-test"  # how measured settings begin
_READINGS = ("5 %", "35 %", "whole")
_LOG_ABOVE = 30  # ratio of the highest rate to the lowest above which the axis is logarithmic
_SPREAD = 0.4


def write(answer: SiteTest, *, settings_to: Path | None, page_to: Path | None) -> None:
    for path, content in (
        (settings_to, f"{answer.settings}\n"),
        (page_to, site_page(answer) if page_to else ""),
    ):
        if path is not None:
            files.write(path, content)


def check_settings_file(path: Path) -> None:
    """Raise InputError if a file is there that `write` did not write: the site's own settings, perhaps."""
    if path.exists() and not path.read_text(errors="replace").startswith(MEASURED):
        raise InputError(
            f"{path} exists, and site-test did not write it; name another file, and paste from it"
        )


def site_page(answer: SiteTest) -> str:
    rows, places = answer.rates, list(dict.fromkeys(row.place for row in answer.rates))
    few, n_clients = min(row.clients for row in rows), sorted({row.clients for row in rows})
    single = {place: [_of(rows, place, reading, few) for reading in _READINGS] for place in places}
    who = "one client" if few == 1 else f"{few} clients"
    figures = [
        Figure(_plot(_READINGS, single, "part of a file that is read"), f"Rate of {who}, by part of a file.")
    ]
    if len(n_clients) > 1:
        many = {place: [_of(rows, place, "whole", n) for n in n_clients] for place in places}
        plot = _plot(list(map(str, n_clients)), many, "clients at once")
        figures.append(Figure(plot, "Rate of all clients together, whole files."))
    # Failures and a busy machine only where there are any.
    left_out = {"why"} | {key for key in ("failed", "is_busy") if not any(getattr(row, key) for row in rows)}
    table = [{key: value for key, value in as_row(row).items() if key not in left_out} for row in rows]
    settings = [line.partition("#") for line in answer.settings.splitlines() if line]
    lines = [{"setting": setting.strip(), "change": comment.strip()} for setting, _, comment in settings]
    sections = [
        Section("Round trips", rows=[as_row(trip) for trip in answer.round_trips]),
        Section("Rates", f"{_HOW} {_PLACES}", figures, table),
        Section("Settings for this site", "As cachecast site-test --write FILE writes them.", rows=lines),
    ]
    if remarks := (*answer.failures, *answer.notes):
        sections.append(Section("Notes", rows=[{"reason": remark} for remark in remarks]))
    n_files = f"{count(len(answer.files))} {'file' if len(answer.files) == 1 else 'files'}"
    used = f"{format_bytes(answer.bytes_used)} in {answer.seconds:.0f} s"
    return page(
        title=f"What cache {answer.cache} gives to jobs",
        subtitle=f"{n_files}, {used}, XRootD {answer.version}, {answer.measured_at}",
        answers=[*answer.findings, *filter(None, [answer.advice])],
        sections=sections,
    )


def _of(rows: Sequence[Rate], place: str, reading: str, clients: int) -> Rate | None:
    key = (place, reading, clients)
    return next((row for row in rows if (row.place, row.reading, row.clients) == key), None)


def _plot(labels: Sequence[str], series: Mapping[str, Sequence[Rate | None]], xlabel: str) -> Plot:
    with mpl.rc_context(STYLE):
        plot, looks = Plot(nearest="xy"), styles(list(series))
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
            texts = [f"{place}: {format_bytes(row.per_s)}/s, {label}" for _, row, label in points]
            plot.add(place, drawn, [Point(x, v, t) for (x, _, _), v, t in zip(points, y, texts, strict=True)])
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
