"""Every policy, libCacheSim's beside ours, on public traces and generated regions at several capacities.

bench/leaderboard.py                          five generated regions of a million accesses
bench/leaderboard.py --public                 two public traces of ../shared/data, an archive's and a CDN's
bench/leaderboard.py --short                  one small region and one capacity: whether it still runs
bench/leaderboard.py --capacity-fraction 0.1 --ours              other capacities, ours alone

The first table is the share of the way from LRU's WAN bytes to those of the bound that a policy closes, the
mean over the capacities, and the most WAN bytes beside LRU's in one comparison. The second has the shares of
objects and bytes that public traces miss. What learns, learns from the days before those that count, and
anew each week.

Needs the environment that `make verify` makes: .venv/bin/python bench/leaderboard.py
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
from boards import PUBLIC, REGIONS, ROOT, Board, public, region
from leaderboard_rivals import Replayed, rivals_on

from features.common.progress import unwatched
from features.results import LRU, STEWARD
from models.learning.order import Learning
from replay.comparison import BOUND, Candidates, compare
from replay.policies import POLICIES
from replay.steward.policies import AUTO, steward_policy

PICTURE = ROOT / "docs" / "pictures" / "gap.svg"
SHOWN = {
    STEWARD: "cachecast, learned order",
    "libcachesim-3lcache": "3L-Cache",
    "libcachesim-lrb": "LRB",
    "s3fifo": "S3-FIFO",
    "sieve": "SIEVE",
    "gdsf": "GDSF",
    "libcachesim-arc": "ARC",
}
"""Policies of the picture."""
TITLES = {"dandi": "an archive's reads (DANDI)", "cran": "a CDN's reads (CRAN)"}
CEILINGS = (BOUND, "clairvoyant", "clairvoyant-bypass")
"""Rows that know the future; no policy competes with them."""


class Score(NamedTuple):
    """One policy on one trace at one capacity; `hit_ratio` is None for a bound on bytes."""

    trace: str
    fraction: float
    policy: str
    gap_closed: float | None
    beside_lru: float
    hit_ratio: float | None
    byte_hit_ratio: float


def main() -> None:
    """Replay, and print the tables."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "cachecast"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--public", action="store_true", help="public traces instead of generated regions")
    parser.add_argument("--capacity-fraction", default="0.01,0.02,0.05,0.1,0.2,0.4")
    parser.add_argument("--ours", action="store_true", help="without libCacheSim's policies")
    parser.add_argument("--short", action="store_true", help="a small region")
    options = parser.parse_args()
    fractions = [0.1] if options.short else [float(text) for text in options.capacity_fraction.split(",")]
    scores = [score for board in boards(options) for score in scored(board, fractions, options.ours)]
    print(f"Gap closed, mean over the capacities {', '.join(f'{share:g}' for share in fractions)}\n")
    table(gaps(scores))
    if options.public:
        draw(gaps(scores), PICTURE)
        print("\nObjects missed / bytes missed, by trace and capacity\n")
        table(misses(scores))


def boards(options: argparse.Namespace) -> Iterator[Board]:
    """The traces asked for, one after the other."""
    if options.short:
        yield region("prague", 30_000, seed=101)
    elif options.public:
        yield from map(public, PUBLIC)
    else:
        yield from (region(name, 1_000_000, seed=101) for name in REGIONS)


def scored(board: Board, fractions: Sequence[float], ours_alone: bool) -> Iterator[Score]:
    """A score of each policy at each capacity of a trace."""
    rooms = {board.capacity(fraction): fraction for fraction in fractions}
    orders = Learning(board.trace, board.story, sorted(rooms)).orders(board.from_s, unwatched)
    stewards = {name: steward_policy(name, board.story, orders) for name in (STEWARD, AUTO)}
    policies = {**dict.fromkeys((*POLICIES, BOUND)), **stewards}
    lineups = [Candidates(room, policies) for room in rooms]
    n_counted = board.trace.n_accesses - board.trace.first_at(board.from_s)
    with contextlib.ExitStack() as stack:
        rivals = None if ours_alone else stack.enter_context(rivals_on(board))
        for at in compare(board.trace, lineups, count_from_s=board.from_s):
            ours = {name: Replayed(row.result.hits, row.result.wan_bytes) for name, row in at.rows.items()}
            theirs = {} if rivals is None else rivals(at.capacity_bytes)
            requested = at.rows[LRU].result.bytes_requested
            lru, bound = ours[LRU].wan_bytes, ours[BOUND].wan_bytes
            for name, (hits, wan_bytes) in {**ours, **theirs}.items():
                yield Score(
                    board.name,
                    rooms[at.capacity_bytes],
                    name,
                    (lru - wan_bytes) / (lru - bound) if lru > bound else None,
                    wan_bytes / max(1, lru),
                    None if name == BOUND else hits / n_counted,
                    1 - wan_bytes / requested,
                )
            print(f"{board.name} {rooms[at.capacity_bytes]:g}: done", file=sys.stderr, flush=True)


def gaps(scores: Sequence[Score]) -> list[dict[str, str]]:
    """A row per policy: the mean over the capacities of each trace, the best mean first."""
    closed: dict[str, dict[str, list[float]]] = {}
    worst: dict[str, float] = {}
    for score in scores:
        if score.gap_closed is not None and score.policy not in (*CEILINGS, LRU):
            closed.setdefault(score.policy, {}).setdefault(score.trace, []).append(score.gap_closed)
            worst[score.policy] = max(worst.get(score.policy, 0.0), score.beside_lru)
    means = {name: {trace: sum(of) / len(of) for trace, of in by.items()} for name, by in closed.items()}
    overall = {name: sum(of.values()) / len(of) for name, of in means.items()}
    traces = dict.fromkeys(score.trace for score in scores)
    return [
        {"policy": name, "all": f"{overall[name]:.0%}"}
        | {trace: f"{means[name][trace]:.0%}" if trace in means[name] else "–" for trace in traces}
        | {"worst WAN / LRU": f"{worst[name]:.3f}"}
        for name in sorted(means, key=lambda name: -overall[name])
    ]


def draw(rows: Sequence[Mapping[str, str]], path: Path) -> None:
    """The README's picture: the gap that some policies close on each trace."""
    by_policy = {row["policy"]: row for row in rows if row["policy"] in SHOWN}
    names = sorted(by_policy, key=lambda name: int(by_policy[name]["all"].rstrip("%")))
    traces = [column for column in rows[0] if column not in ("policy", "all", "worst WAN / LRU")]
    figure, panels = plt.subplots(1, len(traces), figsize=(8.6, 2.7), sharey=True, layout="constrained")
    for axes, trace in zip(panels, traces, strict=True):
        closed = [int(by_policy[name][trace].rstrip("%")) for name in names]
        colours = ["#0b6e99" if name == STEWARD else "#b3bdc4" for name in names]
        bars = axes.barh([SHOWN[name] for name in names], closed, color=colours)
        axes.bar_label(bars, [f"{percent} %" for percent in closed], padding=3, fontsize=9)
        axes.axvline(100, color="#333", linewidth=1)
        axes.set(xlim=(min(0, *closed) - 26, 106), title=TITLES[trace])
        axes.set_xlabel("gap to the bound that is closed, % (LRU 0)")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def misses(scores: Sequence[Score]) -> list[dict[str, str]]:
    """A row per policy, the one with the fewest bytes missed first; a bound on bytes has no objects."""
    cells: dict[str, dict[str, str]] = {}
    served: dict[str, float] = {}
    for score in scores:
        objects = "–" if score.hit_ratio is None else f"{1 - score.hit_ratio:.1%}"
        column = f"{score.trace} {score.fraction:.0%}"
        cells.setdefault(score.policy, {})[column] = f"{objects} / {1 - score.byte_hit_ratio:.1%}"
        served[score.policy] = served.get(score.policy, 0.0) + score.byte_hit_ratio
    most = max(map(len, cells.values()))
    whole = [name for name, of in cells.items() if len(of) == most]
    return [{"policy": name} | cells[name] for name in sorted(whole, key=lambda name: -served[name])]


def table(rows: Sequence[Mapping[str, str]]) -> None:
    """Print rows as a table in Markdown."""
    print(f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    for row in rows:
        print(f"| {' | '.join(row.values())} |")


if __name__ == "__main__":
    main()
