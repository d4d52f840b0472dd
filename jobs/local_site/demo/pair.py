"""Two XCaches side by side: the same reads, one evicts by LRU, the other by a learned order.

The order is learned from the reads before, and a replay has the same reads. Both caches have a steward:
XCache's own purge is LRU too, but comes once a minute at most, when all is read here.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from features.common.progress import Advance, unwatched
from features.results import LRU
from jobs.local_site.demo.side import READ_EVERY_S, Seen, read_through
from jobs.local_site.demo.site import Marks, fresh
from jobs.local_site.local.xrootd import available
from jobs.studies.simulate import workload
from models.learning.order import horizon_models, learn_horizons, oldest_ages_s
from models.serving.bundle_files import ServedOrder
from replay.access_context import context_of, file_kinds
from replay.config import CacheConfig
from replay.engine import simulate
from replay.policies import run_policy
from replay.policies.learned import Order
from replay.read import LoadedTrace
from replay.result import Result
from replay.steward import EvictionOrder, new_order
from replay.steward.policies import Replayed
from replay.trace import Trace
from replay.workload import generate

PLAIN, STEWARD = "plain", "steward"
ORDERS: Final[Mapping[str, str]] = MappingProxyType({PLAIN: LRU, STEWARD: "learned"})
"""By cache."""
CAPACITY_SHARE: Final = 0.2
"""What a cache may hold of the bytes of all files read."""
LOW, HIGH = 0.75, 0.95
"""Watermarks: further apart than usual, because so much of the cache comes between two looks here."""
READS: Final = 1800
_GENERATED: Final = 20_000
"""Reads of the generated site. The caches serve the last ones; the order is learned from those before."""
_ROWS: Final = 40_000
"""Of the training, which then takes seconds."""
_SCALE: Final = 5e-5
"""Of sizes: an AOD file has about 100 kB."""
_PAGE_BYTES: Final = 4096
_READS_PER_CHECK: Final = 12
"""Of XCache's disk by itself, as often as a steward looks at it."""


@dataclasses.dataclass(frozen=True)
class Side:
    """One cache: what was seen of it, None where no XRootD server runs; and the replay of its reads."""

    cache: str
    evicts_by: str
    seen: Seen | None
    replayed_byte_hit_ratio: float
    replayed_wan_bytes: int


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two caches of `capacity_bytes`, which purge by themselves above `high_bytes`.

    `purge_byte_hit_ratio`: of a replayed XCache without a steward. `learned_from`: reads that the order was
    learned from. `missing`: why the caches are not real.
    """

    capacity_bytes: int
    high_bytes: int
    plain: Side
    steward: Side
    purge_byte_hit_ratio: float
    missing: str | None
    learned_from: int = 0


def run(out: Path, *, seed: int, base: Path | None = None, on_progress: Advance) -> Pair:
    """Let jobs read the same files through both caches; each has settings and a capture in a folder of `out`.

    `base`: settings that those of the caches override. Without an XRootD server the reads are replayed alone.
    """
    period = all_reads(seed)
    trace = last_reads(period)
    limits, missing = marks(trace), available()
    served = learn(period, limits, on_progress)
    seen = _live(out, trace, base, served, on_progress) if missing is None else {}
    plain, steward = (_side(name, trace, limits, served, seen.get(name)) for name in ORDERS)
    purge = replay_purge(trace, limits).byte_hit_ratio
    n_before = period.n_accesses - trace.n_accesses
    return Pair(limits.capacity_bytes, limits.high_bytes, plain, steward, purge, missing, n_before)


def marks(trace: Trace) -> Marks:
    """Capacity and watermarks of each cache."""
    return Marks(int(CAPACITY_SHARE * trace.footprint_bytes), LOW, HIGH)


def learn(period: Trace, limits: Marks, on_progress: Advance) -> ServedOrder:
    """The order of eviction that the reads before the last ones teach. Raises InputError."""
    from_s = int(last_reads(period).time_s[0])
    context = context_of(LoadedTrace(period, pa.table({}), ()))
    on_progress(0, READS, "learning from the reads before")
    ages_s = oldest_ages_s(period, [limits.low_bytes], to_s=from_s)
    trees = learn_horizons(period, context, ages_s, to_s=from_s, most_rows=_ROWS)
    assert trees is not None, "the reads before are weeks, by the demo's clock"
    order = Order(from_s, horizon_models(trees))
    return ServedOrder(order, file_kinds(period), from_s, "learned by the demo")


def _live(
    out: Path, trace: Trace, base: Path | None, served: ServedOrder, on_progress: Advance
) -> dict[str, Seen]:
    """What was seen of each cache; both run at the same time."""
    sizes, names, stopping = file_sizes(trace), names_read(trace), threading.Event()
    limits = marks(trace)
    with ThreadPoolExecutor(len(ORDERS), "cache") as both:
        running = {
            name: both.submit(
                read_through,
                fresh(out / name, base=base, order=order),
                name,
                limits,
                sizes=sizes,
                reads=names,
                served=served if name == STEWARD else None,
                stopping=stopping,
                on_progress=on_progress if name == PLAIN else unwatched,
            )
            for name, order in ORDERS.items()
        }
        try:
            return {name: one.result() for name, one in running.items()}
        finally:
            stopping.set()


def _side(name: str, trace: Trace, limits: Marks, served: ServedOrder, seen: Seen | None) -> Side:
    """A cache, and the replay of its reads with the capacity that it used on average."""
    order, held_bytes = ORDERS[name], limits.low_bytes if seen is None else seen.mean_bytes
    replayed = replay(trace, limits, order, held_bytes, [served.order])
    return Side(name, order, seen, replayed.byte_hit_ratio, replayed.wan_bytes)


def all_reads(seed: int) -> Trace:
    """Reads of a period in their order, at the pace of the demo, with the names of the files."""
    made = generate(workload.load("site", seed=seed, accesses=_GENERATED)).accesses(raw=True)
    names = made["name"].combine_chunks().dictionary_encode()
    item = names.indices.to_numpy()
    size_bytes = np.zeros(len(names.dictionary), np.int64)
    size_bytes[item] = made["size_bytes"].to_numpy()
    pages = np.maximum(1, np.round(size_bytes * _SCALE / _PAGE_BYTES)).astype(np.int64)
    time_s = READ_EVERY_S * np.arange(item.size)
    return Trace(time_s, item, pages * _PAGE_BYTES, names.dictionary.cast(pa.string()))


def last_reads(period: Trace) -> Trace:
    """The reads that the caches serve, and their files."""
    assert period.names is not None
    files, item = np.unique(period.item[-READS:], return_inverse=True)
    return Trace(
        period.time_s[-READS:],
        item.astype(np.int32),
        period.size_bytes[files],
        period.names.take(pa.array(files)),
    )


def names_read(trace: Trace) -> list[str]:
    """The name of the file of each read."""
    names = _names(trace)
    return [names[file] for file in trace.item.tolist()]


def file_sizes(trace: Trace) -> dict[str, int]:
    """The size of each file."""
    return dict(zip(_names(trace), trace.size_bytes.tolist(), strict=True))


def replay(trace: Trace, marks: Marks, order: str, held_bytes: int, learned: Sequence[Order] = ()) -> Result:
    """The reads through a cache whose steward follows `order` and holds up to `held_bytes` at each read."""
    context = context_of(LoadedTrace(trace, pa.table({}), ()))

    def live(_held_bytes: int) -> EvictionOrder:
        return new_order(order, marks.high_bytes, learned)  # as a live cache's steward makes it

    return run_policy(order, trace, held_bytes, policy=Replayed(context, live))


def replay_purge(trace: Trace, marks: Marks) -> Result:
    """The reads through an XCache that purges by itself."""
    return simulate(trace, CacheConfig(*marks, purge_interval_s=_READS_PER_CHECK * READ_EVERY_S))


def _names(trace: Trace) -> list[str]:
    assert trace.names is not None
    names: list[str] = trace.names.to_pylist()
    return names
