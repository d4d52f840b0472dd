"""Check the calibrated workloads, or search the knobs that make their hit ratios.

    python bench/calibrate.py                  published against produced, all scenarios, seeds 1 to 3
    python bench/calibrate.py --search mwt2    the values to write into conf/workloads/mwt2.toml

The check fails if a figure of a seed deviates by more than 10 %. The search looks at seed 1 only: each knob
moves one figure, which rises or falls with it all the way, so it is bisected; two rounds, since they touch.

Needs the environment that `make verify` makes: .venv/bin/python bench/calibrate.py
"""

from __future__ import annotations

import argparse
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # before this folder, whose replay.py is no room

from replay.workload import WorkloadConfig, generate  # noqa: E402
from replay.workload.report import CLOSE_PERCENT, Line, calibration  # noqa: E402

FOLDER = ROOT / "conf" / "workloads"
SCENARIOS = ("mwt2", "prague", "pic", "socal")
SEEDS = (1, 2, 3)
CLOSE_ENOUGH_PERCENT = 0.2


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
}


def main() -> int:
    """Check or search, as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--search", choices=sorted(KNOBS))
    chosen = parser.parse_args().search
    if chosen:
        search(chosen)
        return 0
    return check()


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
            told = " ".join(f"{deviation:+7.2f}" for deviation in deviations)
            print(f"{same[0].what:32s} {same[0].published:12.6g} {same[0].produced:12.6g} {told}")
    print(f"\nworst deviation: {worst:.1f} %")
    return int(worst > CLOSE_PERCENT)


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
