"""Rows to learn an order of eviction from: files as they were when a cache might have evicted them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from features.common.arrays import Float32Array, FloatArray, Ids, IntArray
from features.common.jit import kernel
from features.spec import COLUMNS
from features.stream.row import row
from features.stream.state import Read, State, new_state, update
from replay.access_context import AccessContext, check_fits
from replay.trace import ItemArray, Trace

TRIES = 8
"""Draws for one row before it is given up: a drawn access counts if its file was not read again since."""
_SEED = 1


class Decisions(NamedTuple):
    """`k` files at times: `x` float32[k, columns], `at_s` float64[k], `next_s` float64[k], seconds until the
    next read, inf if the trace has none.
    """

    x: Float32Array
    at_s: FloatArray
    next_s: FloatArray


class _Plan(NamedTuple):
    """Which rows to draw: from access `first` on, `per_access` at each; `chance`: random numbers below 1."""

    windows_s: FloatArray
    first: int
    per_access: float
    chance: FloatArray
    state: State


class _Drawn(NamedTuple):
    """`k` rows: the file of each, the index of the access before which it was seen, and its columns."""

    file: Ids
    at: IntArray
    x: Float32Array


def decisions(
    trace: Trace,
    context: AccessContext,
    windows_s: Sequence[float],
    *,
    from_s: float,
    to_s: float,
    most: int,
) -> Decisions:
    """At most `most` rows between two times, of files whose last read is no longer ago than a window.

    Every window (the eviction ages of the caches at hand) gets as many rows, of files drawn alike. Nothing
    after `to_s` is read. Raises InputError.
    """
    check_fits(context, trace)
    first, stop = trace.first_at(int(from_s)), trace.first_at(int(to_s))
    chance = np.random.default_rng(_SEED).random((most + 1) * TRIES)
    state = new_state(trace.n_items, context.n_datasets)
    plan = _Plan(np.array(windows_s, np.float64), first, most / max(1, stop - first), chance, state)
    rows = _Drawn(
        np.zeros(most, np.int32), np.zeros(most, np.int64), np.zeros((most, len(COLUMNS)), np.float32)
    )
    n = _draw(trace.item[:stop], trace.time_s[:stop], context, plan, rows)
    file, at = rows.file[:n], rows.at[:n]
    return Decisions(rows.x[:n], trace.time_s[at].astype(np.float64), _until_next(trace, file, at, stop))


def _until_next(trace: Trace, file: Ids, at: IntArray, stop: int) -> FloatArray:
    """Seconds from access `at` to the next one of `file`, from it on and before `stop`; inf: none."""
    order = np.argsort(trace.item[:stop], kind="stable")
    key = trace.item[:stop][order].astype(np.int64) * (stop + 1) + order
    place = np.searchsorted(key, file.astype(np.int64) * (stop + 1) + at)
    found = order[np.minimum(place, stop - 1)]
    is_same = (place < stop) & (trace.item[found] == file)
    return np.where(is_same, trace.time_s[found] - trace.time_s[at], np.inf)


@kernel
def _draw(item: ItemArray, time_s: IntArray, context: AccessContext, plan: _Plan, rows: _Drawn) -> int:
    """Fill `rows` while the accesses pass by; their number."""
    state = plan.state
    last = np.full(state.file.shape[0], -1, np.int64)
    oldest = np.zeros(plan.windows_s.size, np.int64)
    n, due, tries = 0, 0.0, 0
    for i in range(item.size):
        now_s = float(time_s[i])
        due += plan.per_access if i >= plan.first else 0.0
        while due >= 1 and n < rows.file.size:
            due -= 1
            w = n % oldest.size
            while time_s[oldest[w]] < now_s - plan.windows_s[w]:
                oldest[w] += 1
            for _ in range(TRIES):
                j = oldest[w] + int(plan.chance[tries % plan.chance.size] * (i - oldest[w]))
                tries += 1
                if j < i and last[item[j]] == j:
                    row(state, context.files, item[j], now_s, rows.x[n])
                    rows.file[n], rows.at[n] = item[j], i
                    n += 1
                    break
        last[item[i]] = i
        update(state, context.files, Read(item[i], context.reader[i], 1.0, now_s, now_s))
    return n
