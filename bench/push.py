"""A push beside plain copies of the same cold files through the same XCache, and a large plan journaled.

bench/push.py [--files N] [--rounds R]     medians; 1 if below what is promised

`push`: a plan of prefetches, verified file by file. `copy`: XRootD's CopyProcess to /dev/null, as xrdcp does.
Both work on `--parallel` files at once, in turns, each on files of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import socket
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # bench/replay.py would hide the room

from XRootD import client

from jobs.demo.xrootd import Loopback, loopback
from prefetch.journal import Item, Journal, Patience, Receipt
from prefetch.push import PushLimits, push
from prefetch.xcache.client import XCacheTarget

PROMISED_RATE, PROMISED_SHARE, PROMISED_ITEMS_S = 0.9, 0.001, 2000
_TCP_INFO_BYTES, _RECEIVED_AT = 136, 128  # struct tcp_info: tcpi_bytes_received


@dataclasses.dataclass(frozen=True)
class Turn:
    """One pass over all files: how long it took, and what crossed to this process."""

    seconds: float
    received_bytes: int


def main() -> int:
    """Print rates and ratios; 1 if one is below what is promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=32)
    parser.add_argument("--mib", type=int, default=8, help="of each file")
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=100_000, help="of the plan to journal")
    given = parser.parse_args()
    kept = transfers(given.files, given.mib * 2**20, given.parallel, given.rounds)
    return 0 if journaled(given.items) and kept else 1


def transfers(n_files: int, size_bytes: int, parallel: int, n_rounds: int) -> bool:
    """Push and copy in turns."""
    turns: dict[str, list[Turn]] = {"copy": [], "push": []}
    with tempfile.TemporaryDirectory(prefix="xc-") as folder:
        Path(folder).chmod(0o755)
        with loopback(Path(folder) / "lb") as site:
            target = XCacheTarget("xc", site.cache_url, site.namespace)
            for number in range(n_rounds):
                for kind in sorted(turns, reverse=bool(number % 2)):
                    # Names of their own: a file evicted while the cache still closes it is not kept.
                    names = [f"/store/mc/{kind}{number}-{k:04}.root" for k in range(n_files)]
                    for name in names:
                        os.truncate(site.add_file(name, b""), size_bytes)
                    before, started = received(site.cache.port), time.monotonic()
                    if kind == "push":
                        pushed(target, names, size_bytes, parallel, Path(folder) / f"journal{number}.db")
                    else:
                        copied(site, names, parallel)
                    turns[kind].append(Turn(time.monotonic() - started, received(site.cache.port) - before))
                    for name in names:
                        target.evict(name, timeout_s=20)
    total = n_files * size_bytes
    ratios = [copy.seconds / one.seconds for copy, one in zip(turns["copy"], turns["push"], strict=True)]
    for kind, done in turns.items():
        seconds = statistics.median(one.seconds for one in done)
        share = statistics.median(one.received_bytes for one in done) / total
        print(
            f"{kind}: {n_files / seconds:.1f} files/s, {total / seconds / 1e6:.0f} MB/s, "
            f"{share:.4%} of the bytes cross to the client"
        )
    rate = statistics.median(ratios)
    share = max(one.received_bytes for one in turns["push"]) / total
    print(f"push/copy: {rate:.2f} (of {n_rounds} rounds: {', '.join(f'{r:.2f}' for r in sorted(ratios))})")
    return rate >= PROMISED_RATE and share <= PROMISED_SHARE


def pushed(target: XCacheTarget, names: list[str], size_bytes: int, parallel: int, path: Path) -> None:
    """Journal and push a plan of prefetches."""
    now = int(time.time())
    journal = Journal(str(path))
    plan = (
        Item(name, "xc", now, f"t:{name}", name, "prefetch", rank, size_bytes, size_bytes, now + 3600)
        for rank, name in enumerate(names)
    )
    journal.record_plan(plan, now_s=now)
    summary = push(target, journal, cache="xc", limits=PushLimits(parallel=parallel))
    journal.close()
    if summary.pushed != len(names):
        raise SystemExit(f"the push failed: {summary}")


def copied(site: Loopback, names: list[str], parallel: int) -> None:
    """Read the files whole, as xrdcp does."""
    process = client.CopyProcess()
    process.parallel(parallel)
    for name in names:
        process.add_job(f"{site.cache_url}/{name}", "/dev/null", force=True)
    status = process.prepare()
    if status.ok:
        status, _ = process.run()
    if not status.ok:
        raise SystemExit(f"the copy failed: {status.message}")


def received(port: int) -> int:
    """Bytes that this process has received over its connections to `port`, by the kernel's count."""
    total = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not str(link.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(link.name))) as own:
                if own.getpeername()[1] == port:
                    info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                    total += struct.unpack_from("Q", info, _RECEIVED_AT)[0]
    return total


def journaled(n_items: int) -> bool:
    """Record a plan, then claim and finish a part of it, as a push does."""
    now = int(time.time())
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(str(Path(folder) / "journal.db"))
        plan = [
            Item(
                f"{k:032x}",
                "xc",
                now,
                f"cms:/store/f{k}",
                f"/store/f{k}",
                "prefetch",
                k,
                10**9,
                10**9,
                now + 9999,
            )
            for k in range(n_items)
        ]
        started = time.monotonic()
        journal.record_plan(plan, now_s=now)
        recorded = n_items / (time.monotonic() - started)
        n_done, started = min(n_items, 1000), time.monotonic()
        for _ in range(n_done):
            (item,) = journal.claim("xc", "prefetch", 1, owner="o", now_s=now, patience=Patience())
            journal.finish(item.item_id, Receipt("done"), owner="o", now_s=now)
        done = n_done / (time.monotonic() - started)
        journal.close()
    print(
        f"journal: {recorded:,.0f} items/s recorded of {n_items:,}; {done:,.0f} items/s claimed and finished"
    )
    return recorded >= PROMISED_ITEMS_S


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # The client library's threads outlive the main thread.
    os._exit(code)
