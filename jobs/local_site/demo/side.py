"""One of two caches side by side: a real XCache, its steward, and the jobs that read through it."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, cast

from features.common.arrays import BoolArray
from features.common.errors import PushError
from features.common.progress import Advance
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.local_site.demo.site import Marks, Site
from jobs.local_site.demo.xcache import XCache, reported_reads, xcache
from jobs.loop.steward.running import running_steward
from models.serving.bundle_files import ServedOrder
from prefetch.journal.journal import Journal
from replay.steward import EvictionOrder

READ_EVERY_S: Final = 260  # from one read to the next: sixty generated days over the number of reads
READS_PER_S: Final = 60  # at most; the reads of a second stand for four hours of the generated site
STEP_S: Final = 0.2  # time between two looks of a steward at its cache
_READS_PER_LOOK: Final = 15
_PATIENCE_S: Final = 20.0
_WARM_SHARE: Final = 0.25  # share of the looks that the mean use leaves out: the cache is not full yet


class PacedOrder:
    """An `EvictionOrder` by a clock that begins at `from_s` and goes on by `READ_EVERY_S` with each read."""

    def __init__(self, order: EvictionOrder, *, from_s: int) -> None:
        self._order, self._now_s = order, from_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._order, name)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        self._order.read(file, reader, self._now_s, is_held=is_held)
        self._now_s += READ_EVERY_S

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        self._order.stored(file, n_bytes, self._now_s)

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """The least valuable files now, by the clock of the reads."""
        return self._order.victims(n_bytes, self._now_s, spare)


@dataclasses.dataclass(frozen=True)
class Observation:
    """What was seen of a cache that served `reads`.

    `closes`: reads that it reported, fewer if a file was read again before its first close was reported;
    `hit_bytes`, `wan_bytes`: theirs from its disk and from the origin. `mean_bytes`: on its disk once full.
    """

    reads: int
    failed_reads: int
    closes: int
    hit_bytes: int
    wan_bytes: int
    evicted_files: int
    mean_bytes: int

    @property
    def byte_hit_ratio(self) -> float:
        return self.hit_bytes / max(1, self.hit_bytes + self.wan_bytes)


def read_through(
    site: Site,
    name: str,
    marks: Marks,
    *,
    sizes: dict[str, int],
    reads: Sequence[str],
    served: ServedOrder | None,
    stopping: threading.Event,
    on_progress: Advance,
) -> Observation:
    """Let jobs read the files `reads`, of `sizes`, one by one through cache `name`, until `stopping`.

    `served`: the learned order that its steward follows; None: its order is not learned.
    """
    gstream, ended = site.out / "gstream.txt", threading.Event()
    with xcache(gstream, marks, reports_opens=True) as cache, ThreadPoolExecutor(1, "steward") as thread:
        cache.add_files(sizes)
        site.add_cache(
            name=name, kind="xcache", url=cache.url, marks=marks, namespace=cache.namespace, gstream=gstream
        )
        settings = site.settings()
        steward = thread.submit(_run_steward, settings, settings.cache(name), served, ended)
        try:
            reading = _read(cache, reads, stopping, on_progress)
            cache.await_reports(reading.n_bytes, stopping)
        finally:
            ended.set()
        n_evicted = steward.result()
    n_warm, closes = int(_WARM_SHARE * len(reading.used_bytes)), reported_reads(gstream)
    full_bytes = reading.used_bytes[n_warm:]
    return Observation(
        reads=reading.n_reads,
        failed_reads=reading.n_failed,
        closes=len(closes),
        hit_bytes=sum(close["bytes_hit"] for close in closes),
        wan_bytes=sum(close["bytes_missed"] for close in closes),
        evicted_files=n_evicted,
        mean_bytes=sum(full_bytes) // max(1, len(full_bytes)),
    )


@dataclasses.dataclass
class _Reading:
    n_reads: int = 0
    n_failed: int = 0
    n_bytes: int = 0
    used_bytes: list[int] = dataclasses.field(default_factory=list)


def _read(cache: XCache, names: Sequence[str], stopping: threading.Event, on_progress: Advance) -> _Reading:
    """Read at the pace of `READS_PER_S` at most, until `stopping`.

    Jobs wait while the cache is too full: a steward that a busy machine delays by a second would be late by
    hours at a site.
    """
    due, reading = time.monotonic(), _Reading()
    for number, name in enumerate(names):
        if number % _READS_PER_LOOK == 0:
            deadline = time.monotonic() + _PATIENCE_S
            while cache.used_bytes() > cache.marks.high_bytes and time.monotonic() < deadline:
                if stopping.wait(STEP_S):
                    break
            reading.used_bytes.append(cache.used_bytes())
            on_progress(number, len(names), "jobs read")
        if stopping.wait(max(0.0, due - time.monotonic())):
            break
        due = max(due, time.monotonic()) + 1 / READS_PER_S
        try:
            reading.n_bytes += cache.read_and_settle(name)
            reading.n_reads += 1
        except PushError:
            reading.n_failed += 1
    return reading


def _run_steward(
    settings: Settings, cache: CacheSettings, served: ServedOrder | None, ended: threading.Event
) -> int:
    """Run the steward of a cache until `ended`; return how many files it evicted."""

    def paced(order: EvictionOrder) -> EvictionOrder:
        return order if served is None else cast(EvictionOrder, PacedOrder(order, from_s=served.until_s))

    with (
        contextlib.closing(Journal(settings.push.journal)) as journal,
        running_steward(settings, cache, journal, served, paced=paced) as (steward, _),
    ):
        while not ended.is_set():
            steward.step(STEP_S)
        return steward.figures().evicted_files
