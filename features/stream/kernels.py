"""Many reads counted, and many rows written, by one call."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from features.arrays import Float32Array
from features.jit import bare
from features.stream.columns import COLUMNS
from features.stream.events import Events
from features.stream.row import row
from features.stream.state import Files, Ids, Read, State, update

_ROWS_PER_THREAD = 4096


@bare
def count(state: State, files: Files, events: Events, start: int, stop: int) -> None:
    """Count the events `start` … `stop` - 1."""
    for i in range(start, stop):
        n_reads, at_s, from_s = events.n_reads[i], events.at_s[i], float(events.from_s[i])
        update(state, files, Read(events.item[i], events.reader[i], n_reads, at_s, from_s))


def rows(state: State, files: Files, item: Ids, now_s: float) -> Float32Array:
    """The columns of each of `item`, no file twice, as they are at `now_s`: float32[len(COLUMNS), k]."""
    x = np.empty((item.size, len(COLUMNS)), np.float32)
    if item.size <= _ROWS_PER_THREAD:
        _write(state, files, item, now_s, x)
        return np.ascontiguousarray(x.T)
    n_threads = len(os.sched_getaffinity(0))
    edges = np.linspace(0, item.size, n_threads + 1).astype(int)
    with ThreadPoolExecutor(n_threads) as pool:
        parts = [
            pool.submit(_write, state, files, item[a:b], now_s, x[a:b]) for a, b in itertools.pairwise(edges)
        ]
        for part in parts:
            part.result()
    return np.ascontiguousarray(x.T)


@bare
def _write(state: State, files: Files, item: Ids, now_s: float, x: Float32Array) -> None:
    for k in range(item.size):
        row(state, files, item[k], now_s, x[k])
