"""The whole service walked through generated regions: gap to the byte bound closed, beside its rivals.

bench/walk.py [REGION …]     pic, mwt2 and socal; rows of a Markdown table

Regions have a seed that no model was made with. Retention only (nothing is prefetched), no control group; two
weeks of history to learn from; `cachecast evaluate` does the rest.

Needs the environment that `make verify` makes: .venv/bin/python bench/walk.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = """\
[features]
unread_per_dataset = 0
[training]
every = "5h"
span = "14d"
max_rows = 60000
trees = 80
[plan]
prefetch_share = 0.0
control_share = 0.0
"""
START = "2026-03-01"
SEED = 101


class Region(NamedTuple):
    """A generated region, its first evaluated day, and the time between plans."""

    days: int
    scale: float
    first_day: str
    cycle: str


REGIONS = {
    "pic": Region(38, 0.15, "2026-03-25", "auto"),
    "mwt2": Region(31, 0.004, "2026-03-18", "1h"),
    "socal": Region(31, 0.06, "2026-03-18", "1h"),
}


def main() -> None:
    """Print the rows of a region as it ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("region", nargs="*", default=list(REGIONS))
    given = parser.parse_args()
    print("| region | capacity | cycle | policy | gap closed | 95 % bounds | WAN, TB |")
    print(f"|{'---|' * 7}")
    with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
        for name in given.region:
            for row in walk(Path(folder, name), name, REGIONS[name]):
                print(line(name, row), flush=True)


def walk(folder: Path, name: str, region: Region) -> list[dict[str, Any]]:
    """The rows of `cachecast evaluate` over the region's accesses."""
    folder.mkdir()
    site = folder / "site.toml"
    site.write_text(SETTINGS)
    cachecast(
        "workload", "--scenario", name, "--seed", SEED, "--start", START, "--days", region.days,
        "--scale", region.scale, "--out", folder,
    )  # fmt: skip
    answer = cachecast(
        "evaluate", "--accesses", folder / "accesses.parquet", "--from", region.first_day,
        "--cycle", region.cycle, "--conf", site,
    )  # fmt: skip
    rows: list[dict[str, Any]] = answer["rows"]
    return rows


def cachecast(*words: object) -> dict[str, Any]:
    """The answer of a command."""
    command = [sys.executable, "-m", "jobs", *map(str, words), "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def line(name: str, row: dict[str, Any]) -> str:
    """A row of the table."""
    closed, lower, upper = (
        "–" if row[key] is None else f"{row[key]:.2f}"
        for key in ("byte_gap_closed", "byte_gap_closed_lower", "byte_gap_closed_upper")
    )
    cells = (
        name,
        f"{row['capacity_fraction']:.0%}",
        row["cycle"] or "–",
        row["policy"],
        closed,
        f"{lower} … {upper}",
        f"{row['wan_bytes'] / 1e12:.2f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
