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

from features.common.progress import Advance, unwatched
from jobs.demo import habits
from jobs.demo.side import Seen, read_through
from jobs.demo.site import Marks, fresh
from jobs.local.xrootd import available
from replay.trace import Trace

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
    """Read the same through both caches, each with settings and a capture in a folder of `out`.

    `base`: settings that theirs override. Without an XRootD server the reads are replayed alone.
    """
    trace = habits.reads(seed)
    limits, missing = marks(trace), available()
    seen = _live(out, trace, limits, base, on_progress) if missing is None else {}
    plain, steward = (_side(name, trace, limits, seen.get(name)) for name in ORDERS)
    purge = habits.replay_purge(trace, limits).byte_hit_ratio
    return Pair(limits.capacity_bytes, limits.high_bytes, plain, steward, purge, missing)


def marks(trace: Trace) -> Marks:
    """What each of the caches may hold."""
    return Marks(int(CAPACITY_SHARE * trace.footprint_bytes), LOW, HIGH)


def _live(out: Path, trace: Trace, limits: Marks, base: Path | None, on_progress: Advance) -> dict[str, Seen]:
    """What was seen of the caches, which run at the same time."""
    sizes, names, stopping = habits.sizes(trace), habits.names_read(trace), threading.Event()
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
    """A cache beside its replay, in the bytes that it used on average."""
    order, held_bytes = ORDERS[name], limits.low_bytes if seen is None else seen.mean_bytes
    replayed = habits.replay(trace, limits, order, held_bytes)
    return Side(name, order, seen, replayed.byte_hit_ratio, replayed.wan_bytes)
