"""Check the calibrated workloads: published against produced, all scenarios, seeds 1 to 3; and miss ratios.

The check fails if a figure of a seed deviates by more than 10 %, or a byte miss ratio of `archive`, as the
mean of six seeds, by more than 0.06 from the archive's. Miss ratios are counted after the archive's first
14 days, and after the first third of the other regions' days.

Needs the environment that `make verify` makes: .venv/bin/python bench/calibrate.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
SUPPORT = ROOT / "tests" / "support"
sys.path[:0] = [str(ROOT), str(SUPPORT), str(SUPPORT / "oracles")]

from published import CLOSE_PERCENT, Line, calibration, trace_of  # noqa: E402
from scenarios import values_of  # noqa: E402

from features.common.times import DAY_S  # noqa: E402
from replay.bounds import byte_bound  # noqa: E402
from replay.policies import run_policy  # noqa: E402
from replay.trace import Trace  # noqa: E402
from replay.workload import WorkloadConfig, generate  # noqa: E402

SCENARIOS = ("mwt2", "prague", "pic", "socal", "site", "archive")
SCALES = {
    "mwt2": {"scale": 0.015, "days": 31},
    "pic": {"scale": 0.25, "days": 45},
    "socal": {"scale": 0.12, "days": 45},
}
"""Of the regions whose miss ratios are measured."""
SEEDS = (1, 2, 3)
MISS_SEEDS = (1, 2, 3, 4, 5, 6)
POLICIES = ("lru", "fifo", "s3fifo", "sieve", "2q", "lfu-da")
FRACTIONS = (0.05, 0.10, 0.20)
ARCHIVE_MISSES = {
    "lru": (0.984, 0.929, 0.837),
    "fifo": (0.986, 0.928, 0.799),
    "s3fifo": (0.941, 0.868, 0.743),
    "sieve": (0.958, 0.899, 0.771),
    "2q": (0.948, 0.882, 0.725),
    "lfu-da": (0.981, 0.927, 0.822),
    "bound": (0.780, 0.649, 0.451),
}
"""Byte miss ratios of the archive's records of 2025-07-09 to 08-02 at FRACTIONS of the footprint."""
ARCHIVE_WARM_DAYS = 14
CLOSE_MISSES = 0.06


def check() -> int:
    """Print a line per figure, its deviation for each seed; 1 if one is too far off."""
    worst = 0.0
    for scenario in SCENARIOS:
        values = values_of(scenario)
        runs = [lines(values | {"seed": seed}) for seed in SEEDS]
        print(f"\n{scenario}: published, produced with seed 1, deviation in % with seeds {SEEDS}")
        for same in zip(*runs, strict=True):
            deviations = [line.deviation_percent for line in same]
            worst = max(worst, *map(abs, deviations))
            percents = " ".join(f"{deviation:+7.2f}" for deviation in deviations)
            print(f"{same[0].what:32s} {same[0].published:12.6g} {same[0].produced:12.6g} {percents}")
    print(f"\nworst deviation: {worst:.1f} %")
    return int(worst > CLOSE_PERCENT)


Misses = Mapping[str, tuple[float, ...]]
"""Byte miss ratios by policy, at FRACTIONS."""


def check_misses() -> int:
    """Print byte miss ratios of the archive and of the regions; 1 if `archive` is too far from the former."""
    print("\n| byte miss ratios | " + " | ".join((*POLICIES, "bound")) + " |")
    print("|---|" + "---|" * (len(POLICIES) + 1))
    print_misses("archive's records", ARCHIVE_MISSES)
    runs = []
    for seed in MISS_SEEDS:
        workload = generate(WorkloadConfig.from_mapping(values_of("archive", seed=seed)))
        runs.append(misses(trace_of(workload), workload.config.start_s + ARCHIVE_WARM_DAYS * DAY_S))
        print_misses(f"archive, seed {seed}", runs[-1])
    mean = {name: tuple(np.mean([run[name] for run in runs], axis=0)) for name in ARCHIVE_MISSES}
    print_misses("archive, mean", mean)
    worst = max(float(np.abs(np.subtract(mean[name], ARCHIVE_MISSES[name])).max()) for name in ARCHIVE_MISSES)
    for scenario in ("site", *SCALES):
        config = WorkloadConfig.from_mapping(values_of(scenario, **SCALES.get(scenario, {})))
        counted_s = config.start_s + config.days * DAY_S // 3
        print_misses(scenario, misses(trace_of(generate(config)), counted_s))
    print(f"\nfarthest from the archive, mean of seeds: {worst:.3f}")
    return int(worst > CLOSE_MISSES)


def misses(trace: Trace, count_from_s: int) -> Misses:
    """Byte miss ratios of POLICIES and the bound, counted from `count_from_s`."""
    capacities = [int(share * trace.footprint_bytes) for share in FRACTIONS]
    runs = {
        name: [run_policy(name, trace, capacity, count_from_s=count_from_s) for capacity in capacities]
        for name in POLICIES
    }
    runs["bound"] = [byte_bound(trace, capacity, count_from_s=count_from_s) for capacity in capacities]
    return {name: tuple(run.byte_miss_ratio for run in results) for name, results in runs.items()}


def print_misses(what: str, of_policy: Misses) -> None:
    """One row, a cell per policy with all fractions."""
    cells = " | ".join(" ".join(f"{ratio:.3f}" for ratio in ratios) for ratios in of_policy.values())
    print(f"| {what} | {cells} |", flush=True)


def lines(values: dict[str, Any]) -> list[Line]:
    """The calibration of a scenario's values."""
    return calibration(generate(WorkloadConfig.from_mapping(values)))


if __name__ == "__main__":
    started = time.perf_counter()
    code = check() | check_misses()
    print(f"{time.perf_counter() - started:.0f} s")
    sys.exit(code)
