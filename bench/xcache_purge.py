"""A real XCache beside its replay: the same reads, and what each of them holds after every purge.

bench/xcache_purge.py [--rounds N] [--seed N] [--xrootd VERSION]

Starts an origin and an XCache on loopback, reads files through the cache for some minutes, some of them held
open over a purge, and replays these reads. Prints what both hold after each check, and ends with 1 where they
differ. XCache checks at most once a minute, so this takes a while: `--rounds` minutes.

Needs the environment that `make verify` makes: .venv/bin/python bench/xcache_purge.py
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

import numpy as np  # noqa: E402
import xrootd_versions  # noqa: E402

from jobs.local_site.local.xrootd import Loopback, loopback  # noqa: E402
from prefetch.xcache.holdings import held_below  # noqa: E402
from prefetch.xcache.session import RemoteFile  # noqa: E402
from replay.config import CacheConfig  # noqa: E402
from replay.engine import simulate  # noqa: E402
from replay.planner import Actions, CacheState  # noqa: E402
from replay.trace import Trace  # noqa: E402

INTERVAL_S = 60
BLOCK_BYTES = 128 * 2**10
# Room for about two rounds: a purge takes some of what is older than the last one, by its age.
LIMIT_BYTES = 16 * 2**20
# Base, nominal and maximum. A check that finds more than the maximum removes files down to nominal (5.5.3).
# 6.2.1 goes as far below the maximum as was written since the last check, but not below base, and removes
# 512 bytes more. Files are multiples of a block, so that for them the three are one limit.
FILES_LIMIT = (LIMIT_BYTES + 1024, LIMIT_BYTES + 2048, LIMIT_BYTES + 3072)
N_FILES, READS_A_ROUND = 60, 12
QUIET_S = 5
"""Nothing is read around a check."""


@dataclasses.dataclass(frozen=True)
class Read:
    """One read of file `item`, s since 1970."""

    item: int
    open_s: int
    close_s: int


class Reader:
    """Reads through the cache, and keeps what it did."""

    def __init__(self, site: Loopback, sizes: list[int]) -> None:
        self._url, self.reads = site.cache_url, list[Read]()
        for item, size in enumerate(sizes):
            site.add_file(name_of(item), b"x" * size)

    def read(self, item: int, hold_s: float) -> None:
        """Open, read all, wait, close."""
        opened = time.time()
        with RemoteFile(f"{self._url}/{name_of(item)}", time.monotonic() + hold_s + 30) as remote:
            remote.read_all()
            time.sleep(hold_s)
        self.reads.append(Read(item, int(opened), int(time.time())))


class Recorder:
    """A planner that plans nothing and notes what the replayed cache holds, right after each check."""

    def __init__(self) -> None:
        self.held = list[set[int]]()

    def actions(self, state: CacheState) -> Actions:
        """Nothing to do."""
        self.held.append(set(state.item.tolist()))
        none = np.zeros(0, np.int64)
        return Actions(none, none, none, none)


def name_of(item: int) -> str:
    """The file's LFN."""
    return f"/store/mc/file{item:03}.root"


def first_check_after_s(version: str) -> int:
    """When an XCache of `version` makes its first check, in seconds after it starts."""
    return 1 if tuple(map(int, version.split(".")[:2])) < (5, 8) else INTERVAL_S


def watch(
    site: Loopback, sizes: list[int], rounds: int, seed: int, version: str
) -> tuple[list[Read], list[set[int]], int]:
    """The reads of `rounds` minutes, what the cache held after each check, and when it made the first."""
    rng = np.random.default_rng(seed)
    site.restart_cache()
    first_check_s = time.time() + first_check_after_s(version)
    reader = Reader(site, sizes)
    held: list[set[int]] = []
    open_now: list[threading.Thread] = []
    for k in range(rounds + 1):
        time.sleep(max(0.0, first_check_s + k * INTERVAL_S + QUIET_S - time.time()))
        # From its disk alone: a purge spares files that the server was asked for since the last one.
        held.append({int(file.name[-8:-5]) for file in held_below(site.namespace)})
        print(f"check {k}: {len(held[-1])} files on disk", file=sys.stderr, flush=True)
        if k == rounds:
            break
        order = rng.permutation(len(sizes))[:READS_A_ROUND].tolist()
        open_now.append(threading.Thread(target=reader.read, args=(order[0], 1.3 * INTERVAL_S)))
        open_now[-1].start()
        for item in order[1:]:
            reader.read(item, 0.2)
            time.sleep(1.0)
    for thread in open_now:
        thread.join()
    reader.read(0, 0.2)  # the replay ends with its last access, so one has to follow the last check
    return reader.reads, held, int(first_check_s)


def replay(reads: list[Read], sizes: list[int], first_check_s: int) -> list[set[int]]:
    """What the replayed cache holds after each check."""
    ordered = sorted(reads, key=lambda read: (read.open_s, read.item))
    # The replay checks at multiples of the interval.
    shift = first_check_s - INTERVAL_S
    trace = Trace(
        np.array([read.open_s for read in ordered]) - shift,
        np.array([read.item for read in ordered]),
        np.array(sizes),
        close_s=np.array([read.close_s for read in ordered]) - shift,
    )
    capacity = 100 * LIMIT_BYTES
    config = CacheConfig(capacity, LIMIT_BYTES / capacity, LIMIT_BYTES / capacity, INTERVAL_S)
    recorder = Recorder()
    simulate(trace, config, planner=recorder, cycle_s=INTERVAL_S)
    return recorder.held


def main() -> int:
    """Compare, print, and say by the exit code whether they agree."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5, help="minutes of reads")
    options.add_argument("--seed", type=int, default=1, help="of sizes and reads")
    here = list(xrootd_versions.programs())
    options.add_argument("--xrootd", choices=here, default=here[0] if here else None, help="of the servers")
    arguments = options.parse_args()
    blocks = np.random.default_rng(arguments.seed).integers(1, 13, N_FILES)
    sizes = (blocks * BLOCK_BYTES).tolist()
    with tempfile.TemporaryDirectory(prefix="xc-") as folder:
        Path(folder).chmod(0o755)
        version = arguments.xrootd or xrootd_versions.NONE
        with (
            xrootd_versions.in_use(version),
            loopback(Path(folder) / "lb", files_limit=FILES_LIMIT) as site,
        ):
            reads, real, first_check_s = watch(site, sizes, arguments.rounds, arguments.seed, version)
    mine = replay(reads, sizes, first_check_s)
    same = True
    print("| check | files on disk, XCache | replay | only XCache | only replay |\n|---|---|---|---|---|")
    for k, (theirs, ours) in enumerate(zip(real[1:], mine, strict=False), 1):
        same &= theirs == ours
        print(f"| {k} | {len(theirs)} | {len(ours)} | {sorted(theirs - ours)} | {sorted(ours - theirs)} |")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
