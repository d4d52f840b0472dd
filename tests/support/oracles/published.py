"""The published figures of a scenario beside the generated ones."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, IntArray
from replay.config import CacheConfig
from replay.engine import simulate
from replay.result import Result
from replay.trace import Trace
from replay.workload.tables import ROWS_AT_ONCE, Workload

CLOSE_PERCENT = 10.0
"""docs/workload.md explains larger deviations."""
EXTENSIVE = ("accesses", "files", "bytes")
PER_DAY = ("accesses_per_day", "bytes_per_day")
"""Metrics of published figures: EXTENSIVE ones grow with days and scale, PER_DAY ones with scale only."""


class Published(NamedTuple):
    """A published figure of the scenario's period, about one `category` or `region`, or about all.

    Hit ratios are those of an XCache of `capacity_bytes` with watermarks `low` and `high`.
    """

    metric: str
    value: float
    category: str = ""
    region: str = ""
    capacity_bytes: float = 0.0
    low: float = 0.90
    high: float = 0.95
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Line:
    """One published figure of `metric`, scaled like the workload, and the generated one."""

    what: str
    metric: str
    published: float
    produced: float
    deviation_percent: float
    note: str


def calibration(workload: Workload) -> list[Line]:
    """A line for each published figure of the scenario; LRU is replayed for hit ratios."""
    produced = _Produced(workload)
    figures = [Published(**figure) for figure in workload.config.published]  # type: ignore[arg-type]
    return [_line(produced, figure) for figure in figures]


def trace_of(workload: Workload) -> Trace:
    """The accesses as a trace; items are the files' numbers."""
    n = workload.n_accesses
    time_s, item = np.empty(n, np.int64), np.empty(n, np.int32)
    for begin in range(0, n, ROWS_AT_ONCE):
        end = min(n, begin + ROWS_AT_ONCE)
        reads = workload.reads.slice(begin, end)
        time_s[begin:end], item[begin:end] = reads.accessed_us // 1_000_000, reads.file
    return Trace(time_s, item, workload.catalogue.size_bytes)


def _line(produced: _Produced, figure: Published) -> Line:
    config = produced.workload.config
    factor = 1.0
    if figure.metric in EXTENSIVE:
        factor = config.growth
    elif figure.metric in PER_DAY:
        factor = config.scale
    published, value = figure.value * factor, produced.value(figure)
    deviation = 100 * (value / published - 1)
    notes = [figure.note] if figure.note else []
    if figure.capacity_bytes and config.days != config.period_days:
        notes.append(f"of {config.days} days; calibrated for {config.period_days}")
    if abs(deviation) > CLOSE_PERCENT:
        notes.append("see docs/workload.md")
    return Line(
        _what(figure, config.scale), figure.metric, published, value, round(deviation, 2), "; ".join(notes)
    )


def _what(figure: Published, scale: float) -> str:
    words = [figure.category or figure.region, figure.metric.replace("_", " ")]
    if figure.capacity_bytes:
        words.append(f"at {figure.capacity_bytes * scale / 1e12:.4g} TB")
    return " ".join(word for word in words if word)


class _Produced:
    """The generated figures; what several of them need is computed once."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._replays: dict[tuple[float, float, float], Result] = {}

    def value(self, figure: Published) -> float:
        """The generated value of a published figure."""
        if figure.metric.endswith("hit_ratio"):
            ratio: float = getattr(self._replay(figure), figure.metric)
            return ratio
        files = self._files_of(figure)
        reads, size = self._reads[files], self.workload.catalogue.size_bytes[files]
        read = reads > 0
        match figure.metric:
            case "accesses":
                return float(reads.sum())
            case "files":
                return float(read.sum())
            case "bytes":
                return float(reads @ size)
            case "mean_size_bytes":
                return float(reads @ size) / float(reads.sum())
            case "accesses_per_day":
                return float(reads.sum()) / self.workload.config.days
            case "bytes_per_day":
                return float(reads @ size) / self.workload.config.days
            case "reread_share":
                return float((reads > 1).sum() / read.sum())
            case "origin_share":
                return float(read.sum() / (self._reads > 0).sum())
        raise AssertionError(figure.metric)

    def _files_of(self, figure: Published) -> BoolArray | slice:
        config, datasets = self.workload.config, self.workload.catalogue.datasets
        if not figure.category and not figure.region:
            return slice(None)
        is_member = np.ones(datasets.line.size, np.bool_)
        if figure.category:
            is_member &= np.array([c.name == figure.category for c in config.categories])[datasets.category]
        if figure.region:
            is_member &= np.array([o.region == figure.region for o in config.origins])[datasets.origin]
        return np.repeat(is_member, datasets.n_files)

    def _replay(self, figure: Published) -> Result:
        capacity = figure.capacity_bytes * self.workload.config.scale
        key = (capacity, figure.low, figure.high)
        if key not in self._replays:
            self._replays[key] = simulate(self._trace, CacheConfig(int(capacity), figure.low, figure.high))
        return self._replays[key]

    @cached_property
    def _trace(self) -> Trace:
        return trace_of(self.workload)

    @cached_property
    def _reads(self) -> IntArray:
        reads: IntArray = np.bincount(self._trace.item, minlength=self.workload.n_files)
        return reads
