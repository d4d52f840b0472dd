"""Policies, a plan and the bounds side by side, at several cache sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from types import MappingProxyType

from features.errors import ConfigError
from replay.bounds import byte_bound, object_bound
from replay.config import CacheConfig
from replay.engine import simulate
from replay.kernels.tally import HOUR_S
from replay.planner import Planner
from replay.policies import Policy, run_policy
from replay.result import Result, byte_gap_closed, object_gap_closed
from replay.threads import threads
from replay.trace import Trace

LRU, PLAN, BOUND = "lru", "lru+plan", "bound"
_OBJECT_BOUND = "object-bound"
_BOUNDS: Mapping[str, Callable[..., Result]] = MappingProxyType(
    {BOUND: byte_bound, _OBJECT_BOUND: object_bound}
)

Progress = Callable[[int, int, str], None]
"""Called with (done, total, name of the policy that was replayed last)."""

_Key = tuple[int, str]
"""Capacity and policy."""
_Tasks = dict[_Key, Callable[[], Result]]
_Results = dict[_Key, Result]


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One policy at one capacity: `capacity_bytes` is the cache's, `result.capacity_bytes` what it ran with.

    `byte_gap_closed`, `object_gap_closed`: 0 for LRU, 1 for the bound on bytes or on hits; None where LRU
    already reaches the bound, or there is no bound.
    """

    capacity_bytes: int
    policy: str
    result: Result
    byte_gap_closed: float | None
    object_gap_closed: float | None


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
    in_parts: bool = False,
    own: Mapping[str, Policy] = MappingProxyType({}),
    on_done: Progress = lambda done, total, last: None,
    workers: int | None = None,
) -> list[Row]:
    """A row for each of `policies` and one for the bound on bytes, at each of `capacities`, in that order.

    Without `xcache`, every policy decides at each access. With it, `lru` and `lru+plan` (which needs
    `planner`) are XCaches of that configuration, at each of `capacities` instead of its own. The other
    policies know no watermarks: they and the bounds get the peak usage of these XCaches as their capacity.
    `own`: policies by name that are not built in, for example those of `score_policies`. There is no bound if
    parts of files are cached (`in_parts`: by `own`), and none on hits if a plan prefetched. Replays run in
    `workers` threads, which share `planner`. Raises ConfigError, and what `simulate` and `run_policy` raise.
    """
    sizes, names = list(dict.fromkeys(capacities)), list(dict.fromkeys(policies))
    if PLAN in names and (xcache is None or planner is None):
        raise ConfigError("policy", f"{PLAN} needs watermarks and a planner; leave it out or give both")
    bounds = _BOUNDS if with_bound and not (in_parts or _keeps_parts(trace, xcache)) else {}
    # Gaps are measured from LRU, and an XCache determines the capacity of the other policies.
    replayed = list(dict.fromkeys([LRU, *names])) if bounds or xcache else names
    as_xcache = [name for name in replayed if xcache and name in (LRU, PLAN)]
    configs = {} if xcache is None else {n: dataclasses.replace(xcache, capacity_bytes=n) for n in sizes}
    replay = partial(simulate, trace, cycle_s=cycle_s, plan_from_s=plan_from_s, count_from_s=count_from_s)
    others: dict[str, Callable[..., Result]] = {
        name: partial(run_policy, name, policy=own.get(name)) for name in replayed if name not in as_xcache
    }
    if bounds:
        _ = trace.following  # computed once, before several threads ask for it
    with threads(workers) as pool:
        run = _Runner(pool, on_done, len(sizes) * (len(replayed) + len(bounds)))
        results = run(
            {
                (size, name): partial(replay, config, planner=planner if name == PLAN else None)
                for size, config in configs.items()
                for name in as_xcache
            }
        )
        room = {n: max((results[n, name].peak_usage_bytes for name in as_xcache), default=n) for n in sizes}
        results |= run(
            {
                (size, name): partial(replay_at, trace, room[size], count_from_s=count_from_s)
                for size in sizes
                for name, replay_at in {**others, **bounds}.items()
            }
        )
    shown = [*names, BOUND] if bounds else names
    return [_row(results, size, name) for size in sizes for name in shown]


def _keeps_parts(trace: Trace, xcache: CacheConfig | None) -> bool:
    return xcache is not None and xcache.block_bytes is not None and trace.read_bytes is not None


class _Runner:
    """Runs batches of tasks in the threads of `pool`, reporting progress over all of them."""

    def __init__(self, pool: ThreadPoolExecutor, on_done: Progress, total: int) -> None:
        self._pool, self._on_done, self._total, self._done = pool, on_done, total, 0

    def __call__(self, tasks: _Tasks) -> _Results:
        futures = {self._pool.submit(task): key for key, task in tasks.items()}
        results: _Results = {}
        for future in as_completed(futures):
            key = futures[future]
            results[key] = future.result()
            self._done += 1
            self._on_done(self._done, self._total, key[1])
        return results


def _row(results: Mapping[_Key, Result], size: int, name: str) -> Row:
    result, lru = results[size, name], results.get((size, LRU))
    in_bytes, in_hits = results.get((size, BOUND)), results.get((size, _OBJECT_BOUND))
    if lru is None or in_bytes is None or in_hits is None:
        return Row(size, name, result, None, None)
    byte_gap = byte_gap_closed(lru, result, in_bytes)
    # The byte bound's hits are no bound, and the bound on hits does not hold with prefetches.
    if name == BOUND or result.prefetch_bytes > 0:
        return Row(size, name, result, byte_gap, None)
    return Row(size, name, result, byte_gap, object_gap_closed(lru, result, in_hits))
