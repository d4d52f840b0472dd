"""A push beside plain copies of the same cold files through the same XCache, and a large plan journaled.

bench/push.py [--files N] [--rounds R]     medians; 1 if below what is promised
bench/push.py --journal [--items N]        the journal alone

`push`: a plan of prefetches, verified file by file. `copy`: XRootD's CopyProcess to /dev/null, as xrdcp does.
Both work on `--parallel` files at once, in turns, each on files of its own.

The journal: `recorded` beside the driver's own executemany, and `pushed`, a whole push whose cache answers at
once, beside bare updates by the driver: two commits for as many items as are at work at once. On SQLite, and
on PostgreSQL with and without waiting for the disk.

Needs the environment that `make verify` makes: .venv/bin/python bench/push.py
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import socket
import sqlite3
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support" / "servers"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import postgres_server
import psycopg
from XRootD import client

from jobs.local_site.local.xrootd import Loopback, loopback
from prefetch.actions import Action
from prefetch.directory import DirectoryTarget
from prefetch.journal.journal import Item, Journal
from prefetch.push.push import PushLimits, push
from prefetch.target import Confirmation, Held
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
    parser.add_argument("--journal", action="store_true", help="leave out the transfers")
    options = parser.parse_args()
    if options.journal:
        return 0 if journaled(options.items, options.parallel) else 1
    fast_enough = transfers(options.files, options.mib * 2**20, options.parallel, options.rounds)
    return 0 if journaled(options.items, options.parallel) and fast_enough else 1


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
    ratios = [copy.seconds / run.seconds for copy, run in zip(turns["copy"], turns["push"], strict=True)]
    for kind, done in turns.items():
        seconds = statistics.median(turn.seconds for turn in done)
        share = statistics.median(turn.received_bytes for turn in done) / total
        print(
            f"{kind}: {n_files / seconds:.1f} files/s, {total / seconds / 1e6:.0f} MB/s, "
            f"{share:.4%} of the bytes cross to the client"
        )
    rate = statistics.median(ratios)
    share = max(turn.received_bytes for turn in turns["push"]) / total
    print(f"push/copy: {rate:.2f} (of {n_rounds} rounds: {', '.join(f'{r:.2f}' for r in sorted(ratios))})")
    return rate >= PROMISED_RATE and share <= PROMISED_SHARE


def pushed(target: XCacheTarget, names: list[str], size_bytes: int, parallel: int, path: Path) -> None:
    """Journal and push a plan of prefetches."""
    now = int(time.time())
    journal = Journal(str(path))
    plan = [
        Item(
            name,
            "xc",
            now,
            f"t:{name}",
            name,
            Action.PREFETCH,
            rank,
            size_bytes,
            size_bytes,
            now + 3600,
            basis="known",
        )
        for rank, name in enumerate(names)
    ]
    journal.plans.record_plan(plan, now_s=now)
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


class Bare(NamedTuple):
    """The driver itself, and its mark of a parameter."""

    connection: sqlite3.Connection | psycopg.Connection
    mark: str


class HasAll(DirectoryTarget):
    """A cache that has every file, and says so at once: what is left of a push is its journal."""

    def confirm(self, name: str) -> Confirmation:
        return Confirmation(Held(name, 10**9, 10**9, True, 1, False), "directory")


def journaled(n_items: int, parallel: int) -> bool:
    """Record a plan and push it, by the journal and by the driver alone."""
    with tempfile.TemporaryDirectory() as folder:
        journal, bare = Path(folder) / "journal.db", Path(folder) / "bare.db"
        with contextlib.closing(sqlite3.connect(bare, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            fast_enough = beside("SQLite", str(journal), Bare(connection, "?"), n_items, parallel)
    for waits in (False, True):
        with (
            tempfile.TemporaryDirectory() as folder,
            postgres_server.running(Path(folder), waits_for_disk=waits) as server,
            psycopg.connect(server.url.replace("+psycopg", ""), autocommit=True) as connection,
        ):
            name = f"PostgreSQL{'' if waits else ', fsync off'}"
            fast_enough = beside(name, server.url, Bare(connection, "%s"), n_items, parallel) and fast_enough
    return fast_enough


def beside(name: str, url: str, bare: Bare, n_items: int, parallel: int) -> bool:
    """Print both rates of one database."""
    now = int(time.time())
    plan = [
        Item(
            f"{k:032x}",
            "xc",
            now,
            f"cms:/store/f{k}",
            f"/store/f{k}",
            Action.PREFETCH,
            k,
            10**9,
            0,
            now + 9999,
            basis="known",
        )
        for k in range(n_items)
    ]
    journal = Journal(url)
    journal.reports.counts()
    started = time.monotonic()
    journal.plans.record_plan(plan, now_s=now)
    recorded = n_items / (time.monotonic() - started)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        target = HasAll("xc", Path(folder), Path(folder) / "cache")
        done = push(target, journal, cache="xc", limits=PushLimits(parallel=parallel))
    pushed_s = n_items / (time.monotonic() - started)
    journal.close()
    if done.already_done != n_items:
        raise SystemExit(f"the push failed: {done}")
    inserted, updated = plain(bare, plan, parallel)
    print(
        f"{name}: {n_items:,} items, {recorded:,.0f}/s recorded ({recorded / inserted:.2f} of executemany), "
        f"{pushed_s:,.0f}/s pushed ({pushed_s / updated:.2f} of bare updates, {updated:,.0f}/s)",
        flush=True,
    )
    return min(recorded, pushed_s) >= PROMISED_ITEMS_S


def plain(bare: Bare, plan: list[Item], parallel: int) -> tuple[float, float]:
    """Items a second that the driver inserts at once, and that it updates twice in groups of `parallel`."""
    columns = [field.name for field in dataclasses.fields(Item)]
    rows = [tuple(getattr(item, column) for column in columns) for item in plan]
    kinds = ("BIGINT" if isinstance(value, int) else "TEXT" for value in rows[0])
    typed = ", ".join(f"{column} {kind}" for column, kind in zip(columns, kinds, strict=True))
    cursor, mark = bare.connection.cursor(), bare.mark
    cursor.execute(f"CREATE TABLE bare ({typed}, state TEXT, PRIMARY KEY (item_id))")
    started = time.monotonic()
    cursor.execute("BEGIN")
    cursor.executemany(
        f"INSERT INTO bare ({', '.join(columns)}) VALUES ({', '.join(mark for _ in columns)})", rows
    )
    cursor.execute("COMMIT")
    inserted = len(rows) / (time.monotonic() - started)
    started = time.monotonic()
    for first in range(0, len(rows), parallel):
        for state in ("running", "done"):
            cursor.execute("BEGIN")
            change = f"UPDATE bare SET state = {mark} WHERE item_id = {mark}"
            cursor.executemany(change, [(state, row[0]) for row in rows[first : first + parallel]])
            cursor.execute("COMMIT")
    return inserted, len(rows) / (time.monotonic() - started)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # The client library's threads outlive the main thread.
    os._exit(code)
