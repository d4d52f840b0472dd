"""The planner: which files a cache should fetch, hold and drop at the next plan boundary.

One object for production and replay (`replay.planner.Planner`). It maximises the expected bytes that need not
cross the WAN. A file kept saves its size once, at its next read (after that it is on disk anyway), with the
predicted probability of a read within the horizon; it costs its size on disk. So per byte on disk a file is
worth its probability, and files are ranked by it, never by probability over size (that serves request hits).

The three lists work together. Pins hold the best of what is on disk, up to a limit that leaves room for what
arrives. Evictions make room for the inflow of the coming cycle, worst first, so that the cache's own purge,
which knows only age, rarely has to choose. Prefetch is bounded by a share of the inflow: it cannot lower WAN
bytes.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from replay.planner import Actions, BoolArray, CacheState, IntArray

FloatArray = npt.NDArray[np.float64]

FREE_FOR_ARRIVALS = 0.2
"""At least this share of the capacity stays free of pins (the purge must always find candidates)."""


class Action(enum.IntEnum):
    """What a plan item asks for, in the order in which a pusher goes through them."""

    EVICT = 0
    UNPIN = 1
    PIN = 2
    PREFETCH = 3


@dataclasses.dataclass(frozen=True)
class Scores:
    """What is predicted at one as_of, one entry per candidate file; `item` is unique, in no order.

    `probability`: of a read within the horizon. `was_read`: read at least once before as_of.
    """

    item: IntArray
    size_bytes: IntArray
    probability: FloatArray
    was_read: BoolArray


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of a plan; see `[plan]` in conf/base.toml for meanings and defaults."""

    cycle_s: int
    pin_share: float
    evict_inflow: float
    prefetch_share: float
    min_prefetch_probability: float

    def pin_bytes(self, state: CacheState) -> int:
        """Most bytes that may be pinned: under the low watermark, less what arrives in a cycle."""
        low = state.low_watermark * state.capacity_bytes
        arrivals = max(FREE_FOR_ARRIVALS * state.capacity_bytes, state.inflow_bytes)
        return max(0, int(min(self.pin_share * low, low - arrivals)))

    def prefetch_bytes(self, state: CacheState) -> int:
        """Most bytes that may be prefetched in this cycle."""
        room = int(state.low_watermark * state.capacity_bytes) - self.pin_bytes(state)
        return max(0, min(int(self.prefetch_share * state.inflow_bytes), room))


@dataclasses.dataclass(frozen=True)
class Plan:
    """A plan's items as columns, best first within each action.

    `action`: codes of `Action`; `rank`: from 1 within its action; `probability`: of a read within the horizon
    (0 where a file on disk has no score any more); `cost_bytes`: bytes it brings over the WAN.
    """

    item: IntArray
    action: IntArray
    rank: IntArray
    probability: FloatArray
    size_bytes: IntArray
    was_read: BoolArray

    @property
    def value_bytes(self) -> FloatArray:
        """Bytes expected not to cross the WAN thanks to the file being there."""
        return self.probability * self.size_bytes

    @property
    def cost_bytes(self) -> IntArray:
        """Bytes that the item itself brings over the WAN."""
        return np.where(self.action == int(Action.PREFETCH), self.size_bytes, np.int64(0))

    def of(self, action: Action) -> IntArray:
        """Items of one action, best first."""
        return self.item[np.flatnonzero(self.action == int(action))]

    @property
    def actions(self) -> Actions:
        """The same plan as the replay engine takes it."""
        return Actions(
            prefetch=self.of(Action.PREFETCH),
            pin=self.of(Action.PIN),
            unpin=self.of(Action.UNPIN),
            evict=self.of(Action.EVICT),
        )


@dataclasses.dataclass(frozen=True)
class ValuePlanner:
    """Plans by predicted probability within `limits`.

    `scores_at(as_of_s)` gives the predictions of a boundary. `is_control`, by dense file id: files that are
    never planned, so that the plan's effect can be measured against them.
    """

    scores_at: Callable[[int], Scores]
    limits: Limits
    is_control: BoolArray

    def actions(self, state: CacheState) -> Actions:
        """What to do with a cache in `state`."""
        return self.plan(state).actions

    def plan(self, state: CacheState) -> Plan:
        """The plan for a cache in `state`, with what the reasons need."""
        scores = self.scores_at(state.as_of_s)
        on_disk = _join(state, scores, self.is_control, recent_s=self.limits.cycle_s)
        fetched = self._prefetch(state, scores)
        pinned = self._pin(state, on_disk)
        evicted = self._evict(state, on_disk, pinned, int(scores.size_bytes[fetched].sum()))
        unpinned = on_disk.pinned & ~np.isin(on_disk.item, on_disk.item[pinned])
        parts = [
            _rows(Action.EVICT, on_disk, evicted),
            _rows(Action.UNPIN, on_disk, np.flatnonzero(unpinned)),
            _rows(Action.PIN, on_disk, pinned),
            _rows(Action.PREFETCH, scores, fetched),
        ]
        columns = {
            f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in dataclasses.fields(Plan)
        }
        return Plan(**columns)

    def _prefetch(self, state: CacheState, scores: Scores) -> IntArray:
        """Indices into `scores`: likely files that are not on disk, most likely first, within the budget."""
        wanted = (
            (scores.probability >= self.limits.min_prefetch_probability)
            & ~self.is_control[scores.item]
            & ~np.isin(scores.item, state.item)
        )
        return _within(
            _ranked(scores.probability, scores.item, wanted),
            scores.size_bytes,
            self.limits.prefetch_bytes(state),
        )

    def _pin(self, state: CacheState, on_disk: _OnDisk) -> IntArray:
        """Indices into `on_disk`: the likeliest files, within the pin limit."""
        wanted = ~on_disk.is_control & (on_disk.probability > 0)
        return _within(
            _ranked(on_disk.probability, on_disk.item, wanted),
            on_disk.size_bytes,
            self.limits.pin_bytes(state),
        )

    def _evict(self, state: CacheState, on_disk: _OnDisk, pinned: IntArray, prefetch_bytes: int) -> IntArray:
        """Indices into `on_disk`: the least likely files, until the coming cycle's inflow has room."""
        room_for = self.limits.evict_inflow * state.inflow_bytes + prefetch_bytes
        used = int(on_disk.size_bytes.sum())
        surplus = used + room_for - state.high_watermark * state.capacity_bytes
        if self.limits.evict_inflow == 0 or surplus <= 0:
            return np.empty(0, np.int64)
        droppable = ~on_disk.is_new & ~on_disk.is_open & ~on_disk.is_control
        droppable[pinned] = False
        order = _ranked(-on_disk.probability, on_disk.item, droppable)
        freed = np.cumsum(on_disk.size_bytes[order])
        return order[: int(np.searchsorted(freed, surplus)) + 1]


@dataclasses.dataclass(frozen=True)
class _OnDisk:
    """The files on disk with their scores; `size_bytes` is what they hold there.

    Without a score a file is `is_new` if it was read so lately that its read is not known yet; else it is
    worth nothing: nobody read it for longer than candidates are kept. `is_open`: a job reads it now.
    """

    item: IntArray
    size_bytes: IntArray
    probability: FloatArray
    pinned: BoolArray
    is_control: BoolArray
    was_read: BoolArray
    is_new: BoolArray
    is_open: BoolArray


def _join(state: CacheState, scores: Scores, is_control: BoolArray, *, recent_s: int) -> _OnDisk:
    order = np.argsort(scores.item)
    at = np.searchsorted(scores.item, state.item, sorter=order)
    is_scored = np.append(scores.item[order], -1)[at] == state.item
    return _OnDisk(
        item=state.item,
        size_bytes=state.bytes_on_disk,
        probability=np.where(is_scored, np.append(scores.probability[order], 0.0)[at], 0.0),
        pinned=state.pinned,
        is_control=is_control[state.item],
        was_read=np.ones(len(state.item), bool),
        is_new=~is_scored & (state.last_access_s >= state.as_of_s - recent_s),
        is_open=state.is_open,
    )


def _ranked(key: FloatArray, item: IntArray, wanted: BoolArray) -> IntArray:
    """Indices where `wanted`, highest key first; ties by item, so that a plan is reproducible."""
    index = np.flatnonzero(wanted)
    return index[np.lexsort((item[index], -key[index]))]


def _within(order: IntArray, size_bytes: IntArray, limit: int) -> IntArray:
    """The longest head of `order` whose sizes sum to at most `limit`."""
    return order[: int(np.searchsorted(np.cumsum(size_bytes[order]), limit, side="right"))]


def _rows(action: Action, source: Scores | _OnDisk, index: IntArray) -> Plan:
    return Plan(
        item=source.item[index],
        action=np.full(len(index), int(action), np.int64),
        rank=np.arange(1, len(index) + 1, dtype=np.int64),
        probability=source.probability[index],
        size_bytes=source.size_bytes[index],
        was_read=source.was_read[index],
    )
