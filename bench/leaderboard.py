"""The leaderboard of public traces and generated regions, with libCacheSim's policies, and claims of papers.

bench/leaderboard.py                          conf/leaderboard.toml, kept in leaderboard-out/
bench/leaderboard.py --public                 two public traces of ../shared/data, an archive's and a CDN's
bench/leaderboard.py --traces FILE …          traces of your own
bench/leaderboard.py --out DIR --capacity-fraction 0.1 --ours    other folder and capacities, ours alone
bench/leaderboard.py --short                  one small trace and one capacity: whether it still runs

The first table is the gap closed, the mean over the capacities; the second the shares of objects and bytes
that public traces miss; the third is what papers claim, and ours of the same measure. Kept replays
are not repeated.

Needs the environment that `make verify` makes: .venv/bin/python bench/leaderboard.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
DATA = ROOT.parent / "shared" / "data"
PUBLIC = {
    "dandi": ("dandi_accesses_2025-07-09_08-02.csv.gz", "2025-07-23"),
    "cran": ("cran_accesses_2014-12-16_29d.csv.gz", "2014-12-31"),
}
"""Public traces by name: file, and the first day that counts."""
SHORT = '[[trace]]\nname = "short"\nscenario = "prague"\naccesses = 30_000\nseed = 101\n'

from jobs.studies.leaderboard.leaderboard_page import overview  # noqa: E402


def main() -> None:
    """Run both commands, and print two Markdown tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, nargs="+", default=[ROOT / "conf" / "leaderboard.toml"])
    parser.add_argument("--public", action="store_true", help="public traces instead of generated regions")
    parser.add_argument("--out", type=Path, default=ROOT / "leaderboard-out")
    parser.add_argument("--capacity-fraction", default="0.01,0.02,0.05,0.1,0.2,0.4")
    parser.add_argument("--ours", action="store_true", help="without libCacheSim's policies")
    parser.add_argument("--short", action="store_true", help="a small trace, kept nowhere")
    given = parser.parse_args()
    if given.short:
        with tempfile.TemporaryDirectory(prefix="cachecast-") as name:
            given.traces, given.out, given.capacity_fraction = [Path(name, "short.toml")], Path(name), "0.1"
            given.traces[0].write_text(SHORT)
            report(given)
    else:
        if given.public:
            given.traces = [_public(given.out.resolve())]
        report(given)


def _public(out: Path) -> Path:
    """A file of entries for the public traces."""
    out.mkdir(parents=True, exist_ok=True)
    entries = out / "public.toml"
    entries.write_text(
        "".join(
            f'[[trace]]\nname = "{name}"\npath = "{DATA / file}"\ncount_from = "{day}"\n\n'
            for name, (file, day) in PUBLIC.items()
        )
    )
    return entries


def report(given: argparse.Namespace) -> None:
    """Replay what `--out` lacks, and print both tables."""
    traces = [path.resolve() for path in given.traces]
    shared = ["--out", str(given.out.resolve()), "--capacity-fraction", given.capacity_fraction]
    if not given.ours:
        _run("bench/leaderboard_rivals.py", "--traces", *map(str, traces), *shared)
    named = [word for path in traces for word in ("--traces", str(path))]
    answer = json.loads(_run("-m", "jobs", "leaderboard", *named, *shared, "--json"))
    print(f"Gap closed, mean over the capacities {given.capacity_fraction}\n")
    _table(overview(answer["rows"]))
    if public := [row for row in answer["rows"] if row["trace"] in PUBLIC]:
        print("\nObjects missed / bytes missed, by trace and capacity\n")
        _table(misses(public))
    print("\nClaims of papers, beside ours of the same measure\n")
    _table(answer["claims"])


def misses(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A row per policy, the one with the fewest bytes missed first; a bound on bytes has no objects."""
    found: dict[str, dict[str, tuple[float | None, float]]] = {}
    for row in rows:
        column = f"{row['trace']} {row['capacity_fraction']:.0%}"
        found.setdefault(row["policy"], {})[column] = row["hit_ratio"], row["byte_hit_ratio"]
    columns = dict.fromkeys(column for of in found.values() for column in of)
    whole = {policy: of for policy, of in found.items() if len(of) == len(columns)}
    best = sorted(whole, key=lambda policy: -sum(hits for _, hits in whole[policy].values()))
    return [
        {"policy": policy} | {column: _missed(*found[policy][column]) for column in columns}
        for policy in best
    ]


def _missed(hits: float | None, byte_hits: float) -> str:
    return f"{'–' if hits is None else f'{1 - hits:.1%}'} / {1 - byte_hits:.1%}"


def _run(*words: str) -> str:
    """What a command prints, run in the project's folder; its errors and progress go to stderr."""
    done = subprocess.run([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def _table(rows: Sequence[Mapping[str, object]]) -> None:
    print(f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row.values())} |")


if __name__ == "__main__":
    main()
