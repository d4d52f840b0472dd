"""An order of eviction for caches of several capacities, learned from a trace's own past.

The order is made of binary models, P(read within h) for horizons up to a third of the past.
They learn from files as they were when a cache might have evicted them (`decisions`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from features.common.arrays import AnyIntArray, Float32Array, FloatArray, Ids, IntArray
from features.common.errors import InputError
from features.common.jit import kernel
from features.common.progress import Advance, Steps
from features.common.times import DAY_S, day_label
from features.spec import COLUMNS, HOUR_S
from features.stream.row import row
from features.stream.state import Read, State, new_state, update
from models.learning.learners import LightGBM, forest_of
from models.parallel import map_parallel
from replay.access_context import AccessContext, check_fits
from replay.kernels.trees import HorizonModels, join_models
from replay.policies.learned import Order
from replay.trace import ItemArray, Trace

CAPACITY_FRACTIONS = (0.05, 0.1, 0.2)
"""Capacities of the caches that a training learns an order for, as shares of the bytes of all files read."""
HORIZONS_S = tuple(int(hours * HOUR_S) for hours in (1.5, 3, 6, 12, 24, 48, 96, 192, 384, 768))
EVERY_S = 7 * DAY_S
"""An order is learned anew each week, as production does."""
MOST_ORDERS = 8
"""At most so many in one replay: less often in a longer one, as each learns from all that lies before it."""
PAST_PER_HORIZON = 3
"""The past is at least this many times as long as the longest horizon."""
OUTLIVES = 3
"""Rows are of files up to this many times as old as LRU's oldest, as a learned order keeps some longer."""
AGE_MOMENTS = 8
"""Number of times at which LRU's age is measured."""
FEWEST_ROWS = 1000
"""A horizon with fewer labelled rows has no model."""
MOST_ROWS, ROWS_PER_ACCESS = 150_000, 4
"""Most training rows, in all and per access of the past."""
LEARNER = LightGBM(trees=40, best_trees=20, rate=0.12, extra_trees=True, min_rows=300)
"""Few trees with large leaves, half of them with random thresholds: a few datasets make most of the rows of
two weeks, but where there are many, the best thresholds are worth more.
"""


class HorizonTrees(NamedTuple):
    """A binary model per horizon, as LightGBM's text of the columns `COLUMNS`; horizons in s, ascending."""

    horizons_s: tuple[int, ...]
    texts: tuple[str, ...]


def horizon_models(trees: HorizonTrees) -> HorizonModels:
    """The models in the form that a kernel scores. Raises ModelError for a text of other columns."""
    return join_models([forest_of(text, COLUMNS) for text in trees.texts], trees.horizons_s)


def learn_horizons(
    trace: Trace,
    context: AccessContext,
    ages_s: Sequence[float],
    *,
    to_s: float,
    most_rows: int = MOST_ROWS,
    on_done: Callable[[], None] = lambda: None,
) -> HorizonTrees | None:
    """Models trained on what was known at `to_s`, for caches whose LRU ages are `ages_s`, in s.

    None if the past is too short for any horizon. `most_rows`: of the training. `on_done`: called after each
    horizon, in its thread.
    """
    from_s = float(trace.time_s[0])
    rows = decisions(
        trace,
        context,
        [OUTLIVES * age for age in ages_s],
        from_s=from_s + (to_s - from_s) / 8,
        to_s=to_s,
        most=min(most_rows, ROWS_PER_ACCESS * trace.first_at(int(to_s))),
    )

    if rows.at_s.size < FEWEST_ROWS:
        return None
    x = LEARNER.binned(pd.DataFrame(rows.x, columns=list(COLUMNS)))

    def text(horizon_s: int) -> str | None:
        labelled = rows.at_s + horizon_s <= to_s
        is_read = (rows.next_s[labelled] < horizon_s).astype(np.float64)
        if labelled.sum() < FEWEST_ROWS or not 0 < is_read.mean() < 1:
            return None
        return LEARNER.fit_some(x, np.flatnonzero(labelled), is_read).text

    horizons_s = _horizons_s(to_s - from_s)
    fitted = zip(horizons_s, map_parallel(text, horizons_s, on_done=on_done), strict=True)
    learned = {horizon_s: of for horizon_s, of in fitted if of is not None}
    return HorizonTrees(tuple(learned), tuple(learned.values())) if learned else None


def _horizons_s(past_s: float) -> list[int]:
    return [horizon_s for horizon_s in HORIZONS_S if horizon_s * PAST_PER_HORIZON <= past_s]


class Learning(NamedTuple):
    """A trace, and the capacities in bytes of the caches that orders of eviction are learned for.

    `known_s`: when each access became known, s since 1970; None: as it began.
    """

    trace: Trace
    context: AccessContext
    capacities: Sequence[int]
    known_s: AnyIntArray | None = None

    def orders(self, from_s: int, on_progress: Advance, *, every_s: int | None = None) -> list[Order]:
        """The orders from `from_s` to the end of the trace, one from each `every_s` on.

        Each is learned from what was known before it; where that is too little, there is none. None: each
        week, see `EVERY_S`. Raises InputError.
        """
        end_s = max(from_s, int(self.trace.time_s[-1])) + 1
        step_s = every_s or max(EVERY_S, -(-(end_s - from_s) // (MOST_ORDERS * DAY_S)) * DAY_S)
        times_s = range(from_s, end_s, step_s)
        orders = []
        for k, at_s in enumerate(times_s):

            def of_all(done: int, total: int, what: str, k: int = k) -> None:
                on_progress(k * total + done, len(times_s) * total, what)

            if (trees := self.learn(at_s, of_all)) is not None:
                orders.append(Order(at_s, horizon_models(trees)))
        return orders

    def learn(self, until_s: int, on_progress: Advance) -> HorizonTrees | None:
        """What is learned from the accesses that began and were known before `until_s`.

        None if they are too few. Raises InputError.
        """
        trace, context = self.trace, self.context
        if self.known_s is not None:
            past = slice(trace.first_at(until_s))
            known = self.known_s[past] < until_s
            if not known.any():
                return None
            if not known.all():  # a copy of a month takes memory: only of what is learned from
                trace = Trace(trace.time_s[past][known], trace.item[past][known], trace.size_bytes)
                context = context._replace(reader=context.reader[past][known])
        n_horizons = len(_horizons_s(until_s - float(trace.time_s[0])))
        steps = Steps(n_horizons, f"learning until {day_label(until_s)}", on_progress)
        ages_s = oldest_ages_s(trace, self.capacities, to_s=until_s)
        return learn_horizons(trace, context, ages_s, to_s=until_s, on_done=steps.done)


def oldest_ages_s(trace: Trace, capacities: Sequence[int], *, to_s: float) -> list[float]:
    """The largest LRU age for each capacity at some times in the later half of the past, s.

    The largest, as a burst of reads makes the age small for a while. Raises InputError without accesses.
    """
    from_s = float(trace.time_s[0]) if trace.n_accesses else to_s
    moments = np.linspace((from_s + to_s) / 2, to_s, AGE_MOMENTS)
    ages = [ages_s(trace, capacities, to_s=float(at_s)) for at_s in moments]
    return [float(age) for age in np.max(ages, axis=0)]


def ages_s(trace: Trace, capacities: Sequence[int], *, to_s: float) -> FloatArray:
    """Seconds since the oldest file in LRU caches of these bytes was read, at `to_s`. Raises InputError."""
    stop = trace.first_at(int(to_s))
    if not stop:
        raise InputError("there is no access to learn from before the days that count; count from later")
    read, first_back = np.unique(trace.item[:stop][::-1], return_index=True)
    order = np.argsort(first_back)
    held = np.cumsum(trace.size_bytes[read[order]])
    last = np.minimum(np.searchsorted(held, capacities, side="right"), order.size - 1)
    return np.asarray(np.maximum(HOUR_S, to_s - trace.time_s[stop - 1 - first_back[order[last]]]), np.float64)


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
    trace: Trace, context: AccessContext, windows_s: Sequence[float], *, from_s: float, to_s: float, most: int
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
    next_access = order[np.minimum(place, stop - 1)]
    is_same = (place < stop) & (trace.item[next_access] == file)
    return np.where(is_same, trace.time_s[next_access] - trace.time_s[at], np.inf)


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
