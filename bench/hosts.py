"""What a cache's host does: cinfo files walked, f-stream datagrams decoded, per second. See also collect.py.

bench/hosts.py            medians of three runs

Needs the environment that `make verify` makes: .venv/bin/python bench/hosts.py
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

from cinfo_writer import dump  # noqa: E402
from monitoring import closing, fstream, opening  # noqa: E402

from prefetch.xcache.cinfo import AccessRecord, CInfo  # noqa: E402
from prefetch.xcache.cinfo_rows import batches  # noqa: E402
from prefetch.xcache.fstream import decode  # noqa: E402

N_FILES, BLOCK_BYTES, N_BLOCKS = 20_000, 131072, 16_000
N_RECORDS = 560
START_S = 1_772_323_200
RUNS = 3


def make_namespace(root: Path) -> None:
    """Files of 2 GB with one to five remembered accesses, 100 a folder."""
    for number in range(N_FILES):
        folder = root / f"store/data/Run2024{'ABCDEFGH'[number % 8]}/P/AOD/v1/{number // 800:04d}"
        if number % 800 < 8:
            folder.mkdir(parents=True, exist_ok=True)
        n_accesses = 1 + number % 5
        accesses = tuple(
            AccessRecord(START_S + 3600 * i, START_S + 3600 * i + 100, 1, 100, 0, 0, 10**8, 0, 0)
            for i in range(n_accesses)
        )
        info = CInfo(
            *(BLOCK_BYTES, N_BLOCKS * BLOCK_BYTES, START_S, 0, n_accesses, 0),
            b"\xff" * (N_BLOCKS // 8),
            accesses,
        )
        (folder / f"f{number}.root.cinfo").write_bytes(dump(info))


def fstream_datagram() -> bytes:
    """As a busy cache sends: 64 kB, as many closes as opens."""
    name = "/ncar/rda/d651055/CESM2-SF/atm/proc/tseries/day_1/FSDSC/file.nc".ljust(97, "c")
    pairs = (
        (opening(n, name, size=10**9), closing(n, 10**5, 0, tail=bytes(48))) for n in range(N_RECORDS // 2)
    )
    records = itertools.chain.from_iterable(pairs)
    return fstream(*records, pseq=0, begin=START_S, end=START_S + 1, stod=START_S, sid=7)


def rate_of(work: Callable[[], int]) -> float:
    """Pieces of work a second, the median of some runs."""
    rates = []
    for _ in range(RUNS):
        began = time.perf_counter()
        n_done = work()
        rates.append(n_done / (time.perf_counter() - began))
    return statistics.median(rates)


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        make_namespace(Path(folder))
        files = rate_of(lambda: sum(batch.num_rows for batch in batches(Path(folder))))
    print(
        f"scan     {files:6.0f} files/s walked and parsed ({N_FILES} files, {os.cpu_count()} cores, one used)"
    )
    packet = fstream_datagram()
    records = rate_of(lambda: sum(len(decode(packet).opened) * 2 for _ in range(200)))
    print(f"fstream  {records:6.0f} records/s decoded")


if __name__ == "__main__":
    main()
