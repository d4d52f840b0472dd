"""How much of the gap to the byte bound each policy closes on generated regions, with what could be closed.

bench/walk.py [REGION …] [--seed N …]   a Markdown table

The rows are those of `cachecast evaluate`, and plans by perfect answers, by the law that generated the
accesses, and by constant scores, on the same accesses, days and capacities. Regions have seeds that no model
was made with. Retention only (nothing is prefetched), no control group; two weeks of history and two of
plans, no horizon longer than either.

Needs the environment that `make verify` makes: .venv/bin/python bench/walk.py
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from law import Law  # noqa: E402
from plan_gap import Region, replayed, scores  # noqa: E402

from features.times import parse_day  # noqa: E402
from features.units import parse_duration  # noqa: E402

SETTINGS = """\
[features]
horizons = ["1h", "6h", "12h", "1d", "2d", "4d", "7d"]
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
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
SEEDS = (101, 102, 103)


class Shape(NamedTuple):
    """A generated region's size, its first evaluated day, and the time between plans."""

    days: int
    scale: float
    first_day: str
    cycle: str


SHAPES = {
    "pic": Shape(38, 0.15, "2026-03-25", "3h"),
    "mwt2": Shape(31, 0.004, "2026-03-18", "1h"),
    "socal": Shape(31, 0.06, "2026-03-18", "1h"),
}


def main() -> None:
    """Print the rows of a region as it ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("region", nargs="*", default=list(SHAPES))
    parser.add_argument("--seed", nargs="*", type=int, default=list(SEEDS))
    given = parser.parse_args()
    print("| region | seed | policy | 5 % | 10 % | 20 % |\n|---|---|---|---|---|---|")
    for name in given.region:
        for seed in given.seed:
            began_s = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
                rows = walked(Path(folder), name, seed, SHAPES[name])
            took_s = time.monotonic() - began_s
            rows |= ceilings(name, seed, SHAPES[name])
            for policy, closed in rows.items():
                cells = " | ".join("–" if gap is None else f"{gap:.2f}" for gap in closed)
                print(f"| {name} | {seed} | {policy} | {cells} |", flush=True)
            print(f"| {name} | {seed} | seconds of the evaluation | {took_s:.0f} | | |", flush=True)


def walked(folder: Path, name: str, seed: int, shape: Shape) -> dict[str, list[float | None]]:
    """The gap closed by each policy of `cachecast evaluate`, by capacity."""
    site = folder / "site.toml"
    site.write_text(SETTINGS)
    cachecast(
        "workload", "--scenario", name, "--seed", seed, "--start", START.date(), "--days", shape.days,
        "--scale", shape.scale, "--out", folder,
    )  # fmt: skip
    answer = cachecast(
        "evaluate", "--accesses", folder / "accesses.parquet", "--from", shape.first_day,
        "--cycle", shape.cycle, "--conf", site,
    )  # fmt: skip
    closed: dict[str, list[float | None]] = {}
    for row in answer["rows"]:
        closed.setdefault(row["policy"], []).append(row["byte_gap_closed"])
    return closed


def ceilings(name: str, seed: int, shape: Shape) -> dict[str, list[float | None]]:
    """The same of plans by scores that are made, not learned."""
    region = Region(
        name,
        seed,
        shape={"scale": shape.scale, "days": shape.days, "start": START},
        count_from_s=parse_day(shape.first_day),
    )
    kinds = {
        "plans, perfect answers": scores(region, "perfect", seed),
        "plans, the law": Law(region, region.workload).at,
        "plans, constant scores": scores(region, "constant", seed),
    }
    cycle_s = parse_duration(shape.cycle)
    return {kind: [*replayed(region, at, cycle_s, in_line=False)["lru+plan"]] for kind, at in kinds.items()}


def cachecast(*words: object) -> dict[str, Any]:
    """The answer of a command."""
    command = [sys.executable, "-m", "jobs", *map(str, words), "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    main()
