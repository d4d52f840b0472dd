"""Step `evaluate --trace`: a learned order of eviction beside the other policies, on any trace.

The order is learned once, from what lies before the counted days. Nothing is prefetched, and every policy
decides at each access.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from features.errors import InputError
from features.results import STEWARD
from features.times import day_label
from jobs.evaluate.evaluate import EvaluationAnswer, no_bounds, row
from jobs.evaluate.ready import check_days
from jobs.progress import Advance
from jobs.store.traces import Beside, TraceFile
from models.evaluation.rivals import BOUND, Rivals, replayed
from models.learning.order import Learning
from replay.bounds import byte_bound
from replay.policies import Policy, run_policy
from replay.policies.learned import Learned, Order
from replay.result import Result
from replay.steward import EvictionOrder, new_order
from replay.steward.replayed import Replayed
from replay.story import story

STEWARDS = (STEWARD, f"{STEWARD}-auto", f"{STEWARD}-dataset-lru")
"""The learned order, the choice among it and heuristics, and the one of these that is no policy itself."""
MOST_FOLLOWED = 4_000_000
"""No kernel serves the last two of `STEWARDS`: with more accesses, times capacities, they are left out."""
POLICIES = ("lru", "fifo", "lfu", "lfu-da", "gdsf", "sieve", "2q", "s3fifo", "clairvoyant")


def run(
    file: TraceFile, beside: Beside, *, from_s: int, fractions: Sequence[float], on_progress: Advance
) -> EvaluationAnswer:
    """A row per capacity and policy, counted from `from_s`; what lies before is learned from, and warms.

    Raises InputError, SchemaError.
    """
    on_progress(0, 1, "reading")
    loaded = file.load(keep=[name for name in beside if name is not None])
    trace = loaded.trace
    told = story(loaded, **beside._asdict())
    check_days(int(trace.time_s[0]), int(trace.time_s[-1]), from_s=from_s)
    capacities = [int(share * trace.footprint_bytes) for share in fractions]
    if min(capacities) <= 0:
        raise InputError(f"a capacity of {min(fractions):%} of the files read has no room for any")
    learning = Learning(trace, told, capacities)
    orders = learning.orders(from_s, on_progress)
    stewards = STEWARDS if trace.n_accesses * len(capacities) <= MOST_FOLLOWED else STEWARDS[:1]
    ours = [_stewards(learning, order, stewards) for order in orders]
    rivals = _replayed(learning, fractions, ours, from_s, on_progress)
    return EvaluationAnswer(
        model_version=None,
        first_day=day_label(from_s),
        last_day=day_label(int(trace.time_s[-1])),
        rows=tuple(row(at, policy) for at in rivals for policy in at.replayed),
        notes=(*loaded.notes, *_notes(stewards), *no_bounds(rivals)),
    )


def _replayed(
    learning: Learning,
    fractions: Sequence[float],
    ours: Sequence[Mapping[str, Policy]],
    from_s: int,
    on_progress: Advance,
) -> list[Rivals]:
    """Every policy and the bound at each capacity, in parallel; `ours`: the stewards at each."""
    trace, tasks = learning.trace, dict[tuple[int, str], Future[Result]]()
    _ = trace.following  # computed once, before several threads ask for it
    with ThreadPoolExecutor() as pool:
        for at, capacity in enumerate(learning.capacities):
            for name in (*ours[at], *POLICIES):
                policy = ours[at].get(name)
                replay = partial(run_policy, name, trace, capacity, count_from_s=from_s, policy=policy)
                tasks[at, name] = pool.submit(replay)
            tasks[at, BOUND] = pool.submit(byte_bound, trace, capacity, count_from_s=from_s)
        for done, ((_, name), task) in enumerate(tasks.items()):
            task.result()
            on_progress(done + 1, len(tasks), f"{name} replayed")
    return [
        Rivals(
            fraction,
            0,
            {name: replayed(trace, tasks[at, name].result()) for name in (*POLICIES, *ours[at], BOUND)},
        )
        for at, fraction in enumerate(fractions)
    ]


def _notes(stewards: Sequence[str]) -> tuple[str, ...]:
    if left_out := [name for name in STEWARDS if name not in stewards]:
        return (f"too many accesses for {' and '.join(left_out)}: `replay --policy` runs them alone",)
    return ()


def _stewards(learning: Learning, orders: list[Order], wanted: Sequence[str]) -> dict[str, Policy]:
    """The policies `wanted` of `STEWARDS` at one capacity, which share what was learned."""
    told, n_files = learning.story, learning.trace.n_items
    followed = (partial(_order, name, orders, n_files) for name in ("auto", "dataset-lru"))
    driven = (Replayed(told, order) for order in followed)
    made: tuple[Policy, ...] = (Learned(told, orders), *driven)
    return {name: policy for name, policy in zip(STEWARDS, made, strict=True) if name in wanted}


def _order(name: str, learned: list[Order], n_files: int, capacity_bytes: int) -> EvictionOrder:
    return new_order(name, capacity_bytes, learned, n_files=n_files)
