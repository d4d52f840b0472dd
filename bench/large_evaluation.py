"""The whole service replayed over a region's past: seconds, CPU seconds and peak memory of `evaluate`.

bench/large_evaluation.py            400 000 accesses of 60 days of `site`, promised within 180 s
bench/large_evaluation.py --month    MWT2's month of 7.1 M accesses, a plan each hour: 30 min and 6 GB

Three capacities: 5, 10 and 20 % of the bytes read. The last third of the days counts; what lies before trains
the models and chooses their weight. The limit of the same work is its CPU seconds divided by the cores. Exit
code 1 if a promise does not hold.

Needs the environment that `make verify` makes: .venv/bin/python bench/large_evaluation.py
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from typing import NamedTuple

from large_trace import measured

from features.common.times import DAY_S, day_label, parse_day

START = "2026-08-01"


class Past(NamedTuple):
    """What is evaluated, and what is promised of it."""

    region: tuple[str, ...]
    days: int
    options: tuple[str, ...]
    most_s: float
    most_bytes: float


SITE = Past(("--scenario", "site", "--accesses", "400000"), 60, (), 180, 6e9)
MONTH = Past(("--scenario", "mwt2"), 31, ("--cycle", "1h"), 1800, 6e9)


def main() -> int:
    """Print what the evaluation took, and say by the exit code whether it is within what is promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--month", action="store_true", help="MWT2's month, planned each hour")
    past = MONTH if parser.parse_args().month else SITE
    region = (*past.region, "--days", str(past.days))
    from_day = day_label(parse_day(START) + -(-past.days * 2 // 3) * DAY_S)
    with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
        measured("workload", *region, "--start", START, "--out", f"{folder}/region")
        cost = measured(
            "evaluate",
            *("--accesses", f"{folder}/region/accesses.parquet", "--from", from_day, *past.options),
            *("--capacity-fraction", "0.05,0.1,0.2", "--tables", f"{folder}/tables"),
        )
    cores = len(os.sched_getaffinity(0))
    print(f"evaluate {' '.join(region)}, from {from_day} of {past.days} days, three capacities")
    print(f"    {cost.seconds:.0f} s, promised {past.most_s:.0f}")
    print(f"    {cost.cpu_s:.0f} CPU s, {cost.cpu_s / cost.seconds / cores:.0%} of {cores} cores")
    print(f"    {cost.peak_bytes / 1e9:.1f} GB at most, promised {past.most_bytes / 1e9:.0f}")
    return 0 if cost.seconds <= past.most_s and cost.peak_bytes <= past.most_bytes else 1


if __name__ == "__main__":
    sys.exit(main())
