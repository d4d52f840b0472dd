"""Two XCaches side by side: the same reads, one evicts by LRU, the other by a learned order.

The order is learned from the reads before, and a replay has the same reads. Both caches have a steward:
XCache's own purge is LRU too, but comes once a minute at most, when all is read here.
"""

import dataclasses
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Final

import matplotlib as mpl
import numpy as np
import pyarrow as pa

from features.common.progress import Advance, unwatched
from features.common.units import format_bytes
from features.results import LRU, STEWARD
from jobs.ground.text import Row, count, percent
from jobs.local_site.demo.side import READ_EVERY_S, Observation, read_through
from jobs.local_site.demo.site import Marks, fresh
from jobs.local_site.demo.xcache import reported_reads
from jobs.local_site.local.xrootd import available
from jobs.pages.drawing import STYLE, Plot, Point
from jobs.pages.page import Figure, Section
from jobs.pages.plots import styles
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
from replay.steward import ArrayOrder, new_order
from replay.steward.policies import Replayed
from replay.trace import Trace
from replay.workload import generate

PLAIN = "plain"
ORDERS: Final[Mapping[str, str]] = MappingProxyType({PLAIN: LRU, STEWARD: "learned"})  # by cache
CAPACITY_SHARE: Final = 0.2  # what a cache may hold of the bytes of all files read
LOW, HIGH = 0.75, 0.95  # watermarks: far apart, because so much comes between two looks here
READS: Final = 1800
_GENERATED: Final = 20_000  # reads; the caches serve the last ones, the order learns from those before
_ROWS: Final = 40_000  # of the training, which then takes seconds
_SCALE: Final = 5e-5  # of sizes: an AOD file has about 100 kB
_PAGE_BYTES: Final = 4096
_READS_PER_CHECK: Final = 12  # of XCache's disk by itself, as often as a steward looks at it
_POINTS: Final = 60  # of each line of the plot
_MEGA: Final = 1e6


@dataclasses.dataclass(frozen=True)
class Side:
    """One cache: what was seen of it, None where no XRootD server runs; and the replay of its reads."""

    cache: str
    evicts_by: str
    seen: Observation | None
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
    observed = _live(out, trace, base, served, on_progress) if missing is None else {}
    sides = []
    for name, order in ORDERS.items():
        seen = observed.get(name)
        # With the capacity that it used on average.
        held_bytes = limits.low_bytes if seen is None else seen.mean_bytes
        replayed = replay(trace, limits, order, held_bytes, [served.order])
        sides.append(Side(name, order, seen, replayed.byte_hit_ratio, replayed.wan_bytes))
    plain, steward = sides
    purge = replay_purge(trace, limits).byte_hit_ratio
    n_before = period.n_accesses - trace.n_accesses
    return Pair(limits.capacity_bytes, limits.high_bytes, plain, steward, purge, missing, n_before)


def marks(trace: Trace) -> Marks:
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
) -> dict[str, Observation]:
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
            return {name: future.result() for name, future in running.items()}
        finally:
            stopping.set()


def all_reads(seed: int) -> Trace:
    """Reads of a period in their order, at the pace of the demo, with the names of the files."""
    reads = generate(workload.load("site", seed=seed, accesses=_GENERATED)).accesses(raw=True)
    names = reads["name"].combine_chunks().dictionary_encode()
    item = names.indices.to_numpy()
    size_bytes = np.zeros(len(names.dictionary), np.int64)
    size_bytes[item] = reads["size_bytes"].to_numpy()
    pages = np.maximum(1, np.round(size_bytes * _SCALE / _PAGE_BYTES)).astype(np.int64)
    time_s = READ_EVERY_S * np.arange(item.size)
    return Trace(time_s, item, pages * _PAGE_BYTES, names.dictionary.cast(pa.string()))


def last_reads(period: Trace) -> Trace:
    assert period.names is not None
    files, item = np.unique(period.item[-READS:], return_inverse=True)
    return Trace(
        period.time_s[-READS:],
        item.astype(np.int32),
        period.size_bytes[files],
        period.names.take(pa.array(files)),
    )


def names_read(trace: Trace) -> list[str]:
    names = _names(trace)
    return [names[file] for file in trace.item.tolist()]


def file_sizes(trace: Trace) -> dict[str, int]:
    return dict(zip(_names(trace), trace.size_bytes.tolist(), strict=True))


def replay(trace: Trace, marks: Marks, order: str, held_bytes: int, learned: Sequence[Order] = ()) -> Result:
    """The reads through a cache whose steward follows `order` and holds up to `held_bytes` at each read."""
    context = context_of(LoadedTrace(trace, pa.table({}), ()))

    def live(_held_bytes: int) -> ArrayOrder:
        return new_order(order, marks.high_bytes, learned)  # as a live cache's steward makes it

    return run_policy(order, trace, held_bytes, policy=Replayed(context, live))


def replay_purge(trace: Trace, marks: Marks) -> Result:
    """The reads through an XCache that purges by itself."""
    return simulate(trace, CacheConfig(*marks, purge_interval_s=_READS_PER_CHECK * READ_EVERY_S))


def _names(trace: Trace) -> list[str]:
    assert trace.names is not None
    names: list[str] = trace.names.to_pylist()
    return names


def section(pair: Pair, out: Path) -> Section:
    """What both caches fetched, read by read; `out`: the folder of their captures.

    Without real caches there is no plot. Raises InputError if a capture cannot be read.
    """
    _, *more = answers_of(pair)
    title = f"Two XCaches of {format_bytes(pair.capacity_bytes)} side by side, with the same reads"
    learned = (
        f"The order was learned from the {count(pair.learned_from)} reads before. Both caches began empty."
    )
    figures = [] if pair.missing else [_figure(out)]
    return Section(title, " ".join([learned, *more]), figures, rows_of(pair))


def _figure(out: Path) -> Figure:
    looks = styles([LRU, STEWARD])
    with mpl.rc_context(STYLE):
        plot = Plot(nearest="x")
        for name, order in ORDERS.items():
            label = f"{name} ({order})"
            points = list(_fetched(reported_reads(out / name / "gstream.txt")))
            look = looks[LRU if name == PLAIN else STEWARD] | {"marker": ""}
            (line,) = plot.axes.plot([point.x for point in points], [point.y for point in points], **look)
            plot.add(label, line, points)
        plot.axes.set(
            xlabel="reads", ylabel="fetched over the WAN so far, MB", xlim=(0, None), ylim=(0, None)
        )
        return Figure(plot, "Bytes that each cache has fetched from its origin; lower is better")


def _fetched(closes: Sequence[Row]) -> Iterator[Point]:
    fetched = list(itertools.accumulate(close["bytes_missed"] for close in closes))
    step = max(1, len(fetched) // _POINTS)
    for n_reads in dict.fromkeys([*range(step, len(fetched) + 1, step), len(fetched)]):
        n_bytes = fetched[n_reads - 1]
        yield Point(n_reads, n_bytes / _MEGA, f"{format_bytes(n_bytes)} after {count(n_reads)} reads")


def rows_of(pair: Pair) -> list[Row]:
    """A row per cache: what it reported, and what its replay says."""
    return [
        {
            "cache": side.cache,
            "evicts_by": side.evicts_by,
            **{name: getattr(side.seen, name, None) for name in ("reads", "byte_hit_ratio", "wan_bytes")},
            "replayed_byte_hit_ratio": side.replayed_byte_hit_ratio,
            "replayed_wan_bytes": side.replayed_wan_bytes,
        }
        for side in (pair.plain, pair.steward)
    ]


def answers_of(pair: Pair) -> Iterator[str]:
    """Sentences: which of two caches fetched less, whether replay agrees, and what the plain one is."""
    plain, steward = pair.plain, pair.steward
    replayed = f"In replay it {_saving(plain.replayed_wan_bytes, steward.replayed_wan_bytes)}."
    if plain.seen is None or steward.seen is None:
        yield f"No real caches, only the replay of the {steward.evicts_by} order: {pair.missing}. {replayed}"
    else:
        live = f"{_saving(plain.seen.wan_bytes, steward.seen.wan_bytes)} of WAN traffic against plain"
        yield (
            f"Side by side in two real caches, the {steward.evicts_by} order {live}, by their own records. "
            f"{replayed}"
        )
        apart = f"{_points(plain, plain.seen)} points (plain) and {_points(steward, steward.seen)} (steward)"
        yield f"Byte hits of the caches and of their replay differ by {apart}."
    purge = percent(pair.purge_byte_hit_ratio, 1)
    yield (
        f"Plain is {plain.evicts_by}, by a steward too: XCache's own purge is LRU, but comes at most once a "
        f"minute. Replayed as if it came at each look of a steward, its byte hits are {purge}."
    )


def _points(side: Side, observed: Observation) -> str:
    return f"{100 * abs(observed.byte_hit_ratio - side.replayed_byte_hit_ratio):.1f}"


def _saving(plain_bytes: int, steward_bytes: int) -> str:
    saved = plain_bytes - steward_bytes
    share = percent(abs(saved) / max(1, plain_bytes), 1)
    return f"{'saves' if saved >= 0 else 'costs'} {format_bytes(abs(saved))} ({share})"
