"""Check the calibrated workloads, or search the knobs that make their hit ratios.

    python bench/calibrate.py                  published against produced, all scenarios, seeds 1 to 3
    python bench/calibrate.py --search mwt2    the values to write into conf/workloads/mwt2.toml
    python bench/calibrate.py --misses         byte miss ratios of the archive and of the regions
    python bench/calibrate.py --misses TRACE   the same, with the archive's measured on its trace

The check fails if a figure of a seed deviates by more than 10 %, or a byte miss ratio of `archive`, as the
mean of six seeds, by more than 0.06 from the archive's. Miss ratios are counted after the archive's first
14 days, and after the first third of the other regions' days. The search looks at seed 1 only: each knob
moves one figure, which rises or falls with it all the way, so it is bisected; two rounds, since they touch.

Needs the environment that `make verify` makes: .venv/bin/python bench/calibrate.py
"""

from __future__ import annotations

import argparse
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]  # rooms before this folder, whose replay.py is none

from plan_gap import SCALES  # noqa: E402

from features.times import DAY_S  # noqa: E402
from replay.bounds import byte_bound  # noqa: E402
from replay.policies import run_policy  # noqa: E402
from replay.read import read_trace  # noqa: E402
from replay.trace import Trace  # noqa: E402
from replay.workload import WorkloadConfig, generate  # noqa: E402
from replay.workload.report import CLOSE_PERCENT, Line, calibration, trace_of  # noqa: E402

FOLDER = ROOT / "conf" / "workloads"
SCENARIOS = ("mwt2", "prague", "pic", "socal", "site", "archive")
SEEDS = (1, 2, 3)
MISS_SEEDS = (1, 2, 3, 4, 5, 6)
CLOSE_ENOUGH_PERCENT = 0.2
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


class Knob(NamedTuple):
    """A key of some categories (none: of what they have in common), its range, and the figure it moves."""

    categories: tuple[str, ...]
    key: str
    least: float
    most: float
    what: str
    rises: bool = True


KNOBS = {
    "mwt2": (
        Knob(("HITS", "AOD", "DAOD"), "close_share", 0.0, 1.0, "byte hit ratio at 54.98 TB"),
        Knob((), "close_share", 0.0, 1.0, "hit ratio at 54.98 TB"),
    ),
    "pic": (Knob((), "popularity_sigma", 0.3, 3.0, "reread share", rises=False),),
    "socal": (
        Knob((), "close_share", 0.4, 0.9, "hit ratio at 40 TB"),
        Knob((), "return_days_median", 3.0, 9.0, "hit ratio at 56 TB", rises=False),
    ),
    "site": (Knob(("MINIAOD",), "once_share", 0.0, 0.9, "reread share", rises=False),),
}


def main() -> int:
    """Check, search or measure, as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--search", choices=sorted(KNOBS))
    parser.add_argument("--misses", nargs="?", const="", metavar="TRACE")
    given = parser.parse_args()
    if given.search:
        search(given.search)
        return 0
    if given.misses is not None:
        return check_misses(measured(Path(given.misses)) if given.misses else ARCHIVE_MISSES)
    return check() | check_misses(ARCHIVE_MISSES)


def check() -> int:
    """Print a line per figure, its deviation for each seed; 1 if one is too far off."""
    worst = 0.0
    for scenario in SCENARIOS:
        values = read(scenario)
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


def check_misses(archive: Misses) -> int:
    """Print byte miss ratios of the archive and of the regions; 1 if `archive` is too far from the former."""
    print("\n| byte miss ratios | " + " | ".join((*POLICIES, "bound")) + " |")
    print("|---|" + "---|" * (len(POLICIES) + 1))
    print_misses("archive's records", archive)
    runs = []
    for seed in MISS_SEEDS:
        workload = generate(WorkloadConfig.from_mapping(read("archive") | {"seed": seed}))
        runs.append(misses(trace_of(workload), workload.config.start_s + ARCHIVE_WARM_DAYS * DAY_S))
        print_misses(f"archive, seed {seed}", runs[-1])
    mean = {name: tuple(np.mean([run[name] for run in runs], axis=0)) for name in archive}
    print_misses("archive, mean", mean)
    worst = max(float(np.abs(np.subtract(mean[name], archive[name])).max()) for name in archive)
    for scenario in ("site", *SCALES):
        config = WorkloadConfig.from_mapping(read(scenario) | SCALES.get(scenario, {}))
        counted_s = config.start_s + config.days * DAY_S // 3
        print_misses(scenario, misses(trace_of(generate(config)), counted_s))
    print(f"\nfarthest from the archive, mean of seeds: {worst:.3f}")
    return int(worst > CLOSE_MISSES)


def measured(trace: Path) -> Misses:
    """Byte miss ratios of the archive's own trace."""
    columns = {"time": "time", "item": "path", "size": "size"}
    real = read_trace(trace, columns=columns).trace
    first_s = int(real.time_s[0]) // DAY_S * DAY_S
    return misses(real, first_s + ARCHIVE_WARM_DAYS * DAY_S)


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


def search(scenario: str) -> None:
    """Bisect the scenario's knobs in turn and print what was found."""
    values = read(scenario)
    for turn in (1, 2):
        for knob in KNOBS[scenario]:
            value, line = bisect(values, knob)
            turned(values, knob, value)
            where = ", ".join(knob.categories) or "category"
            print(
                f"round {turn}: {where} {knob.key} = {value:.4g}: {line.what} {line.produced:.4f}", flush=True
            )


def bisect(values: dict[str, Any], knob: Knob) -> tuple[float, Line]:
    """The value of `knob` that brings its figure to what was published, and the figure there."""
    low, high = knob.least, knob.most
    for _ in range(12):
        value = (low + high) / 2
        turned(values, knob, value)
        line = next(line for line in lines(values) if line.what == knob.what)
        if abs(line.deviation_percent) < CLOSE_ENOUGH_PERCENT:
            break
        if (line.deviation_percent < 0) == knob.rises:
            low = value
        else:
            high = value
    return value, line


def turned(values: dict[str, Any], knob: Knob, value: float) -> None:
    """Set `knob` in `values`."""
    chosen = [row for row in values["categories"] if row["name"] in knob.categories]
    for table in chosen or [values["category"]]:
        table[knob.key] = value


def lines(values: dict[str, Any]) -> list[Line]:
    """The calibration of a scenario's values."""
    return calibration(generate(WorkloadConfig.from_mapping(values)))


def read(scenario: str) -> dict[str, Any]:
    """The scenario as its file has it."""
    return tomllib.loads((FOLDER / f"{scenario}.toml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    started = time.perf_counter()
    code = main()
    print(f"{time.perf_counter() - started:.0f} s")
    sys.exit(code)
