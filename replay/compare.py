"""Policies, a plan and the bounds side by side, at several cache sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from types import MappingProxyType
from typing import TypedDict

from features.errors import ConfigError
from replay.bounds import byte_bound, object_bound
from replay.config import CacheConfig
from replay.engine import simulate
from replay.kernels.tally import HOUR_S
from replay.planner import Planner
from replay.policies import Policy, run_policy
from replay.result import Result, byte_gap_closed, object_gap_closed
from replay.trace import Trace

LRU, PLAN, BOUND = "lru", "lru+plan", "bound"
_OBJECTS = "object-bound"

Progress = Callable[[int, int, str], None]
_Key = tuple[int, str]
_Tasks = dict[_Key, Callable[[], Result]]
_Results = dict[_Key, Result]


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One policy at one capacity: `capacity_bytes` is the cache's, `result.capacity_bytes` what it ran with.

    `byte_gap_closed`, `object_gap_closed`: 0 for LRU, 1 for the bound on bytes or on hits; None without a gap
    or a bound.
    """

    capacity_bytes: int
    policy: str
    result: Result
    byte_gap_closed: float | None
    object_gap_closed: float | None


class Moments(TypedDict):
    """The replay's times, as `simulate` takes them."""

    cycle_s: int
    plan_from_s: int | None
    count_from_s: int | None


def compare(
    trace: Trace,
    capacities: Sequence[int],
    *,
    policies: Sequence[str] = (LRU, "clairvoyant"),
    xcache: CacheConfig | None = None,
    planner: Planner | None = None,
    cycle_s: int = 4 * HOUR_S,
    plan_from_s: int | None = None,
    count_from_s: int | None = None,
    with_bound: bool = True,
    own: Mapping[str, Policy] = MappingProxyType({}),
    on_done: Progress = lambda done, total, last: None,
    workers: int | None = None,
) -> list[Row]:
    """Rows of `policies` for each capacity, in their order, and then the bound on bytes.

    Without `xcache` every policy decides at each access. With it, `lru` and `lru+plan` (needs `planner`) are
    an XCache as it says, at each capacity in place of its own; the other policies know no watermarks and
    get the peak usage of those two, as the bounds do. `own`: policies by name that are not built in, as
    those of `score_policies`. Parts of files have no bound here, and hits none with a plan, which may
    prefetch. Replays run in `workers` threads, which share `planner`. Raises what `simulate` and
    `run_policy` raise.
    """
    sizes, wanted = list(dict.fromkeys(capacities)), list(dict.fromkeys(policies))
    if PLAN in wanted and (xcache is None or planner is None):
        raise ConfigError("policy", f"{PLAN} needs watermarks and a planner; leave it out or give both")
    bounds: dict[str, Callable[..., Result]] = {BOUND: byte_bound, _OBJECTS: object_bound}
    if not with_bound or (
        xcache is not None and xcache.block_bytes is not None and trace.read_bytes is not None
    ):
        bounds = {}
    needed = list(dict.fromkeys([LRU, *wanted])) if bounds or xcache else wanted
    moments = Moments(cycle_s=cycle_s, plan_from_s=plan_from_s, count_from_s=count_from_s)
    report = _Counted(on_done, len(sizes) * (len(needed) + len(bounds)))
    if bounds:
        _ = trace.following  # once, before threads ask for it at the same time
    with ThreadPoolExecutor(workers) as pool:
        real: _Tasks = {}
        for size in sizes if xcache is not None else ():
            real |= _xcaches(trace, size, xcache, planner if PLAN in wanted else None, moments)
        results = _run(pool, real, report)
        room = {size: _peak(results, size) for size in sizes}
        ideal: _Tasks = {
            (size, name): partial(
                run_policy, name, trace, room[size], count_from_s=count_from_s, policy=own.get(name)
            )
            for size in sizes
            for name in needed
            if (size, name) not in results
        }
        for name, bound in bounds.items():
            ideal |= {(s, name): partial(bound, trace, room[s], count_from_s=count_from_s) for s in sizes}
        results |= _run(pool, ideal, report)
    shown = [*wanted, BOUND] if bounds else wanted
    return [_row(results, size, name) for size in sizes for name in shown]


def _xcaches(
    trace: Trace, size: int, template: CacheConfig | None, planner: Planner | None, moments: Moments
) -> _Tasks:
    assert template is not None
    replay = partial(simulate, trace, dataclasses.replace(template, capacity_bytes=size), **moments)
    plain: _Tasks = {(size, LRU): replay}
    return plain if planner is None else plain | {(size, PLAN): partial(replay, planner=planner)}


def _peak(results: _Results, size: int) -> int:
    """The most that a real cache of this size held; the size itself where none was replayed."""
    return max((result.peak_usage_bytes for (at, _), result in results.items() if at == size), default=size)


class _Counted:
    """Progress over several batches of tasks."""

    def __init__(self, on_done: Progress, total: int) -> None:
        self._on_done, self._total, self._done = on_done, total, 0

    def __call__(self, name: str) -> None:
        self._done += 1
        self._on_done(self._done, self._total, name)


def _run(pool: ThreadPoolExecutor, tasks: _Tasks, report: _Counted) -> _Results:
    futures = {pool.submit(task): key for key, task in tasks.items()}
    results: _Results = {}
    for future in as_completed(futures):
        key = futures[future]
        results[key] = future.result()
        report(key[1])
    return results


def _row(results: Mapping[_Key, Result], size: int, name: str) -> Row:
    result, lru = results[size, name], results.get((size, LRU))
    bound, objects = results.get((size, BOUND)), results.get((size, _OBJECTS))
    if lru is None or bound is None or objects is None:
        return Row(size, name, result, None, None)
    no_hits = name == BOUND or result.prefetch_bytes > 0
    hits = None if no_hits else object_gap_closed(lru, result, objects)
    return Row(size, name, result, byte_gap_closed(lru, result, bound), hits)
