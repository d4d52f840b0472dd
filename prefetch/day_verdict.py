"""Judges whether a day's plan was worth it, by replays of the cache's recorded reads with and without it.

What plain LRU would have fetched can only be replayed. A replay is believed if it also reproduces what
happened: with what was really pushed it must hit the bytes that the cache recorded as hits.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, IntArray
from features.common.times import DAY_S
from prefetch.actions import Action
from replay.config import CacheConfig
from replay.engine import Run, drive, simulate
from replay.kernels.disk import HIT
from replay.planner import Actions, CacheState
from replay.trace import ItemArray, Trace, window

WARM_AGES = 3
"""Before the day, this many times the bytes held must have come in: then nothing is left of the beginning."""

MOST_OFF = 0.02
"""A replay whose hit bytes are off by a larger share says nothing about this cache."""

MOST_UNWATCHED_S = 3600
"""A steward that did not run for longer does not know what LRU would have fetched on the day."""

GRID_S = 300
"""Replayed pushes take effect at the next multiple of this many seconds."""


class PushedActions(NamedTuple):
    """What pushes did, in order of time: dense file ids, and codes of `Action`."""

    time_s: IntArray
    item: IntArray
    action: IntArray


class CacheContents(NamedTuple):
    """What a cache held at `at_s`: dense file ids, bytes, and the end of each file's last use."""

    at_s: int
    item: IntArray
    bytes_on_disk: IntArray
    last_use_s: IntArray


@dataclasses.dataclass(frozen=True, eq=False)
class CacheRecord:
    """What a cache reports: its reads, the bytes of each from its disk and from the origin, what pushes did.

    `is_control`: which files are never planned, bool[m]. `begin`: what it held when a replay can begin; None
    if its records do not reach back far enough. `n_turns`: how often its content was replaced, from the
    first record to the day.
    """

    trace: Trace
    hit_bytes: IntArray
    missed_bytes: IntArray
    done: PushedActions
    is_control: BoolArray
    begin: CacheContents | None
    n_turns: float


class StewardShadow(NamedTuple):
    """What a steward that evicted on the day counted, and the bytes that pushes fetched on it."""

    watched_s: int
    lru_wan_bytes: int
    prefetched_bytes: int


@dataclasses.dataclass(frozen=True)
class ReplayedDay:
    """One day of one cache; bytes, and shares of the bytes read. None: withheld, or nobody read such files.

    `replayed_*`: with what was pushed; `lru_*`: without; `saved_wan_bytes`: their difference, prefetches
    counted. What a steward did is not replayed: `replayed_wan_bytes` is then what the cache recorded.
    `planned_*`, `control_*`: reads that fetched nothing, of files that may be planned and of the control
    group, as observed and in plain LRU.
    """

    read_bytes: int
    hit_bytes: int
    missed_bytes: int
    replayed_hit_bytes: int | None = None
    replayed_wan_bytes: int | None = None
    lru_hit_bytes: int | None = None
    lru_wan_bytes: int | None = None
    saved_wan_bytes: int | None = None
    planned_hit_share: float | None = None
    planned_lru_hit_share: float | None = None
    control_hit_share: float | None = None
    control_lru_hit_share: float | None = None
    warmed_s: int | None = None
    withheld: str | None = None


class RecordedPushes:
    """A planner that repeats at each time of the grid what was pushed since; a pin is a single touch."""

    def __init__(self, done: PushedActions, every_s: int) -> None:
        self._done, self._every_s = done, every_s

    def actions(self, state: CacheState) -> Actions:
        span = [state.as_of_s - self._every_s, state.as_of_s]
        first, last = np.searchsorted(self._done.time_s, span, side="right")
        item, action = self._done.item[first:last], self._done.action[first:last]
        return Actions(
            prefetch=item[action == Action.PREFETCH.code],
            pin=item[action == Action.PIN.code],
            unpin=state.item[state.pinned],
            evict=item[action == Action.EVICT.code],
        )


def beginning(
    time_s: IntArray, came_bytes: IntArray, *, age_bytes: int, day_s: int
) -> tuple[int | None, float]:
    """When a replay begins so that WARM_AGES times `age_bytes` come in before `day_s`; None if too few do.

    And how many times `age_bytes` came in before `day_s`. `time_s`, `came_bytes`: what came, in no order.
    """
    before = np.flatnonzero(time_s < day_s)
    order = before[np.argsort(-time_s[before], kind="stable")]
    total = np.cumsum(came_bytes[order])
    at = int(np.searchsorted(total, WARM_AGES * age_bytes))
    n_turns = float(total[-1] / age_bytes) if total.size else 0.0
    return (int(time_s[order[at]]) if at < order.size else None), n_turns


def judge_day(
    record: CacheRecord, config: CacheConfig, *, day_s: int, shadow: StewardShadow | None = None
) -> ReplayedDay:
    """The day from `day_s`, if the record and its replay allow to judge it.

    `shadow`: of the steward that evicted on the day; the replay of LRU is believed where it agrees with it.
    """
    begin, end = record.trace.first_at(day_s), record.trace.first_at(day_s + DAY_S)
    hit, missed = (int(c[begin:end].sum()) for c in (record.hit_bytes, record.missed_bytes))
    verdict = ReplayedDay(hit + missed, hit, missed)
    if not verdict.read_bytes:
        return dataclasses.replace(verdict, withheld="the cache tells of no read that day")
    if record.begin is None:
        turned = f"its records reach back {record.n_turns:.1f} times what it holds, {WARM_AGES} are needed"
        return dataclasses.replace(verdict, withheld=turned)
    begin_s, part = record.begin.at_s, replayable(record, record.begin, day_s + DAY_S)
    if shadow is not None:
        warmed = dataclasses.replace(verdict, warmed_s=day_s - begin_s)
        return _with_steward(warmed, part, config, day_s, shadow)
    # The replay of what was pushed, to the end of the day: also what came after its last read.
    pushes, counted = RecordedPushes(part.done, GRID_S), window(part.trace, None)
    run = Run(part.trace, config, counted, pushes, cycle_s=GRID_S, plan_from_s=begin_s)
    drive([run], day_s + DAY_S)
    with_plan = run.result("lru+pushed")
    at = int(np.flatnonzero(with_plan.daily.day == day_s // DAY_S)[0])
    replayed = int(with_plan.daily.hit_bytes[at])
    verdict = dataclasses.replace(verdict, replayed_hit_bytes=replayed, warmed_s=day_s - begin_s)
    off = abs(replayed - verdict.hit_bytes) / max(1, verdict.hit_bytes)
    if off > MOST_OFF:
        return dataclasses.replace(
            verdict,
            withheld=f"the replay of what was pushed is {100 * off:.1f} % off the hit bytes that it tells",
        )
    return _against_lru(verdict, part, config, day_s, int(with_plan.daily.wan_bytes[at]))


def _with_steward(
    verdict: ReplayedDay, part: CacheRecord, config: CacheConfig, day_s: int, shadow: StewardShadow
) -> ReplayedDay:
    if DAY_S - shadow.watched_s > MOST_UNWATCHED_S:
        hours = f"the steward watched {shadow.watched_s / 3600:.1f} h of that day"
        return dataclasses.replace(verdict, withheld=hours)
    judged = _against_lru(verdict, part, config, day_s, verdict.missed_bytes + shadow.prefetched_bytes)
    replayed = judged.lru_wan_bytes or 0
    off = abs(replayed - shadow.lru_wan_bytes) / max(1, replayed)
    if off > MOST_OFF:
        apart = f"LRU in the steward's shadow is {100 * off:.1f} % off the bytes that its replay fetches"
        return dataclasses.replace(verdict, withheld=apart)
    return judged


def _against_lru(
    verdict: ReplayedDay, part: CacheRecord, config: CacheConfig, day_s: int, wan_bytes: int
) -> ReplayedDay:
    """`verdict` with what plain LRU would have done, where the pushes fetched `wan_bytes` in all."""
    outcome = np.zeros(part.trace.n_accesses, np.uint8)
    daily = simulate(part.trace, config, outcome=outcome).daily
    that_day = daily.day == day_s // DAY_S
    lru_wan_bytes, lru_hit = int(daily.wan_bytes[that_day].sum()), (outcome & HIT) != 0
    of_control = part.is_control[part.trace.item]
    planned = _shares(part, ~of_control, lru_hit, day_s)
    control = _shares(part, of_control, lru_hit, day_s)
    return dataclasses.replace(
        verdict,
        replayed_wan_bytes=wan_bytes,
        lru_hit_bytes=int(daily.hit_bytes[that_day].sum()),
        lru_wan_bytes=lru_wan_bytes,
        saved_wan_bytes=lru_wan_bytes - wan_bytes,
        planned_hit_share=planned[0],
        planned_lru_hit_share=planned[1],
        control_hit_share=control[0],
        control_lru_hit_share=control[1],
    )


def _shares(
    part: CacheRecord, group: BoolArray, lru_hit: BoolArray, day_s: int
) -> tuple[float | None, float | None]:
    """Bytes of a group's reads that fetched nothing, as a share of those it read: as observed, and in LRU."""
    group = group & (part.trace.time_s >= day_s)
    read = part.hit_bytes + part.missed_bytes
    hit = (part.missed_bytes == 0) & (part.hit_bytes > 0)
    total = int(read[group].sum())
    if not total:
        return None, None
    return int(read[group & hit].sum()) / total, int(read[group & lru_hit].sum()) / total


def replayable(record: CacheRecord, begin: CacheContents, end_s: int) -> CacheRecord:
    """The part of `record` from `begin` to `end_s`, after one read of each file that `begin` holds.

    These reads are at the files' last uses, so the replay begins with what the cache held, in LRU's order.
    """
    trace, done = record.trace, record.done
    order = np.argsort(begin.last_use_s, kind="stable")
    first, last = trace.first_at(begin.at_s), trace.first_at(end_s)
    in_span = (done.time_s >= begin.at_s) & (done.time_s < end_s)
    seeded_s = np.minimum(begin.last_use_s[order], begin.at_s)
    held = np.minimum(begin.bytes_on_disk, trace.size_bytes[begin.item])[order]

    def whole(seeded: IntArray, column: IntArray | ItemArray) -> IntArray:
        return np.concatenate([seeded, column[first:last]])

    return CacheRecord(
        Trace(
            whole(seeded_s, trace.time_s),
            whole(begin.item[order], trace.item).astype(np.int32),
            trace.size_bytes,
            trace.names,
            None if trace.close_s is None else whole(seeded_s, trace.close_s),
            None if trace.read_bytes is None else whole(held, trace.read_bytes),
        ),
        whole(np.zeros_like(held), record.hit_bytes),
        whole(np.zeros_like(held), record.missed_bytes),
        PushedActions(*(column[in_span] for column in done)),
        record.is_control,
        begin,
        record.n_turns,
    )
