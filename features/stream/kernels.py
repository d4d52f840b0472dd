"""Many reads counted, and many rows written, by one call."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from features.common.arrays import Float32Array, Ids
from features.common.jit import bare, kernel
from features.stream.columns import COLUMNS
from features.stream.events import Events
from features.stream.row import row
from features.stream.state import Files, Read, State, update

_ROWS_PER_THREAD = 4096
_BLOCK = 64
"""Rows that are written and then turned into columns, while they are in the processor's caches."""


@bare
def count(state: State, files: Files, events: Events, start: int, stop: int) -> None:
    """Count the events `start` … `stop` - 1."""
    for i in range(start, stop):
        n_reads, at_s, from_s = events.n_reads[i], events.at_s[i], float(events.from_s[i])
        update(state, files, Read(events.item[i], events.reader[i], n_reads, at_s, from_s))


def rows(state: State, files: Files, item: Ids, now_s: float) -> Float32Array:
    """The columns of each of `item`, no file twice, as they are at `now_s`: float32[len(COLUMNS), k]."""
    if item.size <= _ROWS_PER_THREAD:
        return written(state, files, item, now_s)
    n_threads = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(n_threads) as pool:
        parts = [pool.submit(written, state, files, part, now_s) for part in np.array_split(item, n_threads)]
        return np.concatenate([part.result() for part in parts], axis=1)


@kernel
def written(state: State, files: Files, item: Ids, now_s: float) -> Float32Array:
    """`rows` by one thread: the columns of each of `item` at `now_s`, float32[len(COLUMNS), k]."""
    x = np.empty((len(COLUMNS), item.size), np.float32)
    block = np.empty((_BLOCK, len(COLUMNS)), np.float32)
    for start in range(0, item.size, _BLOCK):
        n = min(_BLOCK, item.size - start)
        for k in range(n):
            row(state, files, item[start + k], now_s, block[k])
        for column in range(len(COLUMNS)):
            for k in range(n):
                x[column, start + k] = block[k, column]
    return x
