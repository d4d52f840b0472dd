"""Rows to learn an order of eviction from: files as they were when a cache might have evicted them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from features.arrays import Float32Array, FloatArray, IntArray
from features.jit import kernel
from features.stream.row import COLUMNS, row
from features.stream.state import Ids, new_state, update
from replay.story import Story
from replay.trace import Trace

TRIES = 8


class Decisions(NamedTuple):
    """`k` files at times: `x` float32[k, columns], `at_s` float64[k], `next_s` float64[k], seconds until the
    next read, inf if the trace has none.
    """

    x: Float32Array
    at_s: FloatArray
    next_s: FloatArray


def decisions(
    trace: Trace,
    story: Story,
    windows_s: Sequence[float],
    *,
    from_s: float,
    to_s: float,
    most: int,
    seed: int = 1,
) -> Decisions:
    """At most `most` rows between two times, of files whose last read is no longer ago than a window.

    Every window (the eviction ages of the caches at hand) gets as many rows; within one, files are drawn alike.
    Nothing after `to_s` is read.
    """
    first, stop = trace.first_at(int(from_s)), trace.first_at(int(to_s))
    n = max(0, stop - first)
    per_access = most / max(1, n)
    state = new_state(trace.n_items, story.n_files)
    found = _draw(
        trace.item[:stop],
        trace.time_s[:stop],
        story,
        state,
        np.array(windows_s, np.float64),
        first,
        per_access,
        np.zeros((most, len(COLUMNS)), np.float32),
        np.random.default_rng(seed).random((most + 1) * TRIES),
    )
    x, file, at_index = found
    return Decisions(x, trace.time_s[at_index].astype(np.float64), _until_next(trace, file, at_index, stop))


def _until_next(trace: Trace, file: Ids, at: IntArray, stop: int) -> FloatArray:
    """Seconds from access `at` to the next one of `file` at or behind it, inf if that is not before `stop`."""
    order = np.lexsort((np.arange(stop), trace.item[:stop]))
    key = trace.item[:stop][order].astype(np.int64) * (stop + 1) + order
    place = np.searchsorted(key, file.astype(np.int64) * (stop + 1) + at)
    inside = np.minimum(place, stop - 1)
    found = (place < stop) & (trace.item[order[inside]] == file)
    return np.where(found, trace.time_s[order[inside]] - trace.time_s[at], np.inf)


@kernel
def _draw(item, time_s, story, state, windows_s, first, per_access, x, chance):  # type: ignore[no-untyped-def]
    n_windows, most = windows_s.size, x.shape[0]
    file, at = np.zeros(most, np.int32), np.zeros(most, np.int64)
    last = np.full(state.file.shape[0], -1, np.int64)
    oldest = np.zeros(n_windows, np.int64)
    n, due, used = 0, 0.0, 0
    for i in range(item.size):
        if i >= first:
            due += per_access
            now = time_s[i]
            while due >= 1 and n < most:
                due -= 1
                w = n % n_windows
                while time_s[oldest[w]] < now - windows_s[w]:
                    oldest[w] += 1
                for _ in range(TRIES):
                    j = oldest[w] + int(chance[used % chance.size] * (i - oldest[w]))
                    used += 1
                    if j < i and last[item[j]] == j:
                        row(state, story.files, item[j], float(now), story.pause_s, x[n])
                        file[n], at[n] = item[j], i
                        n += 1
                        break
        last[item[i]] = i
        update(state, story.files, item[i], story.reader[i], float(time_s[i]), story.pause_s)
    return x[:n], file[:n], at[:n]
