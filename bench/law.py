"""How much of the gap can be closed without seeing the future: plans and orders that know the generator.

bench/law.py [SCENARIO …] [--cycle 1h …] [--seed N] [--days N] [--scale X] [--from DAY] [--owned]   Markdown

No model can know more than these scores: the distribution of the time to the next pass over a dataset, the
dataset's popularity, every pass that has begun, and when it reaches each file. Only the random draws are
unknown: whether and when the next pass begins. The first table is the gap to the byte bound closed by plans
with these scores and with perfect ones (bench/plan_gap.py), without prefetches. With "datasets alike" the
scores do not know a dataset's popularity either, which a model must learn from its past. The second table is
the gap closed if every eviction follows the order of these scores, which is renewed at each cycle
(bench/owned.py); `--owned` prints it without the first, which takes longer. The third is the calibration
error of the true chances, which is above 0 because the number of days is finite.

Of a region with habits the law is that of spells and sessions (bench/spell_law.py). Days, scale and first
counted day are those of bench/plan_gap.py, or those of the scenario, counted after a third of the days. Given
the same as `cachecast workload` and `cachecast evaluate --trace`, the order's ceiling is for that evaluation.

Needs the environment that `make verify` makes: .venv/bin/python bench/law.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import ndtr
from scipy.stats import poisson

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from owned import owned  # noqa: E402
from plan_gap import CANDIDATE_S, FRACTIONS, HORIZONS, SCALES, Region, replayed, scores  # noqa: E402
from spell_law import SpellLaw  # noqa: E402

from features.arrays import FloatArray, IntArray  # noqa: E402
from features.times import DAY_S, parse_day  # noqa: E402
from features.units import duration_label, parse_duration  # noqa: E402
from models.evaluation.metrics import calibration_error, reliability  # noqa: E402
from prefetch.plan import Scores  # noqa: E402
from replay.workload import Workload  # noqa: E402
from replay.workload.catalogue import REREAD, knob  # noqa: E402
from replay.workload.rhythm import Rhythm  # noqa: E402

HABITUAL = ("archive",)
JUDGED_EACH_S = 5 * 3600
_PART_MEAN = 0.16
"""Mean share of the files that a pass over a part of a dataset reads (replay.workload.tasks)."""


class Law:
    """Chances of a region's files by the distribution that generated its passes.

    `alike`: the popularity of datasets is unknown; all have the same mean number of passes.
    """

    def __init__(self, region: Region, workload: Workload, *, alike: bool = False) -> None:
        self.region = region
        config, datasets, tasks = workload.config, workload.catalogue.datasets, workload.tasks
        self._rhythm = Rhythm(config)
        self._close, hours, self._median, self._sigma = (
            knob(config, datasets, key)
            for key in ("close_share", "close_hours", "return_days_median", "return_sigma")
        )
        self._close_days = hours / 24
        passes = _mean_passes(workload)
        if alike:
            passes[passes > 0] = passes[passes > 0].mean()
        self._born = datasets.born_day >= 0
        total = self._rhythm.total
        first = np.flatnonzero(np.diff(tasks.dataset, prepend=-1))
        number = np.arange(tasks.start.size) - np.repeat(first, np.diff(np.append(first, tasks.start.size)))
        turn = (tasks.start // total).astype(np.int64)
        self._turns = int(turn.max()) + 1
        chain, start = tasks.dataset * self._turns + turn, tasks.start % total
        order = np.lexsort((start, chain))
        self._chain, self._start = chain[order], start[order]
        self._more = _more(number[order], passes[tasks.dataset[order]])
        self._begun_before = _starts_of_reads(region, workload, start)
        self._usual_length = np.zeros(datasets.line.size)
        self._usual_length[tasks.dataset] = tasks.length
        file = region.file
        self._progress = (file - workload.catalogue.first_file[region.dataset]) / np.maximum(
            datasets.n_files[region.dataset], 1
        )

    def at(self, time_s: int) -> Scores:
        """The scores at `time_s` of the files read in the last CANDIDATE_S."""
        self.region.at(time_s)
        item = np.flatnonzero(self.region.last_s > time_s - CANDIDATE_S)
        size = self.region.trace.size_bytes[item]
        chance = self.chances(time_s, item)
        return Scores(int(time_s), item, size, HORIZONS, chance, self.region.last_s[item])

    def chances(self, time_s: int, item: IntArray) -> FloatArray:
        """float64[k, n]: the chance of a read of each `item` within each horizon."""
        now, dataset = self._work(time_s), self.region.dataset[item]
        ahead = np.array([self._work(time_s + horizon_s) - now for horizon_s in HORIZONS])
        never = np.ones((len(HORIZONS), item.size))
        for turn in range(self._turns):
            some, chance = self._of_chain(turn, now, ahead, dataset, self._progress[item])
            never[:, some] *= 1 - chance
        next_s = self.region.next_s[item]
        known = next_s[None, :] < time_s + np.array(HORIZONS)[:, None]
        is_begun = self._begun_before[self.region.next_access[item]] <= now
        return np.where(is_begun, known, 1 - never)

    def _of_chain(
        self, turn: int, now: float, ahead: FloatArray, dataset: IntArray, progress: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Indices of files, and float64[k, n]: their chance of a read by a future pass of one turn.

        Passes beyond the end of the days wrap around to their beginning: a dataset has one chain of passes
        per turn.
        """
        chain = dataset * self._turns + turn
        last = np.searchsorted(self._chain * 1e6 + self._start, chain * 1e6 + now, side="right") - 1
        has_begun = self._chain[np.maximum(last, 0)] == chain
        some = np.flatnonzero(has_begun | (~self._born[dataset] & (turn == 0)))
        dataset, begun, last = dataset[some], has_begun[some], np.where(has_begun, last, 0)[some]
        since = np.where(begun, now - self._start[last], 0.0)
        more, waited = self._more[last], np.maximum(self._survival(dataset, since), 1e-12)
        awaited = more * waited / (more * waited + 1 - more)
        until = since + np.maximum(ahead[:, None] - progress[some] * self._usual_length[dataset], 0.0)
        next_one = awaited * (1 - np.minimum(1.0, self._survival(dataset, until) / waited))
        # The first pass comes at any time, except over datasets that are born later.
        first_one = np.minimum(1.0, (until - since) / max(self._rhythm.total - now, 1e-9))
        return some, np.where(begun, next_one, first_one)

    def _work(self, time_s: int) -> float:
        return float(self._rhythm.work(np.array([(time_s - self.region.begin_s) / DAY_S]))[0])

    def _survival(self, dataset: IntArray, gap: FloatArray) -> FloatArray:
        """The chance that the next pass begins later than `gap` (days of work) after the last."""
        close, gap = self._close[dataset], np.maximum(gap, 1e-9)
        late = ndtr(-np.log(gap / self._median[dataset]) / self._sigma[dataset])
        survival: FloatArray = close * np.exp(-gap / self._close_days[dataset]) + (1 - close) * late
        return survival


def _more(number: IntArray, mean: FloatArray) -> FloatArray:
    """The chance of a pass after pass `number` (from 0); the number of passes after the first is Poisson."""
    more: FloatArray = poisson.sf(number, mean) / np.maximum(poisson.sf(number - 1, mean), 1e-12)
    return more


def _mean_passes(workload: Workload) -> FloatArray:
    """Per dataset, the expected number of passes after the first, by its popularity."""
    config, datasets = workload.config, workload.catalogue.datasets
    mean = np.zeros(datasets.line.size)
    for index, category in enumerate(config.categories):
        members = (datasets.category == index) & (datasets.role == REREAD)
        wanted = max(0, round(category.accesses * config.growth) - round(category.files * config.growth))
        whole = 1 - category.partial_share * (1 - _PART_MEAN)
        weight = datasets.weight[members]
        if members.any():
            mean[members] = weight * wanted / ((weight * datasets.n_files[members]).sum() * whole)
    return mean


def _starts_of_reads(region: Region, workload: Workload, start: FloatArray) -> FloatArray:
    """Per access of the trace, when its pass began (days of work); at the end one infinite entry."""
    reads = workload.reads.slice(0, len(workload.reads))
    return np.append(start[reads.task], np.inf)


def law_of(region: Region, *, alike: bool = False) -> Law | SpellLaw:
    """The law of the region's generator."""
    habits = region.workload.config.habits
    if habits is None:
        return Law(region, region.workload, alike=alike)
    return SpellLaw(region, habits, alike=alike)


def calibration_errors(law: Law | SpellLaw, region: Region) -> list[float]:
    """The error by horizon, over those counted days on which its labels are known."""
    until_s = int(region.trace.time_s[-1])
    chances, next_s, at_s = [], [], []
    for time_s in range(region.count_from_s, until_s, JUDGED_EACH_S):
        scores = law.at(time_s)
        chances.append(scores.probability)
        next_s.append(region.next_s[scores.item])
        at_s.append(np.full(scores.item.size, time_s))
    chance, read_s, when = np.concatenate(chances, axis=1), np.concatenate(next_s), np.concatenate(at_s)
    errors = []
    for row, horizon_s in zip(chance, HORIZONS, strict=True):
        matured = when + horizon_s <= until_s
        read = (read_s < when + horizon_s)[matured].astype(np.float64)
        errors.append(calibration_error(reliability(read, row[matured])) if matured.any() else np.nan)
    return errors


def main() -> None:
    """Print the tables as they come."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", nargs="*", default=[*SCALES, *HABITUAL])
    parser.add_argument("--cycle", nargs="*", default=["1h"])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--days", type=int)
    parser.add_argument("--scale", type=float)
    parser.add_argument("--from", dest="first", metavar="DAY")
    parser.add_argument("--owned", action="store_true")
    given = parser.parse_args()
    regions = {name: _region(name, given) for name in given.scenario}
    cycles = list(map(parse_duration, given.cycle))
    if not given.owned:
        print_table("scores, planned", regions, cycles, given.seed, planned)
    print_table("scores, in line", regions, cycles, given.seed, in_line)
    labels = " | ".join(map(duration_label, HORIZONS))
    print(f"\n| calibration error of the law | {labels} |\n|---|{'---|' * len(HORIZONS)}")
    for name, region in regions.items():
        errors = calibration_errors(law_of(region), region)
        print(f"| {name} | {' | '.join(f'{error:.3f}' for error in errors)} |", flush=True)


def print_table(
    title: str,
    regions: dict[str, Region],
    cycles: list[int],
    seed: int,
    closed: Callable[[Region, Callable[[int], Scores], int], list[float]],
) -> None:
    """The gap closed with each kind of scores, at each cycle."""
    cells = " | ".join(f"{share:.0%}" for share in FRACTIONS)
    print(f"\n| scenario | cycle | {title} | {cells} |\n|---|---|---{'|---' * len(FRACTIONS)}|")
    for name, region in regions.items():
        kinds: dict[str, Callable[[int], Scores]] = {
            "perfect": scores(region, "perfect", seed),
            "law": law_of(region).at,
            "law, datasets alike": law_of(region, alike=True).at,
        }
        for kind, at in kinds.items():
            for cycle_s in cycles:
                gaps = " | ".join(f"{gap:.2f}" for gap in closed(region, at, cycle_s))
                print(f"| {name} | {duration_label(cycle_s)} | {kind} | {gaps} |", flush=True)


def planned(region: Region, at: Callable[[int], Scores], cycle_s: int) -> list[float]:
    """The gap closed by plans, at each fraction."""
    return replayed(region, at, cycle_s, in_line=False)["lru+plan"]


def in_line(region: Region, at: Callable[[int], Scores], cycle_s: int) -> list[float]:
    """The gap closed by the owned order, at each fraction."""
    return [row.gap_closed for row in owned(region, at, cycle_s, FRACTIONS)]


def _region(name: str, given: argparse.Namespace) -> Region:
    asked = {"days": given.days, "scale": given.scale}
    shape = SCALES.get(name, {}) | {key: value for key, value in asked.items() if value is not None}
    first_s = None if given.first is None else parse_day(given.first)
    return Region(name, given.seed, shape=shape, count_from_s=first_s)


if __name__ == "__main__":
    main()
