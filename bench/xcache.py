"""Reads of a real XCache, cold and warm, beside reads from its origin, with and without parallel event loops.

bench/xcache.py [--files N] [--loops L]

As in CERN's study of XCache: clients read whole files from the origin (`direct`), through an empty cache
(`cold`), and through the cache that holds them (`warm`); `XRD_PARALLELEVTLOOP` is the number of the XRootD
client's event loops, in the readers and in the cache itself, which is a client of its origin. All daemons run
on this machine: the ratios say what a cache costs and saves without any network between.

Needs the environment that `make verify` makes: .venv/bin/python bench/xcache.py
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # bench/replay.py would hide the room

from jobs.local.xrootd import Loopback, loopback
from prefetch.xcache.session import RemoteFile, ThreadConnections

MODES = ("direct", "cold", "warm")
PATIENCE_S = 120.0
LOOPS = "XRD_PARALLELEVTLOOP"


def main() -> int:
    """Print a table of rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--mib", type=int, default=8, help="of each file")
    parser.add_argument("--readers", type=int, default=8, help="files read at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loops", type=int, default=10)
    parser.add_argument("--read", metavar="URL", help="read the files of this server once; print the seconds")
    parser.add_argument("--round", type=int, default=0, help="of --read: which files")
    given = parser.parse_args()
    if given.read:
        print(read_all(given.read, names_of(given.round, given.files), given.readers))
        return 0
    total_mb = given.files * given.mib * 2**20 / 1e6
    print(f"| {LOOPS} | direct MB/s | cold MB/s | warm MB/s | cold/direct | warm/direct |")
    print("|---|---|---|---|---|---|")
    found = measured(given)
    for loops, seconds in found.items():
        rates = {mode: total_mb / statistics.median(seconds[mode]) for mode in MODES}
        ratios = [
            statistics.median(d / s for d, s in zip(seconds["direct"], seconds[mode], strict=True))
            for mode in ("cold", "warm")
        ]
        cells = [loops or "not set", *(f"{rates[mode]:.0f}" for mode in MODES), *(f"{r:.2f}" for r in ratios)]
        print(f"| {' | '.join(cells)} |")
    return 0


def measured(given: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Seconds of every round, by the number of loops (empty: not set) and mode."""
    settings = ("", str(given.loops))
    seconds: dict[str, dict[str, list[float]]] = {loops: {mode: [] for mode in MODES} for loops in settings}
    with tempfile.TemporaryDirectory(prefix="xc-") as folder, contextlib.ExitStack() as stack:
        Path(folder).chmod(0o755)
        sites = {loops: stack.enter_context(server(Path(folder) / f"lb{loops}", loops)) for loops in settings}
        for number in range(given.rounds):
            for loops in sorted(settings, reverse=bool(number % 2)):
                site = sites[loops]
                for name in names_of(number, given.files):
                    os.truncate(site.add_file(name, b""), given.mib * 2**20)
                for mode in MODES:
                    port = (site.origin if mode == "direct" else site.cache).port
                    seconds[loops][mode].append(reader(f"root://127.0.0.1:{port}", number, given, loops))
    return seconds


def names_of(number: int, n_files: int) -> list[str]:
    """The files of a round: no other round has read them."""
    return [f"/store/mc/round{number}-{k:04}.root" for k in range(n_files)]


@contextlib.contextmanager
def server(folder: Path, loops: str) -> Iterator[Loopback]:
    """An origin and a cache whose own client has so many event loops."""
    os.environ.pop(LOOPS, None)
    if loops:
        os.environ[LOOPS] = loops
    with loopback(folder) as site:
        yield site


def reader(url: str, number: int, given: argparse.Namespace, loops: str) -> float:
    """Seconds that a process of its own needs for all files of a round."""
    numbers = {"files": given.files, "readers": given.readers, "round": number}
    command = [sys.executable, __file__, "--read", url]
    command += [word for option, value in numbers.items() for word in (f"--{option}", str(value))]
    env = {key: value for key, value in os.environ.items() if key != LOOPS} | (
        {LOOPS: loops} if loops else {}
    )
    return float(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


def read_all(url: str, names: list[str], n_readers: int) -> float:
    """Read every file whole; the seconds it took."""
    connections = ThreadConnections(url)

    def read(name: str) -> None:
        with RemoteFile(f"{connections.url()}/{name}", time.monotonic() + PATIENCE_S) as remote:
            remote.read_all()

    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(n_readers) as pool:
        list(pool.map(read, names))
    return time.monotonic() - started


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # The client library's threads outlive the main thread.
    os._exit(code)
