"""A generated region's cache under a real planner, with the records that it and its pushes would leave."""

import dataclasses

import numpy as np
import pyarrow as pa
from plain_files import plain_files
from published import trace_of
from scenarios import values_of

from features.common.times import DAY_S
from prefetch.actions import Action
from prefetch.day_verdict import CacheContents, CacheRecord, PushedActions, beginning
from prefetch.plan.items import PlanLimits
from prefetch.plan.planner import ValuePlanner
from prefetch.plan.scores import Scores
from replay.config import CacheConfig
from replay.engine import simulate
from replay.kernels.disk import HIT
from replay.planner import Actions, CacheState
from replay.trace import Trace
from replay.workload import WorkloadConfig, generate

CYCLE_S = 4 * 3600
HORIZONS = (3600, 12 * 3600, DAY_S, 4 * DAY_S, 30 * DAY_S)
LIMITS = PlanLimits(CYCLE_S, 0.3, 0.6, read_once_below=0.02, hysteresis=0.1)


@dataclasses.dataclass(frozen=True)
class Recording:
    """The planner inside, what it was asked for as `PushedActions`, and the inventories that it saw."""

    planner: ValuePlanner
    rows: list[tuple[int, int, int]]
    inventories: list[CacheContents]

    def actions(self, state: CacheState) -> Actions:
        last_s = np.minimum(state.last_access_s, state.as_of_s)
        self.inventories.append(CacheContents(state.as_of_s, state.item, state.bytes_on_disk, last_s))
        actions, here = self.planner.actions(state), set(state.item.tolist())
        for action in Action:
            for item in getattr(actions, action.value).tolist():
                if (item in here) != (action is Action.PREFETCH) or action is Action.UNPIN:
                    self.rows.append((state.as_of_s, item, action.code))
        return actions


@dataclasses.dataclass(frozen=True)
class PushedWorld:
    """What a cache of `config` leaves: `whole` from its first day on; `observed` is its own Result."""

    whole: CacheRecord
    config: CacheConfig
    observed: object
    first_day_s: int
    inventories: list[CacheContents]

    def record(self, day_s: int, config: CacheConfig | None = None) -> CacheRecord:
        """What is known of it for judging the day from `day_s`."""
        trace, done = self.whole.trace, self.whole.done
        config = config or self.config
        fetched = done.action == Action.PREFETCH.code
        begin_s, n_turns = beginning(
            np.append(trace.time_s, done.time_s[fetched]),
            np.append(self.whole.missed_bytes, trace.size_bytes[done.item[fetched]]),
            age_bytes=int(config.low_watermark * config.capacity_bytes),
            day_s=day_s,
        )
        before = [held for held in self.inventories if begin_s is not None and held.at_s <= begin_s]
        begin = before[-1] if before else None
        return dataclasses.replace(self.whole, begin=begin, n_turns=n_turns)


def perfect(trace: Trace, at_s: int, horizons: tuple[int, ...] = HORIZONS) -> Scores:
    """Whether each file that was read before is read within each horizon."""
    now = trace.first_at(at_s)
    item = np.unique(trace.item[:now]).astype(np.int64)
    first = np.full(trace.n_items, 2**60)
    np.minimum.at(first, trace.item[now:], trace.time_s[now:])
    chance = np.array([first[item] < at_s + h for h in horizons], float)
    last_read_s = np.zeros(trace.n_items, np.int64)
    np.maximum.at(last_read_s, trace.item[:now], trace.time_s[:now])
    return Scores(at_s, item, trace.size_bytes[item], horizons, chance, last_read_s[item])


def pushed_world() -> PushedWorld:
    """24 days of SoCal's kind, in a cache that holds a tenth of what is read."""
    values = values_of("socal", scale=0.02, days=24, seed=11)
    whole = trace_of(generate(WorkloadConfig.from_mapping(values)))
    used, item = np.unique(whole.item, return_inverse=True)
    names = pa.array([f"cms:/store/mc/w/f{i}.root" for i in range(used.size)])
    trace = Trace(whole.time_s, item.astype(np.int32), whole.size_bytes[used], names)
    control = np.arange(used.size) % 20 == 7
    files = plain_files(used.size, is_control=control)
    planner = Recording(ValuePlanner(lambda at: perfect(trace, at), LIMITS, files, 2 * DAY_S), [], [])
    config = CacheConfig(int(0.1 * trace.footprint_bytes))
    outcome = np.zeros(trace.n_accesses, np.uint8)
    observed = simulate(trace, config, planner=planner, cycle_s=CYCLE_S, outcome=outcome)
    size, hit = trace.size_bytes[trace.item], (outcome & HIT) != 0
    done = PushedActions(*np.array(planner.rows, np.int64).reshape(-1, 3).T)
    record = CacheRecord(trace, np.where(hit, size, 0), np.where(hit, 0, size), done, control, None, 0.0)
    return PushedWorld(record, config, observed, int(trace.time_s[0]) // DAY_S * DAY_S, planner.inventories)
