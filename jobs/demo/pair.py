"""Two XCaches side by side: the same reads, one evicts by LRU, the other by S3-FIFO, and the replay of both.

Both have a steward. XCache's own purge is LRU too, but comes once a minute at most, when all is read here.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from features.common.progress import Advance, unwatched
from jobs.demo.side import Seen, read_through
from jobs.demo.site import Marks, fresh
from jobs.local.xrootd import available
from jobs.simulate import workload
from replay.access_context import context_of
from replay.config import CacheConfig
from replay.engine import simulate
from replay.policies import run_policy
from replay.read import LoadedTrace
from replay.result import Result
from replay.steward import EvictionOrder, new_order
from replay.steward.policies import Replayed
from replay.trace import Trace
from replay.workload import generate

PLAIN, STEWARD = "plain", "steward"
ORDERS: Final[Mapping[str, str]] = MappingProxyType({PLAIN: "lru", STEWARD: "s3fifo"})
"""By cache. The default `auto` chooses an order after more reads than these."""
CAPACITY_SHARE: Final = 0.2
"""What a cache may hold of the bytes of all files read."""
LOW, HIGH = 0.75, 0.95
"""Watermarks: further apart than usual, because so much of the cache comes between two looks here."""


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

    `purge_byte_hit_ratio`: of a replayed XCache without a steward. `missing`: why the caches are not real.
    """

    capacity_bytes: int
    high_bytes: int
    plain: Side
    steward: Side
    purge_byte_hit_ratio: float
    missing: str | None


def run(out: Path, *, seed: int, base: Path | None = None, on_progress: Advance) -> Pair:
    """Let jobs read the same files through both caches; each has settings and a capture in a folder of `out`.

    `base`: settings that those of the caches override. Without an XRootD server the reads are replayed alone.
    """
    trace = reads(seed)
    limits, missing = marks(trace), available()
    seen = _live(out, trace, limits, base, on_progress) if missing is None else {}
    plain, steward = (_side(name, trace, limits, seen.get(name)) for name in ORDERS)
    purge = replay_purge(trace, limits).byte_hit_ratio
    return Pair(limits.capacity_bytes, limits.high_bytes, plain, steward, purge, missing)


def marks(trace: Trace) -> Marks:
    """Capacity and watermarks of each cache."""
    return Marks(int(CAPACITY_SHARE * trace.footprint_bytes), LOW, HIGH)


def _live(out: Path, trace: Trace, limits: Marks, base: Path | None, on_progress: Advance) -> dict[str, Seen]:
    """What was seen of each cache; both run at the same time."""
    sizes, names, stopping = file_sizes(trace), names_read(trace), threading.Event()
    with ThreadPoolExecutor(len(ORDERS), "cache") as both:
        running = {
            name: both.submit(
                read_through,
                fresh(out / name, base=base, order=order),
                name,
                limits,
                sizes=sizes,
                reads=names,
                stopping=stopping,
                on_progress=on_progress if name == PLAIN else unwatched,
            )
            for name, order in ORDERS.items()
        }
        try:
            return {name: one.result() for name, one in running.items()}
        finally:
            stopping.set()


def _side(name: str, trace: Trace, limits: Marks, seen: Seen | None) -> Side:
    """A cache, and the replay of its reads with the capacity that it used on average."""
    order, held_bytes = ORDERS[name], limits.low_bytes if seen is None else seen.mean_bytes
    replayed = replay(trace, limits, order, held_bytes)
    return Side(name, order, seen, replayed.byte_hit_ratio, replayed.wan_bytes)


READS: Final = 1800

_GENERATED: Final = 12_000
"""Reads of the generated site, of which the last ones are taken."""
_SCALE: Final = 5e-5
"""Of sizes: an AOD file has about 100 kB."""
_PAGE_BYTES: Final = 4096
_READS_PER_CHECK: Final = 12
"""Of XCache's disk by itself, as often as a steward looks at it."""


def reads(seed: int) -> Trace:
    """Reads in their order, one a second, with the names of the files."""
    made = generate(workload.load("site", seed=seed, accesses=_GENERATED)).accesses(raw=True)
    last = made.slice(made.num_rows - READS)
    names = last["name"].combine_chunks().dictionary_encode()
    item = names.indices.to_numpy()
    size_bytes = np.zeros(len(names.dictionary), np.int64)
    size_bytes[item] = last["size_bytes"].to_numpy()
    pages = np.maximum(1, np.round(size_bytes * _SCALE / _PAGE_BYTES)).astype(np.int64)
    return Trace(np.arange(item.size), item, pages * _PAGE_BYTES, names.dictionary.cast(pa.string()))


def names_read(trace: Trace) -> list[str]:
    """The name of the file of each read."""
    names = _names(trace)
    return [names[file] for file in trace.item.tolist()]


def file_sizes(trace: Trace) -> dict[str, int]:
    """The size of each file."""
    return dict(zip(_names(trace), trace.size_bytes.tolist(), strict=True))


def replay(trace: Trace, marks: Marks, order: str, held_bytes: int) -> Result:
    """The reads through a cache whose steward follows `order` and holds up to `held_bytes` at each read."""
    told = context_of(LoadedTrace(trace, pa.table({}), ()))

    def live(_held_bytes: int) -> EvictionOrder:
        return new_order(order, marks.high_bytes, None)  # as a live cache's steward makes it

    return run_policy(order, trace, held_bytes, policy=Replayed(told, live))


def replay_purge(trace: Trace, marks: Marks) -> Result:
    """The reads through an XCache that purges by itself."""
    return simulate(trace, CacheConfig(*marks, purge_interval_s=_READS_PER_CHECK))


def _names(trace: Trace) -> list[str]:
    assert trace.names is not None
    names: list[str] = trace.names.to_pylist()
    return names
