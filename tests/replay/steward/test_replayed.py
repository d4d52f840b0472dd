"""Orders driven access by access are those of whole-trace kernels; delays cost little, and never room."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from beside_oracle import beside, held_before, hits_beside
from contexts import context_with
from ladders import one_split
from pair_oracle import Wishes
from random_plans import RandomPlans

from features.common.errors import InputError
from replay.access_context import AccessContext, QueuedReads
from replay.kernels.delayed import Delays
from replay.kernels.scored_files import N_EVICTABLE, N_HELD, new_rule
from replay.policies import Policy
from replay.policies.learned import Order
from replay.policies.policy import PartPolicy
from replay.steward import new_order
from replay.steward.delayed_cache import NO_DELAY, XCACHE, DelayedCache, Plans
from replay.steward.policies import STEWARDS, InBlocks, Replayed, steward_policy
from replay.trace import Trace

HOUR_S, DAY_S = 3600, 86_400.0


def world(seed: int, *, n: int = 3000, m: int = 200, n_datasets: int = 7) -> tuple[Trace, AccessContext]:
    """Reads of popular and unpopular files of a few datasets by nobody or one of some readers."""
    draw = np.random.default_rng(seed)
    times = np.cumsum(draw.integers(0, 400, n))
    item = np.minimum(draw.geometric(0.02, n) - 1, m - 1).astype(np.int32)
    trace = Trace(times, item, draw.integers(0, 1000, m))
    dataset = draw.integers(0, n_datasets, m)
    return trace, context_with(trace, dataset, draw.integers(0, 9, n), n_datasets=n_datasets)


def hits(trace: Trace, policy: Policy, capacity: int) -> np.ndarray:
    hit = np.zeros(trace.n_accesses, np.bool_)
    assert policy(trace, capacity, hit) <= capacity
    return hit


def replayed(
    context: AccessContext, name: str, delays: Delays = NO_DELAY, orders: list[Order] | None = None
) -> Replayed:
    n_files = context.files.dataset.size
    return Replayed(context, lambda capacity: new_order(name, capacity, orders, n_files=n_files), delays)


def queued(seed: int) -> tuple[Trace, AccessContext]:
    """The accesses of `world`, and a queue that names some of the files."""
    trace, context = world(seed)
    draw, n_told = np.random.default_rng(seed), 400
    if seed % 2:
        trace = dataclasses.replace(
            trace, close_s=trace.time_s + draw.choice([0, 700, 90_000], trace.n_accesses)
        )
    told_s = np.sort(draw.choice(trace.time_s, n_told)).astype(np.float64)
    due_s = np.where(draw.random(n_told) < 0.3, np.nan, told_s + draw.integers(-HOUR_S, 9 * HOUR_S, n_told))
    file = draw.integers(0, trace.n_items, n_told).astype(np.int32)
    return trace, context._replace(queued=QueuedReads(told_s, file, due_s))


def test_what_a_queue_names_stays_until_it_was_due_for_long_or_is_named_no_more() -> None:
    """The model values the smaller file less, so without a queue that one goes."""

    def goes(now_s: float, *told: tuple[int, float]) -> list[int]:
        order = new_order("auto", 1000, [Order(0.0, one_split("size_bytes", 15.0, -9.0, 0.0))])
        for file, size in enumerate((10, 20)):
            order.add(*np.array([[0], [0], [size]]))
            order.read(file, 0, 100.0 * file, is_held=False)
            order.stored(file, size, 100.0 * file)
        for entry in told:
            order.expect(*entry)
        return order.victims(10, now_s, np.zeros(2, np.bool_))

    assert goes(DAY_S) == [0]
    assert goes(DAY_S, (0, DAY_S + HOUR_S)) == [1]
    assert goes(DAY_S, (0, DAY_S - HOUR_S)) == [1]
    assert goes(DAY_S, (0, DAY_S + HOUR_S), (0, np.nan)) == [0]
    assert goes(DAY_S, (0, 90 * DAY_S)) == [0]
    assert goes(9 * DAY_S, (0, DAY_S)) == [0]


def dataset_lru_hits(trace: Trace, context: AccessContext, capacity: int) -> list[bool]:
    """The oracle: of the datasets on disk the longest unread one, of its files the longest unread."""
    dataset, size = context.files.dataset.tolist(), trace.size_bytes.tolist()
    read: dict[int, int] = {}
    of_dataset: dict[int, int] = {}
    disk: list[int] = []
    hits = []
    for now, file in enumerate(trace.item.tolist()):
        hits.append(file in disk)
        if file not in disk and size[file] <= capacity:
            while sum(size[f] for f in disk) + size[file] > capacity:
                disk.remove(min(disk, key=lambda f: (of_dataset[dataset[f]], read[f])))
            disk.append(file)
        read[file] = of_dataset[dataset[file]] = now
    return hits


@pytest.mark.parametrize("seed", range(3))
def test_dataset_lru_equals_a_plain_one(seed: int) -> None:
    trace, context = world(seed, n=1500, m=120, n_datasets=12)
    for capacity in (1500, 9000, 25_000):
        found = hits(trace, replayed(context, "dataset-lru"), capacity)
        assert found.tolist() == dataset_lru_hits(trace, context, capacity)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_file_that_was_never_read_goes_by_its_rate(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that a plan brought, the learned order knows no age: its chances alone say when it goes."""
    rule = lambda ladder: new_rule(ladder)._replace(share=share)  # noqa: E731
    monkeypatch.setattr("replay.steward.order.new_rule", rule)
    for chance, goes in ((-30.0, True), (30.0, False)):
        ladder = one_split("n_reads", 0.5, chance, -9.0)
        order = new_order("learned", 1000, [Order(0.0, ladder)])
        for file in range(4):
            order.add(*np.array([[0], [0], [10]]))
            if file < 3:
                order.read(file, 0, 100.0 * file, is_held=False)
            order.stored(file, 10, 100.0 * file)
        assert (order.victims(10, 30 * DAY_S, np.zeros(4, np.bool_)) == [3]) == goes


def test_an_open_file_is_read_past_rather_than_evicted() -> None:
    """Two files that do not fit together, read in turn while both are open: the first one stays."""
    item = np.array([0, 1, 0, 1, 0], np.int32)
    trace = Trace(np.arange(5) * 10, item, np.array([6, 6]))
    context = context_with(trace)
    found = hits(trace, replayed(context, "lru", Delays(open_s=100)), 10)
    assert found.tolist() == [False, False, True, False, True]
    assert hits(trace, replayed(context, "lru"), 10).tolist() == [False] * 5


def read_in_part(seed: int) -> tuple[Trace, AccessContext]:
    """The accesses of `world`, of which half read all of their file and half a part, some nothing."""
    trace, context = world(seed)
    size = trace.size_bytes[trace.item]
    draw = np.random.default_rng(seed)
    share = np.where(
        draw.random(size.size) < 0.5, 1.0, draw.random(size.size) * (draw.random(size.size) < 0.9)
    )
    return dataclasses.replace(trace, read_bytes=(size * share).astype(np.int64)), context


def lru_of_blocks(trace: Trace, capacity: int, block: int) -> tuple[list[int], list[int]]:
    """The oracle: bytes from disk and origin, of the beginnings of files; the longest unread one goes."""
    assert trace.read_bytes is not None
    disk: dict[int, int] = {}
    served, fetched = [], []
    for file, asked in zip(trace.item.tolist(), trace.read_bytes.tolist(), strict=True):
        wanted = min(int(trace.size_bytes[file]), (asked + block - 1) // block * block)
        have = disk.pop(file, None)
        served.append(min(asked, have or 0))
        if have is not None and have >= wanted:
            disk[file] = have
            fetched.append(0)
            continue
        others = list(disk)
        while others and wanted <= capacity and sum(disk.values()) + wanted > capacity:
            del disk[others.pop(0)]
        if wanted <= capacity:
            disk[file] = wanted
            fetched.append(wanted - (have or 0))
        else:
            fetched.append(asked - served[-1])
            if have is not None:
                disk[file] = have
    return served, fetched


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block", [1, 64, 10_000])
def test_parts_of_files_grow_by_blocks_as_they_are_read(seed: int, block: int) -> None:
    trace, context = read_in_part(seed)
    for capacity in (700, 5000, 30_000):
        policy = InBlocks(context, lambda room: new_order("lru", room, None), NO_DELAY, block_bytes=block)
        parts = policy.serve(trace, capacity)
        served, fetched = lru_of_blocks(trace, capacity, block)
        assert parts.hit_bytes.tolist() == served and parts.fetched_bytes.tolist() == fetched
        assert parts.peak_bytes <= capacity


def whole(policy: Policy | PartPolicy) -> Policy:
    """A policy that serves whole files."""
    assert not isinstance(policy, PartPolicy)
    return policy


ODD = Delays(seen_s=400, look_s=150, headroom=0.03, effect_s=70, open_s=200)
"""Files are closed before their reads are known, and evictions take effect after the next look."""


@pytest.mark.parametrize("name", STEWARDS)
@pytest.mark.parametrize("delays", [NO_DELAY, XCACHE, ODD, Delays(seen_s=900, open_s=600)])
def test_a_replay_has_the_hits_of_a_live_steward(
    name: str, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was learned is followed from its time on; shadows: half of the files. The last trace has none."""
    monkeypatch.setattr("replay.steward.learned.MOST_SAMPLED", 150)
    for seed, capacity in enumerate((0, 700, 5000, 30_000)):
        trace, context = queued(seed)
        orders = [
            Order(float(trace.time_s[500]), one_split("n_reads", 3.0, -2.0, 1.0)),
            Order(float(trace.time_s[1700]), one_split("dataset_recency_s", 900.0, 2.0, -1.0)),
        ]
        if seed == 3 and name != "steward":
            orders.clear()
        replayed_hits = hits(trace, whole(steward_policy(name, context, orders, delays=delays)), capacity)
        live = new_order(STEWARDS[name], capacity, orders, n_files=trace.n_items)
        assert replayed_hits.tolist() == list(hits_beside(live, trace, context, capacity, delays))


def small(seed: int) -> tuple[Trace, AccessContext]:
    """300 reads, or one, many at equal times, and a queue that says things between them."""
    draw = np.random.default_rng(seed)
    n, m, k = 1 if seed % 10 == 9 else 300, 25, 60
    times = 5000 + np.cumsum(draw.choice([0, 0, 60, 100, 900], n))
    closes = times + draw.choice([0, 30, 500, 20_000], n) if seed % 2 else None
    trace = Trace(times, draw.integers(0, m, n).astype(np.int32), draw.integers(0, 60, m), close_s=closes)
    told_s = np.sort(draw.integers(times[0] - 50, times[-1] + 50, k)).astype(np.float64)
    due_s = np.where(draw.random(k) < 0.3, np.nan, told_s + draw.integers(-HOUR_S, HOUR_S, k))
    entries = QueuedReads(told_s, draw.integers(0, m, k).astype(np.int32), due_s)
    context = context_with(trace, draw.integers(0, 4, m), draw.integers(0, 5, n), n_datasets=4)
    return trace, context._replace(queued=entries)


@pytest.mark.parametrize("name", STEWARDS.values())
def test_plans_queues_parts_and_odd_delays_together_are_those_of_a_live_steward(name: str) -> None:
    """Some files are larger than the cache, which may hold nothing."""
    for seed in range(10):
        draw, (trace, context) = np.random.default_rng(seed), small(seed)
        size, m = trace.size_bytes[trace.item], trace.n_items
        needed = size if seed % 2 else np.minimum(size, draw.choice([0, 7, 64], size.size))
        capacity, cycle_s = int(draw.choice([0, 30, 200, 600])), int(draw.choice([60, 300, 3600]))
        seen_s, look_s, effect_s, open_s, fetch_s = draw.choice([0, 50, 60, 400], 5).tolist()
        delays = Delays(seen_s, look_s, float(draw.choice([0.0, 0.2])), effect_s, open_s, fetch_s)
        begins = [0, trace.n_accesses // 2] if seed % 3 or name == "learned" else []
        orders = [Order(float(trace.time_s[at]), one_split("n_reads", 3.0, -2.0, 1.0 + at)) for at in begins]
        here, there = RandomPlans(seed, m), RandomPlans(seed, m)
        live = beside(new_order(name, capacity, orders, n_files=m), trace, context, capacity, delays)
        live.plan_from(-(-int(trace.time_s[0]) // cycle_s) * cycle_s, cycle_s, there)
        order, plans = new_order(name, capacity, orders, n_files=m), Plans(here, capacity, 0.9, 1, cycle_s, 0)
        cache = DelayedCache(order, context, trace, capacity, delays, plans=plans)
        reads = cache.serve(needed.astype(np.int64), context.queued)
        assert reads.had.tolist() == list(held_before(live, trace, context, needed.tolist())), seed
        assert here.states == there.states
        assert cache.peak_bytes == live.peak <= capacity
        came = cache.prefetched(reads)
        assert [came.at_s.tolist(), came.n_bytes.tolist(), came.is_read.tolist()] == [
            [one[k] for one in live.came] for k in (1, 2, 4)
        ]
        for disk in (of.valued.disk for of in order.followed[1:] if of is not None):
            apart = disk.held[disk.sums[N_EVICTABLE] : disk.sums[N_HELD]]
            assert cache._cache.spare[apart].all()


@pytest.mark.parametrize("file", [-1, 25])
@pytest.mark.parametrize("action", range(4))
def test_a_plan_of_a_file_that_the_trace_does_not_have_is_refused(action: int, file: int) -> None:
    class Wrong(RandomPlans):
        def __call__(self, state: dict[str, Any]) -> Wishes:
            return Wishes(*([file] if k == action else [] for k in range(4)))

    trace, context = small(0)
    plans = Plans(Wrong(0, trace.n_items), 600, 0.9, 1, 60, 0)
    cache = DelayedCache(new_order("lru", 600, None), context, trace, 600, NO_DELAY, plans=plans)
    with pytest.raises(InputError, match=f"list names item {file} or {file}; items are 0 … 24"):
        cache.serve(trace.size_bytes[trace.item], context.queued)
