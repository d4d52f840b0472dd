"""24 caches of unequal size that serve 10⁹ accesses in a stream: LRU, and the steward's learned order.

bench/federation.py                               10⁹ accesses; the steward serves a million of three caches
bench/federation.py --accesses 1e7                a federation a hundredth as large, over the same days
bench/federation.py --steward-accesses 0          LRU only

The capacities are those of the SoCal federation (24 nodes, 24 TB to 388 TB). Each cache has a stream of its
own, drawn by bench/federation_draw.py from the categories of conf/workloads/socal.toml. A thread draws and
serves a cache, chunk after chunk, one thread per core. No access is kept, so memory depends on the files that
are known at a time. LRU's hits are counted after the first tenth of each stream.

The steward's order takes over a thousand times as long as LRU, so it serves a sample: the accesses of three
caches from day 30 on, by one order that is learned from the first 30 days of one cache. What it would take
for all accesses is extrapolated, and marked so.

Needs the environment that `make verify` makes: .venv/bin/python bench/federation.py
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]  # rooms before this folder, whose replay.py is none

from federation_draw import LIFE_DAYS, PASS_DAYS, REST_DAYS, Drawing  # noqa: E402

from features.arrays import BoolArray, IntArray  # noqa: E402
from features.stream.state import Files  # noqa: E402
from features.times import DAY_S  # noqa: E402
from models.learning.order import Learning, Learnt, ladder_of  # noqa: E402
from replay.kernels.inline import BYTES, HIT_BYTES, HITS, OUTLIVED, REQUESTS, Cache, Chunk, empty_cache  # noqa: E402
from replay.kernels.valued import N_HELD  # noqa: E402
from replay.policies.learned import LearnedCache, Order  # noqa: E402
from replay.policies.lru import LruCache  # noqa: E402
from replay.story import Story  # noqa: E402
from replay.threads import threads  # noqa: E402
from replay.trace import Trace  # noqa: E402
from replay.workload import WorkloadConfig  # noqa: E402

SCENARIO = ROOT / "conf" / "workloads" / "socal.toml"
FULL = 1e9
DAYS = 365
TB = 10**12
CAPACITIES_TB = (*[24.0] * 12, 44.0, *np.geomspace(96, 388, 11).tolist())
"""SoCal's 24 nodes: 12 of 24 TB, one of 44 TB and 11 of 96 TB to 388 TB, whose steps are assumed even."""
LOADS = (1.0, 0.5, 2.0)
"""Accesses per byte of capacity, in turn: so files known and files on disk do not grow alike."""
CHUNK = 1 << 18
COUNTED_FROM = 0.1
LEARN_DAYS = 30
MOST_LEARNED = 600_000
"""The order is learned from the busiest cache with at most so many accesses in LEARN_DAYS."""
MWT2_MONTH = 7_142_301
"""Accesses of a site in a month: the sum of the categories in the DOMA review of caching, MWT2."""
GROWTH = 10
"""Luminosity of HL-LHC over that of LHC: EPJ Web Conf. 251, 02006 (2021). Assumed: reads grow alike."""


class Site(NamedTuple):
    """A cache: its capacity, its accesses, their rate, and the seed that they are drawn from."""

    name: str
    capacity_bytes: int
    n_accesses: int
    seed: int

    @property
    def per_s(self) -> float:
        """Accesses per second."""
        return self.n_accesses / (DAYS * DAY_S)

    def drawing(self, most: int = CHUNK) -> Drawing:
        """The stream from its beginning, in chunks of at most `most` accesses."""
        config = WorkloadConfig.from_mapping(tomllib.loads(SCENARIO.read_text(encoding="utf-8")))
        return Drawing(config.categories, self.per_s, self.seed, most=most)


class Served(NamedTuple):
    """What a policy did at a site. `n_accesses` took `draw_s` and `serve_s`, CPU seconds.

    `n_known`, `n_held`: files whose numbers are in use, and on disk, at the end. `tally`: of the accesses
    that count.
    """

    site: Site
    n_accesses: int
    n_known: int
    n_held: int
    tally: IntArray
    draw_s: float
    serve_s: float

    @property
    def rate(self) -> float:
        """Accesses served per second of CPU time."""
        return self.n_accesses / self.serve_s

    @property
    def renewals(self) -> float:
        """Bytes that came in, over the capacity."""
        return float(self.tally[BYTES] - self.tally[HIT_BYTES]) / self.site.capacity_bytes


class Serving(Protocol):
    """A cache that serves a stream."""

    cache: Cache

    def serve(self, chunk: Chunk, hit: BoolArray) -> None:
        """Serve the accesses that follow those of the chunk before."""
        ...


def main() -> None:
    """Print what each policy took, and what it would take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accesses", type=float, default=FULL, help="of all caches, 1e4 or more")
    parser.add_argument("--steward-accesses", type=float, default=1e6, help="of each sampled cache")
    given = parser.parse_args()
    if not 1e4 <= given.accesses <= 1e11 or not 0 <= given.steward_accesses <= 1e9:
        parser.error("--accesses must be from 1e4 to 1e11, --steward-accesses from 0 to 1e9")
    all_sites = sites(int(given.accesses))
    total = sum(site.n_accesses for site in all_sites)
    print(
        f"{total} accesses of {len(all_sites)} caches, {sum(CAPACITIES_TB) / 1000:.2f} PB"
        + ("" if given.accesses == FULL else f" × {given.accesses / FULL:g}")
        + f", drawn over {DAYS} days; {_cores()} cores\n\n"
        "known files: numbers in use at the end; renewed: bytes that came in while hits were counted, over\n"
        "the capacity. An order that renewed a disk less than once is still near the LRU that filled it.\n"
    )
    _compile()
    print_lru(all_sites)
    if given.steward_accesses:
        print_steward(all_sites, int(given.steward_accesses))


def sites(n_accesses: int) -> list[Site]:
    """The caches, with `n_accesses` altogether; capacities in proportion to these."""
    weight = np.array(CAPACITIES_TB) * np.resize(LOADS, len(CAPACITIES_TB))
    edges = np.rint(np.cumsum(weight) / weight.sum() * n_accesses).astype(np.int64)
    counts = np.diff(edges, prepend=0).tolist()
    return [
        Site(f"{k + 1} ({tb:.0f} TB)", int(tb * TB * n_accesses / FULL), counts[k], k + 1)
        for k, tb in enumerate(CAPACITIES_TB)
    ]


def _compile() -> None:
    """Compile the kernels before anything is measured."""
    served_by_lru(Site("first", TB, 1000, 1))


# --- LRU ---


def print_lru(all_sites: Sequence[Site]) -> None:
    """Serve every access by LRU, one cache per core at a time, the busiest first; print a row for each."""
    began = time.monotonic()
    order = sorted(all_sites, key=lambda site: -site.n_accesses)
    found = _each([lambda site=site: [served_by_lru(site)] for site in order])
    wall_s = time.monotonic() - began
    rows = sorted((row for (row,) in found), key=lambda row: row.site.seed)
    print("LRU, every access:\n")
    _print_table(rows)
    print()
    _print_sum("LRU", rows)
    n = sum(row.n_accesses for row in rows)
    print(f"drawing and LRU together: {wall_s:.0f} s, {_shown(n / wall_s)} accesses/s on {_cores()} cores")
    print(f"files that outlived the rest of their numbers on disk: {sum(r.tally[OUTLIVED] for r in rows)}")
    print(f"peak memory of the process: {_peak_gb():.2f} GB")
    _print_year("LRU", n / sum(row.serve_s for row in rows))
    _print_growth(rows)


def served_by_lru(site: Site) -> Served:
    """Every access of a site, by LRU."""
    drawing = site.drawing()
    lru = LruCache(empty_cache(np.zeros(drawing.n_files, np.int64), site.capacity_bytes))
    first = int(COUNTED_FROM * site.n_accesses)
    (begun,) = _serve(drawing, [lru], first)
    before = lru.cache.tally.copy()
    (rest,) = _serve(drawing, [lru], site.n_accesses - first)
    return _served(site, drawing, lru, before, begun.plus(rest))


# --- the steward's order ---


def print_steward(all_sites: Sequence[Site], n_accesses: int) -> None:
    """Learn an order, and serve a sample by it beside LRU; print what it took, and what all would take."""
    began = time.process_time()
    taught_by = _teacher(all_sites)
    learnt = learned_at(taught_by)
    print(f"\nSteward's order, learned from the first {LEARN_DAYS} days of cache {taught_by.name}", end="")
    if learnt is None:
        print(": too few accesses to learn from")
        return
    print(
        f" in {time.process_time() - began:.0f} CPU s: horizons up to "
        f"{learnt.rungs.horizons_s[-1] / 3600:g} h, share {learnt.shares[0]:g}.\n"
        f"It serves {n_accesses} accesses of three caches, from day {LEARN_DAYS} on:\n"
    )
    found = _each(
        [lambda site=site: served_by_steward(site, learnt, n_accesses) for site in _sample(all_sites)]
    )
    rows = sorted((pair[1] for pair in found), key=lambda row: row.site.seed)
    beside = {pair[0].site: pair[0] for pair in found}
    _print_table(rows)
    print()
    _print_sum("steward", rows)
    _print_sum("LRU on the same", [beside[row.site] for row in rows])
    print(f"peak memory of the process: {_peak_gb():.2f} GB")
    rate = sum(row.n_accesses for row in rows) / sum(row.serve_s for row in rows)
    total = sum(site.n_accesses for site in all_sites)
    hours = total / rate / _cores() / 3600
    print(f"extrapolated: all {total} accesses would take {hours:.1f} h on {_cores()} cores")
    _print_year("steward, extrapolated", rate)
    _print_growth(rows)


def _teacher(all_sites: Sequence[Site]) -> Site:
    by_accesses = sorted(all_sites, key=lambda site: site.n_accesses)
    few = [site for site in by_accesses if site.per_s * LEARN_DAYS * DAY_S <= MOST_LEARNED]
    return few[-1] if few else by_accesses[0]


def _sample(all_sites: Sequence[Site]) -> list[Site]:
    """The busiest cache, one in the middle and the one with fewest accesses."""
    order = sorted(all_sites, key=lambda site: -site.n_accesses)
    return [order[0], order[len(order) // 2], order[-1]]


def learned_at(site: Site) -> Learnt | None:
    """An order for the site's capacity from its first LEARN_DAYS; None if they are too few."""
    trace, story = beginning(site, LEARN_DAYS * DAY_S)
    learning = Learning(trace, story, [site.capacity_bytes])
    return learning.learn(LEARN_DAYS * DAY_S, lambda done, of, what: None)


def beginning(site: Site, until_s: float) -> tuple[Trace, Story]:
    """A site's accesses before a time, as one trace; until LIFE_DAYS no number is used again."""
    drawing = site.drawing()
    size = np.zeros(drawing.n_files, np.int64)
    dataset, tier = np.zeros(size.size, np.int32), np.zeros(size.size, np.int32)
    columns = []
    while (chunk := drawing.next(CHUNK, until_s)).item.size:
        births = chunk.births
        size[births.item], dataset[births.item] = births.size_bytes, births.dataset
        tier[births.item] = births.tier
        columns.append([column.copy() for column in chunk[:3]])
    time_s, item, reader = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    files = _files(drawing)._replace(dataset=dataset, tier=tier, size_bytes=size)
    return Trace(time_s, item, size), Story(files, drawing.n_datasets, reader)


def served_by_steward(site: Site, learnt: Learnt, n_accesses: int) -> list[Served]:
    """LRU and the steward on `n_accesses` from LEARN_DAYS on."""
    drawing, from_s = site.drawing(), float(LEARN_DAYS * DAY_S)
    files = _files(drawing)
    orders = [Order(from_s, ladder_of(learnt.rungs), learnt.shares[0])]
    both: list[Serving] = [
        LruCache(empty_cache(np.zeros(drawing.n_files, np.int64), site.capacity_bytes)),
        LearnedCache(files, drawing.n_datasets, orders, empty_cache(files.size_bytes, site.capacity_bytes)),
    ]
    _serve(drawing, both, site.n_accesses, from_s)
    before = [one.cache.tally.copy() for one in both]
    spent = _serve(drawing, both, n_accesses)
    return [_served(site, drawing, *one) for one in zip(both, before, spent, strict=True)]


def _files(drawing: Drawing) -> Files:
    """What is known of files before any is born; no catalogue is used."""
    m = drawing.n_files
    return Files(
        dataset=np.zeros(m, np.int32),
        tier=np.zeros(m, np.int32),
        size_bytes=np.zeros(m, np.int64),
        rank=np.full(m, -1, np.int32),
        n_files=np.zeros(drawing.n_datasets, np.int64),
        history_s=np.inf,
    )


# --- both ---


class Spent(NamedTuple):
    """Accesses served, and CPU seconds of drawing and of serving them."""

    n_accesses: int
    draw_s: float
    serve_s: float

    def plus(self, more: Spent) -> Spent:
        """Both together."""
        return Spent(*(one + other for one, other in zip(self, more, strict=True)))


def _serve(drawing: Drawing, caches: Sequence[Serving], n: int, until_s: float = np.inf) -> list[Spent]:
    """Serve at most `n` accesses before a time to each cache; what each took."""
    hit = np.zeros(CHUNK, np.bool_)
    left, draw_s, serve_s = n, 0.0, [0.0] * len(caches)
    while left > 0:
        began_s = time.thread_time()
        chunk = drawing.next(min(CHUNK, left), until_s)
        draw_s += time.thread_time() - began_s
        if not chunk.item.size:
            break
        left -= chunk.item.size
        for k, one in enumerate(caches):
            began_s = time.thread_time()
            one.serve(chunk, hit)
            serve_s[k] += time.thread_time() - began_s
    return [Spent(n - left, draw_s, took_s) for took_s in serve_s]


def _served(site: Site, drawing: Drawing, one: Serving, before: IntArray, spent: Spent) -> Served:
    """What a cache did since its tally was `before`."""
    tally, n_held = one.cache.tally - before, int(one.cache.disk.sums[N_HELD])
    return Served(site, spent.n_accesses, drawing.n_known, n_held, tally, spent.draw_s, spent.serve_s)


def _each(work: Sequence[Callable[[], list[Served]]]) -> list[list[Served]]:
    """The results of `work`, one piece per core at a time; progress on stderr."""
    began, n = time.monotonic(), 0
    found: list[list[Served]] = []
    with threads(_cores()) as pool:
        for done in as_completed([pool.submit(one) for one in work]):
            found.append(done.result())
            n += sum(row.n_accesses for row in found[-1])
            took_s = time.monotonic() - began
            print(
                f"{len(found)} of {len(work)} caches, {took_s:.0f} s, {_shown(n / took_s)} accesses/s",
                file=sys.stderr,
                flush=True,
            )
    return found


def _print_table(rows: Sequence[Served]) -> None:
    print(
        "| cache | accesses | known files | on disk | renewed "
        "| hits | byte hits | accesses/s and core | drawn/s |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    for row in rows:
        hits, byte_hits = _hits([row])
        drawn = _shown(row.n_accesses / row.draw_s)
        print(
            f"| {row.site.name} | {row.n_accesses} | {row.n_known} | {row.n_held} | {row.renewals:.3g} "
            f"| {hits:.3f} | {byte_hits:.3f} | {_shown(row.rate)} | {drawn} |"
        )


def _print_sum(what: str, rows: Sequence[Served]) -> None:
    hits, byte_hits = _hits(rows)
    n, cpu_s = sum(row.n_accesses for row in rows), sum(row.serve_s for row in rows)
    print(
        f"{what}: {n} accesses in {cpu_s:.1f} CPU s, {_shown(n / cpu_s)} accesses/s and core; "
        f"hits {hits:.3f}, byte hits {byte_hits:.3f}"
    )


def _print_year(what: str, rate: float) -> None:
    """On paper: MWT2's month, twelve times, at as many sites as there are caches, times GROWTH."""
    n_sites = len(CAPACITIES_TB)
    year = MWT2_MONTH * 12 * n_sites * GROWTH
    at_site = year / n_sites / (365 * DAY_S)
    print(
        f"{what}, a year of HL-LHC on paper: {MWT2_MONTH / 1e6:.2f} M accesses a month (MWT2) "
        f"× 12 × {n_sites} sites × {GROWTH} = {year:.2g} accesses, {year / rate / 3600:.2g} core hours; "
        f"beside a live cache, {at_site:.0f} accesses/s take {at_site / rate:.2g} of a core"
    )


_GROWING = ("n_known", "n_held", "rate")


def _print_growth(rows: Sequence[Served]) -> None:
    """How the CPU time per access grows with the files."""
    known, held, rate = (np.array([max(1.0, getattr(row, name)) for row in rows]) for name in _GROWING)
    few, many = int(known.argmin()), int(known.argmax())
    print(
        f"from cache {rows[few].site.name} to {rows[many].site.name}: files known × "
        f"{known[many] / known[few]:.3g}, files on disk × {held[many] / held[few]:.3g}, "
        f"CPU time per access × {rate[few] / rate[many]:.2f}"
    )
    if len(rows) > 3:
        logs = np.column_stack([np.ones(len(rows)), np.log(known), np.log(held)])
        (_, by_known, by_held), *_ = np.linalg.lstsq(logs, -np.log(rate), rcond=None)
        print(f"CPU time per access ~ (files known)^{by_known:.2f} · (files on disk)^{by_held:.2f}")
    print(
        f"numbers of files needed: of those born in {LIFE_DAYS + PASS_DAYS + REST_DAYS:g} days; they grow "
        "with the accesses per second, not with the accesses so far"
    )


def _hits(rows: Sequence[Served]) -> tuple[float, float]:
    """Hits per access and per byte."""
    tally = np.sum([row.tally for row in rows], axis=0)
    return float(tally[HITS] / max(1, tally[REQUESTS])), float(tally[HIT_BYTES] / max(1, tally[BYTES]))


def _shown(rate: float) -> str:
    """In millions or thousands."""
    return f"{rate / 1e6:.1f} M" if rate >= 1e6 else f"{rate / 1e3:.1f} k"


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def _cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()
