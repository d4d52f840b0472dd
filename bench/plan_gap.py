"""How much of the gap to the byte bound the planner closes with good and bad scores, on generated regions.

bench/plan_gap.py [SCENARIO …] [--cycle 1h …] [--scores KIND …] [--weight W …] [--seed N]   Markdown rows

Scenarios are mwt2, pic and socal at the scale below; their first third warms the caches. Kinds of scores are
`perfect` (the time of the next read, at the resolution of the horizons), `noisy` (that time within a factor
of 3), `decayed` (counts with a half-life of 4 days), `recency` and `constant` (the same for all files). All
but `perfect` are calibrated to chances on the first third. `--weight` is that of the scores in a file's
value. Nothing is prefetched. Every policy gets the peak usage of the XCaches as its capacity.

Needs the environment that `make verify` makes: .venv/bin/python bench/plan_gap.py
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from features.arrays import FloatArray, IntArray  # noqa: E402
from features.times import DAY_S  # noqa: E402
from features.units import duration_label, parse_duration  # noqa: E402
from prefetch.plan import PlanLimits, Scores, ValuePlanner, plain_files  # noqa: E402
from replay.compare import compare  # noqa: E402
from replay.config import CacheConfig  # noqa: E402
from replay.trace import Trace  # noqa: E402
from replay.workload import WorkloadConfig, generate  # noqa: E402
from replay.workload.report import trace_of  # noqa: E402

SCALES = {
    "mwt2": {"scale": 0.015, "days": 31},
    "pic": {"scale": 0.25, "days": 45},
    "socal": {"scale": 0.12, "days": 45},
}
FRACTIONS = (0.05, 0.10, 0.20)
HORIZONS = tuple(parse_duration(h) for h in ("1h", "6h", "12h", "1d", "2d", "4d", "7d", "30d"))
HALF_LIFE_S = 4 * DAY_S
CANDIDATE_S = 30 * DAY_S
N_BINS = 64
NEVER_S = 2**40
KINDS = ("perfect", "noisy", "decayed", "recency", "constant")


class Region:
    """A scenario's trace, and for each file its last and next read at the current time.

    `shape`: scale, days and others instead of those in SCALES, or else of the scenario; `count_from_s`: by
    default after a third of the days.
    """

    def __init__(
        self,
        name: str,
        seed: int,
        *,
        shape: Mapping[str, object] | None = None,
        count_from_s: int | None = None,
    ) -> None:
        values = tomllib.loads((ROOT / "conf" / "workloads" / f"{name}.toml").read_text())
        self.workload = workload = generate(
            WorkloadConfig.from_mapping(
                values | (SCALES.get(name, {}) if shape is None else shape) | {"seed": seed}
            )
        )
        whole = trace_of(workload)
        self.file, item = np.unique(whole.item, return_inverse=True)
        self.trace = Trace(whole.time_s, item, whole.size_bytes[self.file])
        self.dataset = workload.catalogue.dataset_of(self.file)
        self.tier = workload.catalogue.datasets.category[self.dataset].astype(np.int64)
        self.begin_s = workload.config.start_s
        self.count_from_s = count_from_s or self.begin_s + workload.config.days * DAY_S // 3
        self._time_s = np.append(self.trace.time_s, NEVER_S)
        self.rewind()

    def rewind(self) -> None:
        """Set the current time to the start."""
        n = self.trace.n_items
        first = np.full(n, self.trace.n_accesses)
        np.minimum.at(first, self.trace.item, np.arange(self.trace.n_accesses))
        self.next_access = first
        self.last_s, self.decayed, self._served, self._at_s = np.full(n, -NEVER_S), np.zeros(n), 0, 0

    @property
    def next_s(self) -> IntArray:
        """When each file is read next."""
        return self._time_s[self.next_access]

    def at(self, time_s: int) -> None:
        """Set the current time to `time_s`."""
        if time_s < self._at_s:
            self.rewind()
        stop = self.trace.first_at(time_s)
        new = slice(self._served, stop)
        item, when = self.trace.item[new], self.trace.time_s[new]
        self.next_access[item], self.last_s[item] = self.trace.following[new], when
        fresh = np.bincount(item, np.exp2((when - time_s) / HALF_LIFE_S), minlength=self.trace.n_items)
        self.decayed = self.decayed * np.exp2((self._at_s - time_s) / HALF_LIFE_S) + fresh
        self._served, self._at_s = stop, time_s


class ChanceTable:
    """Chances by bin of a raw score, as observed before the counted window."""

    def __init__(self, region: Region, raw: Callable[[Region, int], FloatArray]) -> None:
        self.region, self._raw = region, raw
        values, ahead = [], []
        for time_s in range(region.begin_s + DAY_S, region.count_from_s, DAY_S // 4):
            region.at(time_s)
            seen = np.flatnonzero(region.last_s > time_s - CANDIDATE_S)
            values.append(raw(region, time_s)[seen])
            known = region.next_s[seen] < region.count_from_s
            left_s = region.count_from_s - time_s
            ahead.append(
                np.stack([np.where(known, region.next_s[seen] - time_s, NEVER_S), np.full(seen.size, left_s)])
            )
        score, (next_s, left_s) = np.concatenate(values), np.concatenate(ahead, axis=1)
        self._edges = np.unique(np.quantile(score, np.linspace(0, 1, N_BINS + 1)[1:-1]))
        code = np.searchsorted(self._edges, score)
        self._chance = np.array([self._column(code, next_s, left_s, h) for h in HORIZONS])

    def _column(self, code: IntArray, next_s: IntArray, left_s: IntArray, horizon_s: int) -> FloatArray:
        """Chance per bin; a horizon longer than half of the longest known time is cut to that."""
        within = min(horizon_s, int(left_s.max()) // 2)
        matured = left_s >= within
        n = np.bincount(code[matured], minlength=self._edges.size + 1)
        read = np.bincount(code[matured], next_s[matured] < within, minlength=self._edges.size + 1)
        return (read + 0.05) / (n + 1)

    def chances(self, time_s: int, item: IntArray) -> FloatArray:
        """float64[k, n] of `item` at `time_s`."""
        return self._chance[:, np.searchsorted(self._edges, self._raw(self.region, time_s)[item])]


def noisy(seed: int) -> Callable[[Region, int], FloatArray]:
    """The logarithm of the time to the next read, with a separate error for each next read."""

    def raw(region: Region, time_s: int) -> FloatArray:
        ahead = np.log2(np.minimum(region.next_s - time_s, 64 * DAY_S) + 1)
        mixed = (region.next_s * 2654435761 + np.arange(region.next_s.size) * 40503 + seed) % 2**32
        angle, radius = (mixed % 65536) / 65536, (mixed // 65536 + 1) / 65537
        return ahead + 1.6 * np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)

    return raw


RAW: dict[str, Callable[[Region, int], FloatArray]] = {
    "decayed": lambda region, time_s: np.log2(region.decayed + 1e-9),
    "constant": lambda region, time_s: np.zeros(region.last_s.size),
    "recency": lambda region, time_s: np.log2(np.maximum(60, time_s - region.last_s)),
}


def scores(region: Region, kind: str, seed: int) -> Callable[[int], Scores]:
    """The scores of one kind at each boundary, of files read before."""
    table = None if kind == "perfect" else ChanceTable(region, noisy(seed) if kind == "noisy" else RAW[kind])

    def at(time_s: int) -> Scores:
        region.at(time_s)
        item = np.flatnonzero(region.last_s > time_s - CANDIDATE_S)
        if table is None:
            chance = np.array([region.next_s[item] < time_s + h for h in HORIZONS], np.float64)
        else:
            chance = table.chances(time_s, item)
        size = region.trace.size_bytes[item]
        return Scores(int(time_s), item, size, HORIZONS, chance, region.last_s[item])

    return at


def main() -> None:
    """Print the table as it comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", nargs="*", default=list(SCALES))
    parser.add_argument("--cycle", nargs="*", default=["1d", "4h", "1h"])
    parser.add_argument("--scores", nargs="*", default=list(KINDS))
    parser.add_argument("--weight", nargs="*", type=float, default=[1.0])
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    print("| scenario | cycle | scores | weight | 5 % | 10 % | 20 % |\n|---|---|---|---|---|---|---|")
    for name in given.scenario:
        region = Region(name, given.seed)
        first = True
        for kind in given.scores:
            at = scores(region, kind, given.seed)
            for cycle_s, weight in itertools.product(map(parse_duration, given.cycle), given.weight):
                rows = replayed(region, at, cycle_s, weight, in_line=first)
                first = False
                for label, closed in rows.items():
                    cells = " | ".join(f"{gap:.2f}" for gap in closed)
                    is_plan = label == "lru+plan"
                    what = (duration_label(cycle_s), kind, f"{weight:g}") if is_plan else ("–", label, "–")
                    print(f"| {name} | {' | '.join(what)} | {cells} |", flush=True)


def replayed(
    region: Region, at: Callable[[int], Scores], cycle_s: int, weight: float = 1.0, *, in_line: bool
) -> dict[str, list[float]]:
    """Gap closed by policy, at each fraction; with `in_line` also by policies that decide at each access."""
    limits = PlanLimits(cycle_s, 0.0, 0.6, read_once_below=0.02, hysteresis=0.1)
    files = plain_files(region.trace.n_items, dataset=region.dataset, tier=region.tier)
    rows = compare(
        region.trace,
        [int(share * region.trace.footprint_bytes) for share in FRACTIONS],
        policies=["lru+plan", *(("s3fifo", "clairvoyant") if in_line else ())],
        xcache=CacheConfig(1),
        planner=ValuePlanner(at, limits, files, 2 * DAY_S, model_weight=lambda _: weight),
        cycle_s=cycle_s,
        plan_from_s=region.begin_s + 2 * DAY_S,
        count_from_s=region.count_from_s,
        workers=1,
    )
    closed: dict[str, list[float]] = {}
    for row in rows:
        if row.policy != "bound" and row.byte_gap_closed is not None:
            closed.setdefault(row.policy, []).append(row.byte_gap_closed)
    return closed


if __name__ == "__main__":
    main()
