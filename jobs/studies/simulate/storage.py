"""Storage against cache: which replicas a site could drop for a cache, and the traffic and disk of that."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.common.errors import InputError
from features.common.progress import Advance
from features.common.times import DAY_S, HOUR_S
from features.common.units import format_bytes
from features.results import LRU
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.ground.text import STORAGE_COLUMNS, as_row, percent, select
from jobs.pages.write import Page, write_page
from jobs.studies.simulate.accesses import Accesses
from jobs.studies.simulate.replicas import DROPPABLE, WORDS, Kind, Replicas, Stored, of_tables, of_trace
from replay.policies import run_policy
from replay.result import Result
from replay.trace import Trace, window

if TYPE_CHECKING:
    from jobs.pages.drawing import Plot
_MOST_DATASETS = 100
_STORAGE_NOTE = (
    "The disk saved is that of the replicas that go, less the caches' own. The last replica on disk never "
    "goes; those that a rule keeps need its removal first."
)


@dataclasses.dataclass(frozen=True)
class StorageRequest:
    """What is asked: caches of these `capacities`, and what they may take.

    `network_bytes_s`: of the WAN, in the busiest hour; None: any. `node_disk_bytes`, `node_bytes_s`: disk and
    network of a cache node.
    `keep_ruled`: propose only replicas that no rule keeps.
    """

    capacities: Sequence[int]
    network_bytes_s: int | None
    node_disk_bytes: int
    node_bytes_s: int
    keep_ruled: bool


@dataclasses.dataclass(frozen=True)
class Replaced:
    """What a cache of one capacity replaces. Rates are of the busiest hour.

    `dropped_bytes`: of replicas that go; `rule_bytes`: those of them whose rules must go, or be looked up,
    first; `saved_bytes`: disk saved, less the cache's own. `wan_bytes_per_day` comes on top of today's.
    `served_bytes_s`: to jobs; `wan_bytes_s`: fetched. `nodes`: by the `limit` that needs more.
    """

    capacity_bytes: int
    dropped_bytes: int
    saved_bytes: int
    wan_bytes_per_day: float
    byte_hit_ratio: float
    nodes: int
    rule_bytes: int
    served_bytes_s: float
    wan_bytes_s: float
    limit: str


@dataclasses.dataclass(frozen=True)
class Dropped:
    """The replicas of a dataset that could go, least read first; `ruled_files`: those whose rules must go."""

    dataset: str
    files: int
    stored_bytes: int
    read_bytes_per_day: float
    ruled_files: int


@dataclasses.dataclass(frozen=True)
class StorageAnswer:
    """`datasets`: what goes for the first capacity."""

    verdict: str
    findings: tuple[str, ...]
    points: tuple[Replaced, ...]
    stored: tuple[Stored, ...]
    datasets: tuple[Dropped, ...]
    days: int
    notes: tuple[str, ...]


def run(
    settings: Settings,
    accesses: Accesses,
    request: StorageRequest,
    *,
    rses: Sequence[str],
    on_progress: Advance,
) -> StorageAnswer:
    """What caches replace of the replicas at `rses` (empty: of the storage of the configured caches).

    With a trace and no RSE the trace's files are the storage. Raises InputError, StaleInputError.
    """
    if not request.capacities or min(*request.capacities, request.node_disk_bytes, request.node_bytes_s) <= 0:
        raise InputError("capacities, and the disk and rate of a node, must be above 0")
    on_progress(0, len(request.capacities) + 1, "reading")
    is_trace = accesses.trace is not None
    loaded = accesses.load(settings, keep=("dataset",) if is_trace else ())
    own = [rse for cache in settings.caches.values() for rse in cache.storage]
    patterns = [*rses] or ([] if is_trace else own)
    if patterns:
        replicas = of_tables(
            Tables.of(settings), loaded, rses=patterns, tape=settings.plan.tape, caches=settings.cache_rses
        )
    elif is_trace:
        replicas = of_trace(loaded)
    else:
        raise InputError("name the site's storage: --rse, or `storage` of a cache")
    case = _Case(loaded.trace, replicas, request, accesses.first_day_s)
    points = []
    for done, capacity in enumerate(request.capacities, start=1):
        on_progress(done, len(request.capacities) + 1, format_bytes(capacity))
        points.append(case.replaced(capacity))
    stored = tuple(replicas.stored(case.read, case.n_days))
    return StorageAnswer(
        verdict=verdict(points[0], sum(group.stored_bytes for group in stored)),
        findings=tuple(_findings(points[0], stored, request, case)),
        points=tuple(points),
        stored=stored,
        datasets=tuple(case.datasets(request.capacities[0])),
        days=case.n_days,
        notes=(*loaded.notes, *replicas.notes),
    )


class _Case:
    """The reads of a site's replicas, and its datasets in the order in which they go: least read first.

    `read`: how often each replica was read on the `n_days` that count.
    """

    def __init__(
        self, trace: Trace, replicas: Replicas, request: StorageRequest, count_from_s: int | None
    ) -> None:
        self._replicas, self._request = replicas, request
        counted = window(trace, count_from_s)
        self._from_s = counted.count_from_s
        self.n_days = int(trace.time_s[-1]) // DAY_S - self._from_s // DAY_S + 1
        row = replicas.of_item[trace.item]
        n = replicas.size_bytes.size
        self.read: IntArray = np.bincount(row[counted.first :][row[counted.first :] >= 0], minlength=n)
        kinds = (Kind.FREE,) if request.keep_ruled else DROPPABLE
        self._may_go: BoolArray = np.isin(replicas.kind, kinds)
        n_sets = len(replicas.datasets)
        stored = self._by_dataset(replicas.size_bytes)
        bytes_read = self._by_dataset(self.read * replicas.size_bytes)
        self._order: IntArray = np.argsort(bytes_read / np.maximum(stored, 1), kind="stable")
        rank = np.empty(n_sets, np.int64)
        rank[self._order] = np.arange(n_sets)
        self._rank = np.where(self._may_go, rank[replicas.dataset], n_sets)
        self._trace, self._row = trace, row
        self._n_sets: dict[int, int] = {}

    @property
    def unread_bytes(self) -> int:
        return int(self._replicas.size_bytes[self._may_go & (self.read == 0)].sum())

    def _by_dataset(self, amount: IntArray) -> IntArray:
        """`amount` of the replicas that may go, per dataset."""
        total = np.zeros(len(self._replicas.datasets), np.int64)
        np.add.at(total, self._replicas.dataset[self._may_go], amount[self._may_go])
        return total

    def replaced(self, capacity: int) -> Replaced:
        """What the cache replaces: all that may go, or as much as the WAN takes in its busiest hour."""
        most = self._request.network_bytes_s
        low, high = 0, len(self._replicas.datasets)
        answer = self._point(capacity, high)
        if most is not None and answer.wan_bytes_s > most:
            # A cache that is asked for more hits less of the rest: the traffic grows with what goes.
            while high - low > 1:
                middle = (low + high) // 2
                fits = self._point(capacity, middle).wan_bytes_s <= most
                low, high = (middle, high) if fits else (low, middle)
            high, answer = low, self._point(capacity, low)
        self._n_sets[capacity] = high
        return answer

    def is_limited(self, capacity: int) -> bool:
        """Whether the WAN keeps datasets from going, for a cache that `replaced` was asked about."""
        return self._n_sets[capacity] < len(self._replicas.datasets)

    def _point(self, capacity: int, n_sets: int) -> Replaced:
        goes = self._rank < n_sets
        lru = self._lru(capacity, goes)
        kind, size, request = self._replicas.kind, self._replicas.size_bytes, self._request
        dropped = int(size[goes].sum())
        hourly_bytes = np.zeros(1) if lru is None else lru.hourly.hit_bytes + lru.hourly.wan_bytes
        served_s = float(hourly_bytes.max()) / HOUR_S
        by_disk = -(-capacity // request.node_disk_bytes)
        by_network = math.ceil(served_s / request.node_bytes_s)
        return Replaced(
            capacity_bytes=capacity,
            dropped_bytes=dropped,
            saved_bytes=dropped - capacity,
            wan_bytes_per_day=0.0 if lru is None else lru.wan_bytes / self.n_days,
            byte_hit_ratio=0.0 if lru is None else lru.byte_hit_ratio,
            nodes=max(by_disk, by_network),
            rule_bytes=int(size[goes & (kind != Kind.FREE)].sum()),
            served_bytes_s=served_s,
            wan_bytes_s=0.0 if lru is None else lru.peak_hour_wan_bytes / HOUR_S,
            limit="disk" if by_disk >= by_network else "network",
        )

    def _lru(self, capacity: int, goes: BoolArray) -> Result | None:
        """LRU on the reads of what goes; None: nothing is asked of the cache."""
        is_read = (self._row >= 0) & goes[self._row]
        if not (is_read & (self._trace.time_s >= self._from_s)).any():
            return None
        reads = Trace(self._trace.time_s[is_read], self._trace.item[is_read], self._trace.size_bytes)
        return run_policy(LRU, reads, capacity, count_from_s=self._from_s)

    def datasets(self, capacity: int) -> Iterator[Dropped]:
        """What goes for a cache that `replaced` was asked about, by dataset."""
        size = self._replicas.size_bytes
        each: IntArray = np.ones_like(size)
        files, stored, reads, ruled = map(
            self._by_dataset, (each, size, self.read * size, each * (self._replicas.kind != Kind.FREE))
        )
        for code in self._order[: self._n_sets[capacity]]:
            if files[code]:
                name = self._replicas.datasets[int(code)].as_py()
                yield Dropped(
                    name, int(files[code]), int(stored[code]), reads[code] / self.n_days, int(ruled[code])
                )


def verdict(point: Replaced, stored_bytes: int) -> str:
    at, of = format_bytes(point.capacity_bytes), format_bytes(stored_bytes)
    if not point.dropped_bytes:
        return f"No: nothing of the {of} stored can go for a cache of {at}."
    dropped = f"{format_bytes(point.dropped_bytes)} of the {of} stored"
    if point.saved_bytes <= 0:
        return f"No: a cache of {at} takes as much disk as it replaces, {dropped}."
    return (
        f"A cache of {at} can replace {dropped}: {format_bytes(point.saved_bytes)} less disk, for "
        f"{format_bytes(point.wan_bytes_per_day)} more WAN traffic per day, "
        f"{format_bytes(point.wan_bytes_s)}/s in the busiest hour; {percent(point.byte_hit_ratio)} of the "
        "bytes read of it are hits."
    )


def _findings(
    point: Replaced, stored: Sequence[Stored], request: StorageRequest, case: _Case
) -> Iterator[str]:
    by_words = {group.kept_by: group for group in stored}
    staying = [stays for kind in (Kind.ON_TAPE, Kind.LAST) if (stays := by_words.get(WORDS[kind]))]
    if point.rule_bytes:
        look = "" if WORDS[Kind.UNKNOWN] not in by_words else ", or their rules are unknown: look first"
        yield f"{format_bytes(point.rule_bytes)} of that are kept by rules, which must go first{look}."
    if staying:
        stay_bytes = format_bytes(sum(group.stored_bytes for group in staying))
        yield f"{stay_bytes} stay whatever the cache, as no other disk has them."
    if request.network_bytes_s is not None and case.is_limited(point.capacity_bytes):
        yield f"What is read most stays: the WAN takes at most {format_bytes(request.network_bytes_s)}/s."
    yield f"Nobody read {format_bytes(case.unread_bytes)} of what could go: no cache is needed for that."
    disk, rate, served = map(
        format_bytes, (request.node_disk_bytes, request.node_bytes_s, point.served_bytes_s)
    )
    yield (
        f"The cache takes {point.nodes} node{'s' * (point.nodes > 1)} of {disk} and {rate}/s, by their "
        f"{point.limit}: it serves {served}/s in the busiest hour, and its disks read or write as much."
    )


def export_storage(answer: StorageAnswer, out: Path | None, *, title: str) -> None:
    """Write what caches replace to `out`, if given, in the format of its suffix."""
    points = [as_row(point) for point in answer.points]
    answers = (answer.verdict, *answer.findings)
    largest = sorted(answer.datasets, key=lambda dataset: -dataset.stored_bytes)[:_MOST_DATASETS]
    more = [
        ("Stored, by what keeps it", "", [as_row(group) for group in answer.stored]),
        ("Datasets that go, the largest", "Of the first capacity.", [as_row(dataset) for dataset in largest]),
    ]
    columns = [key for key in points[0] if key in STORAGE_COLUMNS or any(point[key] for point in points)]
    rows = [select(point, columns) for point in points]
    page = Page(
        title, answer.notes, rows, answers, "Disk against traffic", _STORAGE_NOTE, capacity="", more=more
    )

    def draw(_: Any) -> Plot:
        from jobs.studies.simulate import study_plots  # noqa: PLC0415  matplotlib takes long to import

        return study_plots.traffic_against_disk(points)

    write_page(out, points, page, draw)
