"""Policies, a plan and the bound side by side, at several cache sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial

from replay.bounds import byte_bound
from replay.config import CacheConfig
from replay.engine import HOUR_S, simulate
from replay.planner import Planner
from replay.policies import run_policy
from replay.result import Result, byte_gap_closed
from replay.trace import Trace

LRU, PLAN, BOUND = "lru", "lru+plan", "bound"

_Task = Callable[[], Result]
_Key = tuple[int, str]


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One policy at one capacity; `byte_gap_closed` is 0 for LRU, 1 for the bound, None without a gap.

    `capacity_bytes` is the cache's size. The clairvoyant and the bound ran with the peak usage of the
    real ones, which is `result.capacity_bytes`.
    """

    capacity_bytes: int
    policy: str
    result: Result
    byte_gap_closed: float | None


def compare(
    trace: Trace,
    capacities: Sequence[int],
    *,
    watermarks: tuple[float, float] = (0.90, 0.95),
    purge_interval_s: int = 300,
    planner_factory: Callable[[int], Planner | None] = lambda capacity: None,
    cycle_s: int = 4 * HOUR_S,
    plan_from_s: int | None = None,
    count_from_s: int | None = None,
    policies: Sequence[str] = ("clairvoyant",),
    on_done: Callable[[str, int], None] = lambda policy, capacity: None,
    workers: int | None = None,
) -> list[Row]:
    """Rows lru, `policies`, lru+plan (where the factory gives a planner) and bound, for each capacity.

    lru and lru+plan are XCache by `watermarks`; `policies` (names of `replay.policies`) decide at each
    access. Replays run in `workers` threads; planners must not share state. `on_done(policy, capacity)`
    is called in the caller's thread after each. Raises what `simulate` and `run_policy` raise.
    """
    sizes = list(dict.fromkeys(capacities))
    configs = {size: CacheConfig(size, *watermarks, purge_interval_s) for size in sizes}
    replay = partial(simulate, trace, cycle_s=cycle_s, plan_from_s=plan_from_s, count_from_s=count_from_s)
    real: dict[_Key, _Task] = {(size, LRU): partial(replay, configs[size]) for size in sizes}
    for size in sizes:
        planner = planner_factory(size)
        if planner is not None:
            real[size, PLAN] = partial(replay, configs[size], planner=planner)
    with ThreadPoolExecutor(workers) as pool:
        results = _run(pool, real, on_done)
        ideal: dict[_Key, _Task] = {}
        for size in sizes:
            peak = max(result.peak_usage_bytes for (at, _), result in results.items() if at == size)
            for name in policies:
                ideal[size, name] = partial(run_policy, name, trace, peak, count_from_s=count_from_s)
            ideal[size, BOUND] = partial(byte_bound, trace, peak, count_from_s=count_from_s)
        results |= _run(pool, ideal, on_done)
    return [row for size in sizes for row in _rows(size, (LRU, *policies, PLAN, BOUND), results)]


def _run(
    pool: ThreadPoolExecutor, tasks: dict[_Key, _Task], on_done: Callable[[str, int], None]
) -> dict[_Key, Result]:
    futures = {pool.submit(task): key for key, task in tasks.items()}
    results: dict[_Key, Result] = {}
    for future in as_completed(futures):
        size, policy = futures[future]
        results[size, policy] = future.result()
        on_done(policy, size)
    return results


def _rows(size: int, names: Iterable[str], results: dict[_Key, Result]) -> list[Row]:
    lru, bound = results[size, LRU], results[size, BOUND]
    return [
        Row(size, name, result, byte_gap_closed(lru, result, bound))
        for name in names
        if (result := results.get((size, name))) is not None
    ]
