"""The commands that read a trace, on a large one: seconds, and peak memory of the process.

bench/large_trace.py [--accesses N]     N accesses of the region mwt2 (10 000 000)

`replay` runs LRU, the clairvoyant and the bounds at 5 % of the footprint, one after the other.

Needs the environment that `make verify` makes: .venv/bin/python bench/large_trace.py
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Print a row per command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--accesses", type=int, default=10_000_000)
    n_accesses = parser.parse_args().accesses
    print(f"{n_accesses} accesses of mwt2\n\n| command | s | peak memory, GB |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
        trace, page = Path(folder, "trace"), Path(folder, "study.html")
        commands = {
            "workload": ("--scenario", "mwt2", "--accesses", n_accesses, "--out", trace),
            "curve": ("--trace", trace),
            "replay": ("--trace", trace, "--policy", "lru,clairvoyant", "--capacity-fraction", 0.05),
            "report": ("--trace", trace, "--watermarks", "0.90,0.95", "--out", page),
        }
        for name, words in commands.items():
            cost = measured(name, *words)
            print(f"| {name} | {cost.seconds:.0f} | {cost.peak_bytes / 1e9:.1f} |", flush=True)
        for file in sorted(trace.iterdir()):
            print(f"| size of {file.name} | | {file.stat().st_size / 1e9:.2f} |")


class Cost(NamedTuple):
    """Wall and CPU seconds of a command, and its peak resident bytes."""

    seconds: float
    cpu_s: float
    peak_bytes: int


def measured(command: str, *words: object) -> Cost:
    """What a command took. Raises ChildProcessError if it fails."""
    started = time.monotonic()
    one_core = ("taskset", "-c", "0") if command == "replay" else ()  # one replay at a time
    process = subprocess.Popen(
        [*one_core, sys.executable, "-m", "jobs", command, *map(str, words), "--json"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise ChildProcessError(f"cachecast {command} ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


if __name__ == "__main__":
    main()
