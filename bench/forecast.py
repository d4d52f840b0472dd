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

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
COLUMNS = (
    *("horizon", "cuts", "auc", "recency_auc", "auc_gain_spread"),
    *("average_precision", "recency_average_precision", "calibration_error"),
    *(f"{of}absolute_error" for of in ("", "last_", "season_", "recent_")),
    *(f"{of}count_error" for of in ("", "last_", "season_", "recent_")),
)
DANDI_CUTS = ",".join(str(day) for day in range(800, 1160, 15))
"""The last year, every 15 days: each day of the week."""
SERIES = (
    ("lhcb_weekly_1_78.csv.gz", "78", "1,4,13,26", "40,44,48,52,56,60,64,68,72,76"),
    ("lhcb_weekly_1_78.csv.gz", "78", "1,4,13,26", "38,42,46,50,54,58,62,66,70,74"),
    ("cms_daily_60d.csv.gz", "60", "1,7,14", "28-59"),
    ("dandi_daily_to_2024-06.csv.gz", "2024-06-30", "1,7,30,90", DANDI_CUTS),
)
"""File, last known unit, horizons and cuts."""


def main() -> None:
    """Print a Markdown table per series."""
    for file, as_of, horizons, cuts in SERIES:
        print(f"\n{file}, cuts {cuts}\n\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
            command = [
                sys.executable,
                "-m",
                "jobs",
                "forecast",
                "--series",
                str(DATA / file),
                "--as-of",
                as_of,
            ]
            command += ["--horizons", horizons, "--cuts", cuts, "--out", f"{folder}/cuts.csv", "--json"]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        for row in json.loads(done.stdout):
            cells = (row[name] for name in COLUMNS)
            texts = (f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells)
            print(f"| {' | '.join(texts)} |", flush=True)


if __name__ == "__main__":
    main()
