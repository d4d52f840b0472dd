"""What a batch queue is worth to the learned order, by how long before a task begins it names its files.

bench/queue_leads.py [--accesses N] [--seeds 1,2,3]

Regions are generated and counted from their middle. The queue is that of their own tasks
(`queue_of_tasks.py`) with its faults: read late, naming the files of other tasks, or only some of the
tasks; and of a true one beside one that names only files of other tasks. A row has the gap closed at each
capacity, mean ± standard error over regions and seeds, and the gain over the order without a queue.

Needs the environment that `make verify` makes: .venv/bin/python bench/queue_leads.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from boards import Board, region
from order_gaps import means
from queue_of_tasks import QueueOf, announced, merged_queues, queue_of, weighed

from features.common.progress import unwatched
from features.common.times import HOUR_S
from features.results import LRU, STEWARD
from models.learning.order import CAPACITY_FRACTIONS, Learning
from replay.access_context import NO_QUEUE
from replay.comparison import BOUND, Candidates, compare
from replay.steward.policies import steward_policy

REGIONS = ("mwt2", "prague")
NONE = "no queue"
QUEUES: Mapping[str, QueueOf | None] = MappingProxyType(
    {
        NONE: None,
        "as tasks begin": QueueOf(0),
        "1 h before": QueueOf(HOUR_S),
        "6 h before": QueueOf(6 * HOUR_S),
        "24 h before": QueueOf(24 * HOUR_S),
        "6 h before, read 2 h late": QueueOf(6 * HOUR_S, late_s=2 * HOUR_S),
        "6 h before, 30 % wrong": QueueOf(6 * HOUR_S, wrong=0.3),
        "6 h before, all wrong": QueueOf(6 * HOUR_S, wrong=1.0),
        "6 h before, half missing": QueueOf(6 * HOUR_S, missing=0.5),
    }
)
TRUE, LYING = QueueOf(6 * HOUR_S), QueueOf(6 * HOUR_S, wrong=1.0)
BROKERS: Mapping[str, tuple[tuple[QueueOf, ...], bool]] = MappingProxyType(
    {
        "a true one, weighed": ((TRUE,), True),
        "a liar, weighed": ((LYING,), True),
        "a true one and a liar": ((TRUE, LYING), False),
        "a true one and a liar, weighed": ((TRUE, LYING), True),
    }
)
"""Queues of 6 h, and whether each is believed as far as what it announced was read before."""


def gaps(board: Board, seed: int) -> dict[str, list[float]]:
    """The gap that the learned order closes with each queue, at each capacity."""
    rooms = [board.capacity(share) for share in CAPACITY_FRACTIONS]
    orders = Learning(board.trace, board.story, rooms).orders(board.from_s, unwatched)
    found: dict[str, list[float]] = {}
    is_task = (board.story.reader > 0) & (board.story.reader % 2 == 0)
    task = np.where(is_task, board.story.reader, -1)
    queued = {NONE: NO_QUEUE}
    for name, how in QUEUES.items():
        if how is not None:
            queued[name] = queue_of(board.trace, task, how, np.random.default_rng(seed))
    for name, (brokers, is_weighed) in BROKERS.items():
        said = [announced(board.trace, task, how, np.random.default_rng(seed)) for how in brokers]
        queued[name] = merged_queues([weighed(of, board.trace) for of in said] if is_weighed else said)
    for name, reads in queued.items():
        story = board.story._replace(queued=reads)
        policies = {LRU: None, BOUND: None, STEWARD: steward_policy(STEWARD, story, orders)}
        lineups = [Candidates(room, policies) for room in rooms]
        closed = [one.gap(STEWARD) for one in compare(board.trace, lineups, count_from_s=board.from_s)]
        found[name] = [one.closed or 0.0 for one in closed if one is not None]
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--accesses", type=int, default=120_000)
    parser.add_argument("--seeds", default="1,2,3")
    given = parser.parse_args()
    seeds = [int(one) for one in given.seeds.split(",")]
    runs: list[dict[str, list[float]]] = []
    for name in REGIONS:
        for seed in seeds:
            runs.append(gaps(region(name, given.accesses, seed), seed))
            print(f"{name}, seed {seed}: done", file=sys.stderr, flush=True)
    shares = " | ".join(f"{share:.0%}" for share in CAPACITY_FRACTIONS)
    print(f"{len(runs)} regions of {given.accesses} accesses: {', '.join(REGIONS)}; seeds {given.seeds}\n")
    print(f"| queue | gap closed at {shares} | gain at {shares} |")
    print(f"|---{'|---' * 2 * len(CAPACITY_FRACTIONS)}|")
    without = np.array([run[NONE] for run in runs])
    for name in runs[0]:
        of = np.array([run[name] for run in runs])
        print(f"| {name} | {means(of)} | {means(of - without)} |")


if __name__ == "__main__":
    main()
