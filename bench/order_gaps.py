"""How much of the gap between LRU and the bound the learned order closes: means over cuts, worlds and seeds.

bench/order_gaps.py                                   two public traces and five generated regions
bench/order_gaps.py --regions mwt2 --worlds 101,102   worlds of a region, and the public traces
bench/order_gaps.py --regions --seeds 1               the public traces alone, one seed of the learner each

A public trace is counted from several days, a generated region from its middle. An order is learned from what
lies before, and anew each week. `learned` follows it alone, `auto` is what a cache's steward does. ± is the
standard error over runs: cuts and seeds of one trace, worlds of one region. `most WAN` is the largest share
of LRU's WAN bytes that a run fetched at a capacity. A gap of nothing counts as 0 closed.

Needs the environment that `make verify` makes: .venv/bin/python bench/order_gaps.py
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from boards import REGIONS, Board, public, region

from features.common.arrays import FloatArray
from features.common.progress import unwatched
from features.results import LRU, S3FIFO, STEWARD
from models.learning import order
from replay.comparison import BOUND, Candidates, compare
from replay.steward.policies import steward_policy

CUTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "dandi": ("2025-07-20", "2025-07-23", "2025-07-25", "2025-07-28"),
        "cran": ("2014-12-26", "2014-12-31", "2015-01-04"),
    }
)
SHOWN: Mapping[str, str] = MappingProxyType(
    {STEWARD: "learned", f"{STEWARD}-auto": "auto", S3FIFO: "S3-FIFO"}
)


class Run(NamedTuple):
    """At each capacity, by policy: the gap closed, and WAN bytes as a share of LRU's."""

    gap: Mapping[str, FloatArray]
    wan: Mapping[str, FloatArray]


def run_of(board: Board, shares: Sequence[float]) -> Run:
    """Replay a trace at capacities that are shares of what is read."""
    rooms = [board.capacity(share) for share in shares]
    orders = order.Learning(board.trace, board.story, rooms).orders(board.from_s, unwatched)
    stewards = {name: steward_policy(name, board.story, orders) for name in SHOWN if name != S3FIFO}
    policies = {LRU: None, BOUND: None, S3FIFO: None, **stewards}
    sizes = compare(board.trace, [Candidates(room, policies) for room in rooms], count_from_s=board.from_s)
    gaps: dict[str, list[float]] = {name: [] for name in SHOWN}
    wan: dict[str, list[float]] = {name: [] for name in SHOWN}
    for comparison in sizes:
        for name in SHOWN:
            gap = comparison.gap(name)
            gaps[name].append((gap.closed if gap else None) or 0.0)
            bytes_of = [int(comparison.rows[of].result.daily.wan_bytes.sum()) for of in (name, LRU)]
            wan[name].append(bytes_of[0] / max(1, bytes_of[1]))
    return Run(*({name: np.array(of) for name, of in values.items()} for values in (gaps, wan)))


def runs(
    boards: Sequence[Callable[[], Board]], seeds: Sequence[int], shares: Sequence[float]
) -> Iterator[Run]:
    """A run of each trace with each seed of the learner."""
    for loaded in boards:
        board = loaded()
        for seed in seeds:
            order.LEARNER = dataclasses.replace(order.LEARNER, seed=seed)
            yield run_of(board, shares)
        print(f"{board.name} from {board.from_s}: done", file=sys.stderr, flush=True)


def means(of: np.ndarray) -> str:
    """The mean of each column and its standard error over rows, as cells of a table; of one row no error."""
    if len(of) == 1:
        return " | ".join(f"{value:.3f}" for value in of[0])
    error = of.std(axis=0, ddof=1) / np.sqrt(len(of))
    return " | ".join(f"{mean:.3f} ± {e:.3f}" for mean, e in zip(of.mean(axis=0), error, strict=True))


def table(title: str, by_place: Mapping[str, Sequence[Run]], shares: Sequence[float]) -> None:
    """Print a row for each place and policy, and the mean over all runs of several places."""
    print(f"{title}\n\n| trace | runs | order | {' | '.join(f'{s:.0%}' for s in shares)} | mean | most WAN |")
    print(f"|{'---|' * (5 + len(shares))}")
    whole = {"all": [run for of in by_place.values() for run in of]} if len(by_place) > 1 else {}
    for place, of in {**by_place, **whole}.items():
        for name, heading in SHOWN.items():
            gaps = np.array([run.gap[name] for run in of])
            most = max(float(run.wan[name].max()) for run in of)
            cells = means(np.column_stack([gaps, gaps.mean(axis=1)]))
            print(f"| {place} | {len(of)} | {heading} | {cells} | {most:.3f} |")
    print(flush=True)


def main() -> None:
    """Print a table of the public traces, and one of the generated regions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--regions", nargs="*", default=REGIONS)
    parser.add_argument("--worlds", default="101,102,103", help="seeds of the generator")
    parser.add_argument("--accesses", type=int, default=120_000, help="of a region")
    parser.add_argument("--public", nargs="*", default=list(CUTS))
    parser.add_argument("--seeds", default="1,2", help="of the learner, on the public traces")
    options = parser.parse_args()
    worlds, seeds = ([int(number) for number in text.split(",")] for text in (options.worlds, options.seeds))
    of_public = {name: [partial(public, name, cut) for cut in CUTS[name]] for name in options.public}
    of_regions = {
        name: [partial(region, name, options.accesses, world) for world in worlds] for name in options.regions
    }
    for title, boards, tried, shares in (
        ("Public traces, gap closed by capacity", of_public, seeds, order.CAPACITY_FRACTIONS),
        ("Generated regions, gap closed by capacity", of_regions, [1], (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)),
    ):
        if boards:
            table(title, {name: list(runs(of, tried, shares)) for name, of in boards.items()}, shares)


if __name__ == "__main__":
    main()
