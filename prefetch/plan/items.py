"""A plan's items as columns, and the bounds in bytes that it keeps."""

import dataclasses
import enum
from collections.abc import Sequence

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.times import DAY_S, HOUR_S
from prefetch.actions import Action
from replay.planner import CacheState


class Cause(enum.IntEnum):
    """Why an item is in the plan; `prefetch.plan.explain` has the words."""

    VALUE = 0
    PIN_RULE = 1
    NEVER_RULE = 2
    ELSEWHERE = 3
    UNKNOWN = 4
    SIBLINGS = 5
    UNPLANNED = 6
    QUEUED = 7
    TEST_FILE = 8


@dataclasses.dataclass(frozen=True)
class Limit:
    """A bound of a plan in bytes; `what` names it for an operator."""

    n_bytes: int
    what: str


def least(*limits: Limit) -> Limit:
    return min(limits, key=lambda limit: limit.n_bytes)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A plan's items, best first within each action.

    `action`: `Action.code`; `rank`: from 1 within its action; `cause`: codes of `Cause`; `probability`: of a
    read within the horizon that is shown; `value`: what that is expected to save, in the objective's unit;
    `size_bytes`: on disk, or to fetch; `n_jobs`: queued jobs that are known to read it. `bound_by`: for each
    action the limit that kept more from being planned.
    """

    item: IntArray
    action: IntArray
    rank: IntArray
    cause: IntArray
    probability: FloatArray
    value: FloatArray
    size_bytes: IntArray
    was_read: BoolArray
    n_jobs: IntArray
    bound_by: dict[Action, str] = dataclasses.field(default_factory=dict)

    @property
    def cost_bytes(self) -> IntArray:
        """Bytes that the item itself brings over the WAN."""
        return np.where(self.action == Action.PREFETCH.code, self.size_bytes, np.int64(0))

    @property
    def needs_model(self) -> BoolArray:
        """Which items the models chose, bool[n]; rules of the site and queued jobs chose the others."""
        by_rule = np.isin(self.cause, (Cause.PIN_RULE, Cause.NEVER_RULE, Cause.TEST_FILE))
        by_rule |= (self.cause == Cause.UNPLANNED) & (self.action == Action.UNPIN.code)
        held = np.isin(self.action, (Action.PIN.code, Action.PREFETCH.code))
        by_model: BoolArray = ~(by_rule | (held & (self.cause == Cause.QUEUED)))
        return by_model

    def of(self, action: Action) -> IntArray:
        return self.item[np.flatnonzero(self.action == action.code)]

    def bytes_of(self, action: Action) -> int:
        return int(self.size_bytes[self.action == action.code].sum())


COLUMNS = tuple(field.name for field in dataclasses.fields(Plan) if field.name != "bound_by")


def joined(parts: Sequence[Plan], bound_by: dict[Action, str]) -> Plan:
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    return Plan(**columns, bound_by=bound_by)


FREE_FOR_ARRIVALS = 0.2
"""Share of the capacity that is never pinned, so that the purge always finds files to remove.

A plan frees at most this share below the low watermark for arrivals.
"""


@dataclasses.dataclass(frozen=True)
class PlanLimits:
    """Bounds of a plan; see `[plan]` in conf/base.toml for meanings and defaults.

    `wan_bytes_per_hour`: of demand and prefetch together; None: no limit. `quiet_hours`: first hour and the
    one after the last (UTC) in which prefetches may come; None: any. `origin_bytes`: what each origin (code)
    may deliver in this cycle; None: no limit. `cached_fraction`: of a dataset's bytes, what pays to cache.
    `queued_share`: of the prefetched bytes, what files of queued jobs get while predicted ones need the rest.
    `evicts`: False where a steward makes the room, so that only what a rule keeps out is evicted.
    """

    cycle_s: int
    prefetch_share: float
    min_prefetch_probability: float
    read_once_below: float = 0.0
    hysteresis: float = 0.0
    wan_bytes_per_hour: int | None = None
    quiet_hours: tuple[int, int] | None = None
    origin_bytes: IntArray | None = None
    cached_fraction: float = 1.0
    queued_share: float = 1.0
    evicts: bool = True

    def pin(self, state: CacheState) -> Limit:
        """Most bytes to pin: what fits under the low watermark beside a cycle's arrivals.

        Files may be open for hours, and large ones then hold much of a cache. A purge passes them over, and
        where nothing older is left, it takes the pins of the lowest rank. A steward takes no pin, so beside
        it there is room for open files too.
        """
        low = int(state.low_watermark * state.capacity_bytes)
        open_bytes = 0 if self.evicts else int(state.bytes_on_disk[state.is_open].sum())
        arrivals = max(0, state.peak_inflow_bytes) + open_bytes
        what = "a cycle's arrivals" if self.evicts else "a cycle's arrivals and open files"
        most = most_pinned_bytes(state.capacity_bytes, state.low_watermark)
        return least(
            Limit(most, "a fifth of the capacity stays free of pins"),
            Limit(max(0, low - arrivals), f"room under the low watermark for {what}"),
        )

    def prefetch(self, state: CacheState) -> Limit:
        room = int(state.low_watermark * state.capacity_bytes) - self.pin(state).n_bytes
        inflow = within(state.inflow_bytes, state.capacity_bytes)
        limits = [
            Limit(int(self.prefetch_share * inflow), "prefetch_share of the last cycle's inflow"),
            Limit(max(0, room), "room beside the pins under the low watermark"),
        ]
        return least(*limits, *self.wan(state))

    def wan(self, state: CacheState) -> list[Limit]:
        """The bound by WAN bytes or quiet hours in this cycle; empty if there is none."""
        quiet_s = self.quiet_s(state.as_of_s)
        if self.wan_bytes_per_hour is not None:
            demand = max(0, state.inflow_bytes) * quiet_s // self.cycle_s
            left = self.wan_bytes_per_hour * quiet_s // HOUR_S - demand
            return [Limit(max(0, left), "WAN bytes per hour, less demand")]
        return [] if quiet_s else [Limit(0, "not in the quiet hours")]

    def quiet_s(self, as_of_s: int) -> int:
        """How many seconds of the cycle from `as_of_s` are in the quiet hours."""
        if self.quiet_hours is None:
            return self.cycle_s
        begin, end = (hour * HOUR_S for hour in self.quiet_hours)
        length = end - begin if end >= begin else end - begin + DAY_S
        into = (as_of_s - begin) % DAY_S
        return _within_period(into + self.cycle_s, length) - _within_period(into, length)

    def evict_bytes(self, state: CacheState, prefetch_bytes: int) -> int:
        """Most bytes that a plan frees: room under the high watermark for prefetches and arrivals."""
        room = room_for_arrivals(state) + max(0, prefetch_bytes)
        used = int(state.bytes_on_disk.sum())
        return max(0, used + room - int(state.high_watermark * state.capacity_bytes))


def room_for_arrivals(state: CacheState) -> int:
    """Bytes that a plan keeps free under the high watermark for what arrives until the next one.

    For the largest usual inflow it goes down to the low watermark, where the cache's own purge ends. Below
    that it goes only for what is sure to come, and by at most `FREE_FOR_ARRIVALS`: a wrong inflow empties no
    cache.
    """
    low, high = (int(mark * state.capacity_bytes) for mark in (state.low_watermark, state.high_watermark))
    most_below = int(FREE_FOR_ARRIVALS * state.capacity_bytes)
    return max(within(state.peak_inflow_bytes, high - low), within(state.sure_inflow_bytes, most_below))


def within(inflow_bytes: int, most: int) -> int:
    """`inflow_bytes`, bounded to 0 … `most`."""
    return min(max(0, int(inflow_bytes)), most)


def most_pinned_bytes(capacity_bytes: int, low_watermark: float) -> int:
    return max(0, int(low_watermark * capacity_bytes) - int(FREE_FOR_ARRIVALS * capacity_bytes))


def _within_period(elapsed_s: int, length_s: int) -> int:
    """Seconds in the first `length_s` of each day, of `elapsed_s` since the start of one."""
    days, rest = divmod(elapsed_s, DAY_S)
    return days * length_s + min(rest, length_s)
