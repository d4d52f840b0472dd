"""libCacheSim's policies on the traces of `leaderboard.py`, each in a process of its own.

Some end without an answer. libCacheSim's licence makes it a judge to compare with, no part of the program.

3L-Cache learns from windows of a size that its Python build fixes, longer than a trace of some weeks: left
alone it equals LRU. So the accesses before the counted days are played to it under other names first, again
and again: it has learned from the past, and nothing else, when counting begins. LRB's window is fixed too:
it learns on a CDN's log of 600 thousand reads, and equals LRU where files are seldom read again.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import libcachesim
import numpy as np
from boards import ROOT, Board

sys.path.insert(0, str(ROOT / "tests" / "support" / "oracles"))

from libcachesim_oracle import write_lcs

from replay.trace import Trace

RIVALS: Mapping[str, str] = MappingProxyType({
    "arc": "ARC", "cacheus": "Cacheus", "clockpro": "ClockPro", "gdsf": "GDSF", "hyperbolic": "Hyperbolic",
    "lecar": "LeCaR", "lfuda": "LFUDA", "lhd": "LHD", "lirs": "LIRS", "lrb": "LRB", "s3fifo": "S3FIFO",
    "sieve": "Sieve", "slru": "SLRU", "3lcache": "ThreeLCache", "2q": "TwoQ", "wtinylfu": "WTinyLFU",
})  # fmt: skip
REHEARSED: Mapping[str, int] = MappingProxyType({"3lcache": 2_000_000})
"""Accesses that are played first, about."""
TIMEOUT_S = 120


class Replayed(NamedTuple):
    """Hits, and bytes fetched, of the counted accesses."""

    hits: int
    wan_bytes: int


@contextmanager
def rivals_on(board: Board) -> Iterator[Callable[[int], dict[str, Replayed]]]:
    """What replays a trace by each policy at a capacity; those that end without an answer are left out."""
    with tempfile.TemporaryDirectory(prefix="cachecast-") as scratch:
        lcs = {name: Path(scratch, f"{name}.lcs") for name in ("plain", *REHEARSED)}
        leads = {name: rehearsed(board, REHEARSED.get(name, 0), path) for name, path in lcs.items()}

        def at(capacity_bytes: int) -> dict[str, Replayed]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                answers = pool.map(partial(replayed, board, lcs, leads, capacity_bytes), RIVALS)
                named = zip(RIVALS, answers, strict=True)
                return {f"libcachesim-{name}": answer for name, answer in named if answer is not None}

        yield at


def rehearsed(board: Board, n: int, path: Path) -> int:
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
    board: Board, lcs: Mapping[str, Path], leads: Mapping[str, int], room: int, name: str
) -> Replayed | None:
    """What a policy served; None if it ends without an answer, or takes too long."""
    trace = board.trace
    edges = [0, trace.first_at(board.from_s), trace.n_accesses]
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe(duplex=False)
    kind = name if name in REHEARSED else "plain"
    process = context.Process(
        target=play, args=(RIVALS[name], (str(lcs[kind]), leads[kind]), room, edges, there)
    )
    process.start()
    there.close()
    try:
        missed = here.recv() if here.poll(TIMEOUT_S) else None
    except EOFError:
        missed = None
    process.kill()
    process.join()
    if missed is None:
        return None
    n_counted = edges[2] - edges[1]
    n_bytes = int(trace.size_bytes[trace.item[edges[1] :]].sum())
    return Replayed(n_counted - round(missed[0] * n_counted), round(missed[1] * n_bytes))


def play(kind: str, lcs: tuple[str, int], room: int, edges: list[int], answer: Any) -> None:
    """Send the shares of objects and of bytes that were missed after the warm-up.

    `lcs`: a file, and how many accesses come there before the trace.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the library's warnings are no tables
    path, lead = lcs
    reader = libcachesim.TraceReader(path, libcachesim.TraceType.LCS_TRACE)
    cache = getattr(libcachesim, kind)(room, hashpower=20)
    if lead:
        cache.process_trace(reader, 0, lead)
    cache.process_trace(reader, lead, edges[1])
    answer.send(cache.process_trace(reader, lead + edges[1], edges[2] - edges[1]))
