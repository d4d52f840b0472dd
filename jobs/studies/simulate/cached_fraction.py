"""KIT's Eq. 1 for a site: how long a volume is processed, by the fraction of it that is cached."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from features.common.errors import InputError
from features.common.units import format_bytes
from jobs.ground.settings.tree import Settings
from jobs.ground.text import as_row, percent, time_unit
from jobs.pages.write import Page, write_page
from replay.study.benefit import Cluster, best_cached_fraction, processing_parts_s

if TYPE_CHECKING:
    from jobs.pages.drawing import Plot

_STEPS = 20
_LIMITS = ("network", "caches", "computing")
_FRACTION_NOTE = (
    "The time is the longest of three: reading what is not cached over the network, reading the rest from "
    "the caches, and computing (KIT, Eq. 1)."
)


@dataclasses.dataclass(frozen=True)
class FractionPoint:
    """The processing time at one cached fraction, and what takes that long."""

    cached_fraction: float
    processing_s: float
    throughput_bytes_s: int
    limited_by: str


@dataclasses.dataclass(frozen=True)
class FractionAnswer:
    """The points from nothing to all cached, with the best among them; `answers`: sentences."""

    best_fraction: float
    points: tuple[FractionPoint, ...]
    answers: tuple[str, ...]
    notes: tuple[str, ...]


def cluster_of(settings: Settings, **given: int | None) -> Cluster:
    """The site of `[plan] cluster`, else of `[serve]` with the configured caches; `given` fields override."""
    plan, serve = settings.plan.cluster, settings.serve
    if plan is not None:
        site = plan.cluster
    else:
        n_nodes, rate = max(1, len(settings.caches)), settings.benefit.job_read_rate
        site = Cluster(serve.network, serve.cache_read, n_nodes, rate, serve.slots)
    return dataclasses.replace(site, **{key: value for key, value in given.items() if value is not None})


def run(cluster: Cluster, *, volume_bytes: int) -> FractionAnswer:
    """Eq. 1 of `cluster` for a volume, at fractions from 0 to 1 and the best. Raises InputError for a 0."""
    if min(volume_bytes, *dataclasses.astuple(cluster)) <= 0:
        raise InputError("the volume and all rates must be above 0")
    best = best_cached_fraction(cluster)
    fractions = np.unique([*np.linspace(0, 1, _STEPS + 1), best])
    parts = processing_parts_s(cluster, volume_bytes, fractions)
    points = tuple(
        FractionPoint(
            float(x), float(all_s.max()), round(volume_bytes / all_s.max()), _LIMITS[all_s.argmax()]
        )
        for x, all_s in zip(fractions, parts.T, strict=True)
    )
    nothing, best_point = points[0], next(point for point in points if point.cached_fraction == best)
    unit, unit_s = time_unit(nothing.processing_s)
    takes, without = (f"{point.processing_s / unit_s:.3g} {unit}" for point in (best_point, nothing))
    answer = (
        f"Best is to cache {percent(best)}: {format_bytes(volume_bytes)} take {takes} instead of {without} "
        f"without caches, {nothing.processing_s / best_point.processing_s:.1f} times the throughput."
    )
    nodes = "1 cache" if cluster.n_nodes == 1 else f"{cluster.n_nodes} caches"
    site = (
        f"network {format_bytes(cluster.network_bytes_s)}/s",
        f"{nodes} of {format_bytes(cluster.cache_bytes_s_per_node)}/s",
        f"{cluster.n_slots} slots of {format_bytes(cluster.workflow_bytes_s_per_slot)}/s",
    )
    return FractionAnswer(best, points, (answer,), site)


def export_fraction(answer: FractionAnswer, out: Path | None, *, title: str) -> None:
    """Write KIT's Eq. 1 to `out`, if given, in the format of its suffix."""
    points = [as_row(point) for point in answer.points]
    page = Page(
        title,
        answer.notes,
        points,
        answer.answers,
        heading="Against the cached fraction",
        note=_FRACTION_NOTE,
        capacity="",
    )

    def draw(_: Any) -> Plot:
        from jobs.studies.simulate import study_plots  # noqa: PLC0415  matplotlib takes long to import

        return study_plots.processing_time(points)

    write_page(out, points, page, draw)
