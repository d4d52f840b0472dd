"""How good forecasts of public popularity series are, beside recency and repeated counts.

bench/forecast.py     LHCb weeks, CMS days and DANDI days of ../shared/data; over all cuts of each

Each cut is a forecast from what was known then; docs/forecast.md defines the columns.

Needs the environment that `make verify` makes: .venv/bin/python bench/forecast.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
COLUMNS = (
    "horizon",
    "cuts",
    "auc",
    "recency_auc",
    "auc_gain_spread",
    "average_precision",
    "recency_average_precision",
    "calibration_error",
    *(f"{of}absolute_error" for of in ("", "last_", "season_", "recent_")),
    *(f"{of}count_error" for of in ("", "last_", "season_", "recent_")),
)

DANDI_CUTS = ",".join(str(day) for day in range(800, 1160, 15))
"""The last year, every 15 days: each day of the week."""


class Judged(NamedTuple):
    """A series of ../shared/data, and the forecasts of it that are judged."""

    series: str
    as_of: str
    horizons: str
    cuts: str


SERIES = (
    Judged("lhcb_weekly_1_78.csv.gz", "78", "1,4,13,26", "40,44,48,52,56,60,64,68,72,76"),
    Judged("lhcb_weekly_1_78.csv.gz", "78", "1,4,13,26", "38,42,46,50,54,58,62,66,70,74"),
    Judged("cms_daily_60d.csv.gz", "60", "1,7,14", "28-59"),
    Judged("dandi_daily_to_2024-06.csv.gz", "2024-06-30", "1,7,30,90", DANDI_CUTS),
)


def main() -> None:
    """Print a Markdown table per series."""
    for judged in SERIES:
        print(f"\n{judged.series}, cuts {judged.cuts}\n")
        print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        for row in quality(judged):
            cells = (
                f"{row[name]:.3f}" if isinstance(row[name], float) else str(row[name]) for name in COLUMNS
            )
            print(f"| {' | '.join(cells)} |", flush=True)


def quality(judged: Judged) -> list[dict[str, float]]:
    """The answer of `cachecast forecast --cuts`, a row per horizon."""
    with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
        options = {
            "--series": DATA / judged.series,
            "--as-of": judged.as_of,
            "--horizons": judged.horizons,
            "--cuts": judged.cuts,
            "--out": Path(folder, "cuts.csv"),
        }
        words = [str(word) for option in options.items() for word in option]
        command = [sys.executable, "-m", "jobs", "forecast", *words, "--json"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[dict[str, float]] = json.loads(done.stdout)
    return rows


if __name__ == "__main__":
    main()
