"""What replacing the order of eviction each week gains, as production does it: train, judge, promote.

bench/weeks.py                              eight weeks of generated regions, and two public traces by days
bench/weeks.py --regions mwt2 --seeds 1     one region; --regions without a name: none
bench/weeks.py --public cran --step-days 2  one public trace

At the beginning of each step a candidate is learned from what lies before it. `decide_order`, the rule of
`cachecast promote`, judges it by a replay of the last 21 days with an order learned at each step of them, as
`evaluate` does: as a first order, or as the successor of one that serves. If it wins, the candidate serves
from then on. The cache is carried from step to step. `never` follows the first order to the end, `always`
takes each candidate; all begin with the first one, so that they differ by replacing alone.

A step's `replacing saves` is what its candidate saves in that step against the order before it, in the cache
that `always` has left, as a share of LRU's WAN bytes. `gap closed`, by step, is of the orders that the gate
let serve as successors.

Needs the environment that `make verify` makes: .venv/bin/python bench/weeks.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from boards import PUBLIC, Board, of_file, public

from features.common.arrays import FloatArray, IntArray
from features.common.progress import unwatched
from features.common.times import DAY_S
from features.results import LRU, S3FIFO, STEWARD
from jobs.loop.evaluate.decisions import daily_wan
from jobs.loop.evaluate.record import Compared, day_rows
from jobs.studies.simulate import workload
from models.evaluation.promotion import MIN_DAYS, decide_order
from models.learning.order import Learning
from replay.comparison import BOUND, Candidates, compare
from replay.policies import PartPolicy, Policy
from replay.policies.learned import Order
from replay.steward.policies import steward_policy

CAPACITY_FRACTIONS = (0.05, 0.1)
REGIONS = ("mwt2", "archive")
DAYS = 56
"""Of a generated region."""
FIRST_DAYS, WARM_DAYS = 7, 14
"""Before the first order that is learned, for a verdict, and before the first that serves."""
NEVER, ALWAYS, FIRST, SUCCESSOR = "never", "always", "gate, as a first order", "gate, as a successor"
CHOICES = (NEVER, ALWAYS, FIRST, SUCCESSOR)


class Walk(NamedTuple):
    """A trace, the capacities `rooms`, and the candidates, one per step.

    The first steps are before the counted ones: verdicts need their orders.
    """

    board: Board
    rooms: list[int]
    candidates: list[Order]

    @property
    def times_s(self) -> list[int]:
        """When each step begins."""
        return [int(order.from_s) for order in self.candidates]

    def follow(self, steps: Sequence[int]) -> Policy | PartPolicy:
        """The candidates of `steps`, one after the other."""
        return steward_policy(STEWARD, self.board.story, [self.candidates[step] for step in steps])

    def is_promoted(self, step: int) -> tuple[bool, bool]:
        """Whether `promote` lets a step's candidate serve, as a first order and as a successor, by an
        evaluation of the days before it.
        """
        at_s = self.times_s[step]
        first = int(np.searchsorted(self.times_s, at_s - MIN_DAYS * DAY_S, side="right")) - 1
        if first < 0:
            return False, False
        trace = self.board.trace.until(at_s)
        policies = {LRU: None, S3FIFO: None, STEWARD: self.follow(range(first, step))}
        lineups = [Candidates(room, policies) for room in self.rooms]
        comparisons = compare(trace, lineups, count_from_s=self.times_s[first])
        compared = [Compared(share, at) for share, at in zip(CAPACITY_FRACTIONS, comparisons, strict=True)]
        days = daily_wan(day_rows(compared, model_version="candidate", scored_by={}))
        return decide_order(days).promote, decide_order(days, is_successor=True).promote

    def by_step(self, wan_bytes: IntArray) -> FloatArray:
        """Sums of the days of each counted step."""
        starts = [(at_s - self.board.from_s) // DAY_S for at_s in self.times_s if at_s >= self.board.from_s]
        return np.add.reduceat(wan_bytes, starts).astype(float)


class Outcome(NamedTuple):
    """WAN bytes per counted step of each choice, of LRU and of the bound, and of each step's other choice.

    `kept`: had this step alone gone on with the order before it; `replaced`: by choice, the steps whose
    candidate serves.
    """

    wan_bytes: Mapping[str, FloatArray]
    kept: FloatArray
    replaced: Mapping[str, list[int]]

    def closed(self, choice: str) -> FloatArray:
        """The gap closed per step."""
        of = self.wan_bytes
        return (of[LRU] - of[choice]) / (of[LRU] - of[BOUND])

    def total(self, choice: str) -> float:
        """The gap closed over all steps."""
        sums = {name: of.sum() for name, of in self.wan_bytes.items()}
        return float((sums[LRU] - sums[choice]) / (sums[LRU] - sums[BOUND]))

    @property
    def saved(self) -> FloatArray:
        """What replacing saves in each step but the first, as a share of LRU's WAN bytes."""
        return ((self.kept - self.wan_bytes[ALWAYS]) / self.wan_bytes[LRU])[1:]


def walked(board: Board, step_days: int) -> Walk:
    """Learn a candidate at each step."""
    step_s = step_days * DAY_S
    n_before = ((board.from_s - int(board.trace.time_s[0])) // DAY_S - FIRST_DAYS) // step_days
    rooms = [board.capacity(share) for share in CAPACITY_FRACTIONS]
    learning = Learning(board.trace, board.story, rooms)
    first_s = board.from_s - max(0, n_before) * step_s
    return Walk(board, rooms, learning.orders(first_s, unwatched, every_s=step_s))


def outcomes(walk: Walk) -> list[Outcome]:
    """Live through the steps by each choice; an outcome per capacity."""
    first = walk.times_s.index(walk.board.from_s)
    steps = range(first, len(walk.times_s))
    served = {NEVER: [first], ALWAYS: list(steps)}
    verdicts = {step: walk.is_promoted(step) for step in steps[1:]}
    for k, choice in enumerate((FIRST, SUCCESSOR)):
        served[choice] = [first, *(step for step, won in verdicts.items() if won[k])]
    return [_outcome(walk, room, first, served) for room in walk.rooms]


def _outcome(walk: Walk, room: int, first: int, served: Mapping[str, list[int]]) -> Outcome:
    others = {f"until {step}": walk.follow(range(first, step)) for step in served[ALWAYS][1:]}
    policies = {
        LRU: None,
        BOUND: None,
        **{name: walk.follow(steps) for name, steps in served.items()},
        **others,
    }
    (comparison,) = compare(walk.board.trace, [Candidates(room, policies)], count_from_s=walk.board.from_s)
    wan = {name: walk.by_step(row.result.daily.wan_bytes) for name, row in comparison.rows.items()}
    wan_bytes = [wan[f"until {step}"][step - first] for step in served[ALWAYS][1:]]
    replaced = {name: [step - first for step in steps] for name, steps in served.items()}
    return Outcome(wan, np.array([wan[ALWAYS][0], *wan_bytes]), replaced)


def main() -> None:
    """Print a table of the choices, and one of the steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--regions", nargs="*", default=REGIONS)
    parser.add_argument("--public", nargs="*", choices=tuple(PUBLIC), default=tuple(PUBLIC))
    parser.add_argument("--seeds", default="101,102", help="of the generated regions")
    parser.add_argument("--accesses", type=int, default=150_000, help="of a generated region, about")
    parser.add_argument("--step-days", type=int, default=2, help="of a public trace; a region has weeks")
    options = parser.parse_args()
    by_board: dict[str, list[list[Outcome]]] = {}
    for name, board, step_days in traces(options):
        by_board.setdefault(name, []).append(outcomes(walked(board, step_days)))
        print(f"{name}: done", file=sys.stderr, flush=True)
    print("| trace | capacity | replace | gap closed | WAN bytes beside always | replaced |")
    print("|---|---|---|---|---|---|")
    rows = [
        (name, share, [of[room] for of in runs])
        for name, runs in by_board.items()
        for room, share in enumerate(CAPACITY_FRACTIONS)
    ]
    for name, share, runs in rows:
        for choice in CHOICES:
            print(f"| {name} | {share:.0%} | {choice} | {_choice(runs, choice)} |")
    print(
        "\n| trace | capacity | replacing saves, mean over steps | by step | the gate replaced | gap closed |"
    )
    print("|---|---|---|---|---|---|")
    for name, share, runs in rows:
        for run in runs:
            by_step = " ".join(f"{saved:+.1%}" for saved in run.saved)
            steps = ", ".join(map(str, run.replaced[SUCCESSOR][1:])) or "none"
            closed = " ".join(f"{closed:.2f}" for closed in run.closed(SUCCESSOR))
            print(f"| {name} | {share:.0%} | {_mean(run.saved, '+.2%')} | {by_step} | {steps} | {closed} |")


def traces(options: argparse.Namespace) -> Iterator[tuple[str, Board, int]]:
    """Each trace with its name and days per step."""
    for name in options.public:
        yield f"{name}, {options.step_days} days", public(name), options.step_days
    for name in options.regions:
        for seed in map(int, options.seeds.split(",")):
            with tempfile.TemporaryDirectory(prefix="cachecast-weeks-") as scratch:
                config = workload.load(name, seed=seed, days=DAYS, accesses=options.accesses)
                path = Path(workload.write(config, out=Path(scratch)).traces)
                board = of_file(name, path, config.start_s + WARM_DAYS * DAY_S)
            yield f"{name}, weeks", board, 7


def _choice(runs: Sequence[Outcome], choice: str) -> str:
    closed = np.array([run.total(choice) for run in runs])
    wan = np.array([run.wan_bytes[choice].sum() / run.wan_bytes[ALWAYS].sum() - 1 for run in runs])
    replaced = sum(len(run.replaced[choice]) - 1 for run in runs)
    of = sum(len(run.saved) for run in runs)
    return f"{_mean(closed, '.3f')} | {_mean(wan, '+.2%')} | {replaced} of {of}"


def _mean(values: FloatArray, form: str) -> str:
    """The mean and its standard error."""
    error = (
        f" ± {format(values.std(ddof=1) / len(values) ** 0.5, form.lstrip('+'))}" if len(values) > 1 else ""
    )
    return f"{format(values.mean(), form)}{error}"


if __name__ == "__main__":
    main()
