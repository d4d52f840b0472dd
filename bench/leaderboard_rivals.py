"""libCacheSim's policies for a leaderboard: parts beside those of `cachecast leaderboard`.

bench/leaderboard_rivals.py --traces FILE --out DIR [--capacity-fraction 0.05,0.1,0.2]

Each policy replays each trace day by day in a process of its own, as some end without an answer; one per core
at a time. Run it before `cachecast leaderboard` with the same arguments, which then shows both. libCacheSim's
licence makes it a judge to compare with, no part of the program.

3L-Cache learns from windows of a size that its Python build fixes, longer than a trace of some weeks: left
alone it equals LRU. So the accesses before the counted days are played to it under other names first, again
and again: it has learned from the past, and nothing else, when counting begins. LRB's window is fixed too:
it learns on a CDN's log of 600 thousand reads, and equals LRU where files are seldom read again.

Needs the environment that `make verify` makes.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import libcachesim
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "oracles")]

from libcachesim_oracle import write_lcs  # noqa: E402

from features.common.times import DAY_S  # noqa: E402
from jobs.studies.leaderboard.entries import FORM, BoardTrace, opened, read_entries  # noqa: E402
from jobs.studies.leaderboard.parts import Part, Parts, capacity  # noqa: E402
from replay.trace import Trace  # noqa: E402

PREFIX = "libcachesim-"
RIVALS = {
    "arc": "ARC", "cacheus": "Cacheus", "clockpro": "ClockPro", "gdsf": "GDSF", "hyperbolic": "Hyperbolic",
    "lecar": "LeCaR", "lfuda": "LFUDA", "lhd": "LHD", "lirs": "LIRS", "lrb": "LRB", "s3fifo": "S3FIFO",
    "sieve": "Sieve", "slru": "SLRU", "3lcache": "ThreeLCache", "2q": "TwoQ", "wtinylfu": "WTinyLFU",
}  # fmt: skip
REHEARSED = {"3lcache": 2_000_000}
"""Accesses that are played first, about."""
TIMEOUT_S = 120


def main() -> None:
    """Replay what has no part yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--traces", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--capacity-fraction", default="0.01,0.02,0.05,0.1,0.2,0.4")
    given = parser.parse_args()
    fractions = [float(share) for share in given.capacity_fraction.split(",")]
    parts = Parts(given.out)
    for entry in (one for path in given.traces for one in read_entries(path)):
        with tempfile.TemporaryDirectory(prefix="cachecast-") as scratch:
            board = opened(entry, Path(scratch))
            lcs = {name: Path(scratch, f"{name}.lcs") for name in ("plain", *REHEARSED)}
            leads = {name: rehearsed(board, REHEARSED.get(name, 0), path) for name, path in lcs.items()}
            wanted = [
                (fraction, name)
                for fraction, name in itertools.product(fractions, RIVALS)
                if parts.find(board, fraction, PREFIX + name) is None
            ]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                found = pool.map(partial(replayed, board, lcs, leads), wanted)
                for (fraction, name), part in zip(wanted, found, strict=True):
                    done = "–" if part is None else "done"
                    print(f"{entry.name} {fraction:g} {name} {done}", file=sys.stderr, flush=True)
                    if part is not None:
                        parts.keep(part)


def rehearsed(board: BoardTrace, n: int, path: Path) -> int:
    """Write the trace to `path` behind about `n` accesses of its past, under other names; their number."""
    trace = board.trace
    n_past = trace.first_at(board.from_s)
    copies = n // n_past
    past_s = trace.time_s[:n_past]
    span_s = int(past_s[-1] - past_s[0]) + 1
    back = np.arange(copies, 0, -1)
    whole = Trace(
        np.concatenate([np.subtract.outer(past_s, span_s * back).T.ravel(), trace.time_s]),
        np.concatenate([np.add.outer(trace.n_items * back, trace.item[:n_past]).ravel(), trace.item]),
        np.tile(trace.size_bytes, copies + 1),
    )
    write_lcs(whole, path)
    return copies * n_past


def replayed(
    board: BoardTrace, lcs: dict[str, Path], leads: dict[str, int], one: tuple[float, str]
) -> Part | None:
    """The part of a policy at a capacity; None if it ends without an answer, or takes too long."""
    fraction, name = one
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe(duplex=False)
    room = capacity(board, fraction)
    edges = day_edges(board)
    kind = name if name in REHEARSED else "plain"
    args = (RIVALS[name], (str(lcs[kind]), leads[kind]), room, edges, there)
    process = context.Process(target=by_days, args=args)
    process.start()
    there.close()
    try:
        found = here.recv() if here.poll(TIMEOUT_S) else None
    except EOFError:
        found = None
    process.kill()
    process.join()
    if found is None:
        return None
    object_misses, byte_misses, cpu_s = found
    trace = board.trace
    size = np.concatenate([[0], np.cumsum(trace.size_bytes[trace.item])])
    in_bytes, requests = np.diff(size[edges]), np.diff(edges)
    wan = np.rint(np.array(byte_misses) * in_bytes).astype(np.int64)[1:]
    misses = np.rint(np.array(object_misses) * requests).astype(np.int64)[1:]
    n = int(requests[1:].sum())
    return Part(
        form=FORM, digest=board.digest, trace=board.name, capacity_fraction=fraction, capacity_bytes=room,
        policy=PREFIX + name, accesses=trace.n_accesses, requests=n, bytes_requested=int(in_bytes[1:].sum()),
        hits=n - int(misses.sum()), cpu_s=cpu_s, wan_bytes=wan.tolist(),
    )  # fmt: skip


def day_edges(board: BoardTrace) -> list[int]:
    """Indices of accesses: the first, the first counted one, and the first of each later day."""
    time_s = board.trace.time_s
    days = np.arange(board.from_s // DAY_S, int(time_s[-1]) // DAY_S + 1) * DAY_S
    days[0] = board.from_s
    return [0, *np.searchsorted(time_s, days).tolist(), board.trace.n_accesses]


def by_days(kind: str, played: tuple[str, int], room: int, edges: list[int], answer: Any) -> None:
    """Send the miss ratios of objects and of bytes from edge to edge, and the CPU seconds.

    `played`: a file, and how many accesses there come before the trace.
    """
    lcs, lead = played
    reader = libcachesim.TraceReader(lcs, libcachesim.TraceType.LCS_TRACE)
    cache = getattr(libcachesim, kind)(room, hashpower=20)
    if lead:
        cache.process_trace(reader, 0, lead)
    began_s = time.process_time()
    ratios = [
        cache.process_trace(reader, lead + start, stop - start) if stop > start else (0.0, 0.0)
        for start, stop in itertools.pairwise(edges)
    ]
    answer.send(([r[0] for r in ratios], [r[1] for r in ratios], time.process_time() - began_s))


if __name__ == "__main__":
    main()
