"""The XCache engine against a brute force that sorts the whole disk at every check."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.bounds import byte_bound
from replay.config import CacheConfig
from replay.engine import simulate
from replay.planner import Actions, CacheState
from replay.policies import run_policy
from replay.trace import Trace

SAMPLE, CHECK, COUNT, CYCLE, BOUNDARY, ACCESS = range(6)


def ids(values):
    return np.array(values, np.int64)


class RandomPlanner:
    """Lists drawn from the state's time alone; keeps what it was shown."""

    def __init__(self, n_items, seed, prefetches=True):
        self.n_items, self.seed, self.prefetches, self.seen = n_items, seed, prefetches, []

    def actions(self, state: CacheState) -> Actions:
        rng = np.random.default_rng([self.seed, state.as_of_s])
        order = np.argsort(state.item)
        self.seen.append(
            (
                state.as_of_s,
                state.item[order].tolist(),
                state.bytes_on_disk[order].tolist(),
                state.last_access_s[order].tolist(),
                state.pinned[order].tolist(),
                state.inflow_bytes,
                state.lru_age_s,
            )
        )
        most = (4 if self.prefetches else 1, 2 * self.n_items, 3, 3)
        return Actions(*(rng.integers(0, self.n_items, rng.integers(0, n)) for n in most))


class Brute:
    """One dict of resident files; every order is found by sorting it."""

    def __init__(self, trace, config):
        self.size = trace.size_bytes.tolist()
        self.capacity = config.capacity_bytes
        self.low = int(config.low_watermark * self.capacity)
        self.high = int(config.high_watermark * self.capacity)
        self.files = {}  # file -> (last access, sequence)
        self.pins, self.fresh, self.away = set(), set(), set()
        self.sequence = self.inflow = self.wasted = self.read = self.peak = 0
        self.age = None

    @property
    def used(self):
        return sum(self.size[f] for f in self.files)

    def touch(self, file, now):
        self.sequence += 1
        self.files[file] = (now, self.sequence)

    def insert(self, file, now):
        self.touch(file, now)
        self.away.discard(file)
        self.inflow += self.size[file]
        self.peak = max(self.peak, self.used)

    def remove(self, file):
        del self.files[file]
        self.pins.discard(file)
        if file in self.fresh:
            self.fresh.remove(file)
            self.wasted += self.size[file]

    def check(self, now):
        if self.used <= self.high:
            return
        for file in sorted(self.files, key=self.files.__getitem__):
            if self.used <= self.low:
                break
            if file not in self.pins:
                self.age = now - self.files[file][0]
            self.remove(file)

    def access(self, file, now):
        """(hit, refetched, bypassed)"""
        if file in self.files:
            if file in self.fresh:
                self.fresh.remove(file)
                self.read += self.size[file]
            self.touch(file, now)
            return True, False, False
        again = file in self.away
        self.away.discard(file)
        fits = self.used + self.size[file] <= self.capacity
        if fits:
            self.insert(file, now)
        return False, again, not fits

    def act(self, actions, now):
        self.inflow = fetched = 0
        for file in actions.evict.tolist():
            if file in self.files:
                self.remove(file)
                self.away.add(file)
        self.pins -= set(actions.unpin.tolist())
        for file in actions.prefetch.tolist():
            if file not in self.files and self.used + self.size[file] <= self.capacity:
                self.insert(file, now)
                self.fresh.add(file)
                fetched += self.size[file]
        for file in sorted(self.pins):
            self.touch(file, now)
        for file in reversed(actions.pin.tolist()):
            if file in self.files:
                self.pins.add(file)
                self.touch(file, now)
        return fetched

    def state(self, now, config):
        files = ids(sorted(self.files))
        return CacheState(
            as_of_s=now,
            capacity_bytes=self.capacity,
            low_watermark=config.low_watermark,
            high_watermark=config.high_watermark,
            item=files,
            bytes_on_disk=ids([self.size[f] for f in files]),
            last_access_s=ids([self.files[f][0] for f in files]),
            pinned=np.array([f in self.pins for f in files], bool),
            inflow_bytes=self.inflow,
            lru_age_s=self.age,
        )


def brute_simulate(trace, config, *, planner, cycle_s, plan_from_s, count_from_s):
    start, end = int(trace.time_s[0]), int(trace.time_s[-1])
    first = -(-max(start, plan_from_s) // cycle_s) * cycle_s
    events = [(t, ACCESS, int(f)) for t, f in zip(trace.time_s, trace.item, strict=True)]
    events += [(t, CHECK, 0) for t in range(start + 1, end + 2) if t % config.purge_interval_s == 0]
    events += [(t, SAMPLE, 0) for t in range(start + 1, end + 2) if t % 3600 == 0]
    events += [(t, BOUNDARY, 0) for t in range(first, end + 1, cycle_s)]
    events += [(count_from_s, COUNT, 0), (first - cycle_s, CYCLE, 0)]
    disk = Brute(trace, config)
    counting, rows, fetched, fill = False, [], 0, []
    for now, kind, file in sorted(events, key=lambda e: e[:2]):
        if kind == SAMPLE and now >= count_from_s:
            fill.append((now, disk.used))
        elif kind == CHECK:
            disk.check(now)
        elif kind == COUNT:
            counting, disk.wasted, disk.read, disk.peak = True, 0, 0, disk.used
            fetched = sum(disk.size[f] for f in disk.fresh)
        elif kind == CYCLE:
            disk.inflow = 0
        elif kind == BOUNDARY and planner is not None:
            fetched += disk.act(planner.actions(disk.state(now, config)), now)
        elif kind == ACCESS:
            outcome = disk.access(file, now)
            if counting:
                rows.append((disk.size[file], *outcome))
    missed = sum(size for size, hit, _, _ in rows if not hit)
    return {
        "requests": len(rows),
        "hits": sum(hit for _, hit, _, _ in rows),
        "bytes_requested": sum(size for size, *_ in rows),
        "hit_bytes": sum(size for size, hit, _, _ in rows if hit),
        "wan_bytes": missed + fetched,
        "prefetch_bytes": fetched,
        "prefetch_read_bytes": disk.read,
        "wasted_bytes": disk.wasted + sum(disk.size[f] for f in disk.fresh),
        "refetch_bytes": sum(size for size, _, again, _ in rows if again),
        "bypassed_bytes": sum(size for size, _, _, past in rows if past),
        "peak_usage_bytes": disk.peak,
        "fill": fill,
    }


@st.composite
def cases(draw):
    m = draw(st.integers(1, 10))
    n = draw(st.integers(1, 60))
    gaps = draw(st.lists(st.sampled_from([0, 1, 7, 59, 60, 200, 900, 4000]), min_size=n, max_size=n))
    items = draw(st.lists(st.integers(0, m - 1), min_size=n, max_size=n))
    sizes = draw(st.lists(st.sampled_from([0, 1, 3, 10, 17, 40]), min_size=m, max_size=m))
    time_s = draw(st.integers(0, 8000)) + np.cumsum(gaps)
    trace = Trace(time_s, ids(items), ids(sizes))
    low = draw(st.sampled_from([0.3, 0.6, 0.9]))
    high = draw(st.sampled_from([mark for mark in (0.3, 0.6, 0.95, 1.0) if mark >= low]))
    config = CacheConfig(draw(st.integers(1, 90)), low, high, draw(st.sampled_from([60, 300, 700])))
    return trace, config


times = st.integers(0, 40_000)


@settings(max_examples=400, deadline=None)
@given(cases(), st.booleans(), st.sampled_from([600, 1000, 3600]), st.tuples(times, times), st.integers(0, 9))
def test_the_engine_equals_the_brute_force(case, planned, cycle_s, moments, seed):
    trace, config = case
    plan_from_s, count_from_s = moments
    count_from_s = int(np.clip(count_from_s, trace.time_s[0], trace.time_s[-1]))
    shown = [RandomPlanner(trace.n_items, seed) for _ in range(2)] if planned else [None, None]
    moments = {"cycle_s": cycle_s, "plan_from_s": plan_from_s, "count_from_s": count_from_s}
    result = simulate(trace, config, planner=shown[0], **moments)
    expect = brute_simulate(trace, config, planner=shown[1], **moments)
    fill = expect.pop("fill")
    assert {key: getattr(result, key) for key in expect} == expect
    assert list(zip(result.fill.time_s.tolist(), result.fill.used_bytes.tolist(), strict=True)) == fill
    assert result.prefetch_bytes == result.prefetch_read_bytes + result.wasted_bytes
    for total, daily in (("hits", "hits"), ("hit_bytes", "hit_bytes"), ("wan_bytes", "wan_bytes")):
        assert getattr(result.daily, daily).sum() == getattr(result, total)
    if planned:
        assert shown[0].seen == shown[1].seen


@settings(max_examples=300, deadline=None)
@given(cases(), times, times, st.integers(0, 9))
def test_nothing_beats_the_bound(case, plan_from_s, count_from_s, seed):
    trace, config = case
    count_from_s = int(np.clip(count_from_s, trace.time_s[0], trace.time_s[-1]))
    for planner in (None, RandomPlanner(trace.n_items, seed), RandomPlanner(trace.n_items, seed, False)):
        result = simulate(
            trace,
            config,
            planner=planner,
            cycle_s=900,
            plan_from_s=plan_from_s,
            count_from_s=count_from_s,
        )
        bound = byte_bound(trace, result.peak_usage_bytes, count_from_s=count_from_s)
        assert bound.wan_bytes <= result.wan_bytes
    for name in ("lru", "belady", "clairvoyant"):
        result = run_policy(name, trace, config.capacity_bytes, count_from_s=count_from_s)
        bound = byte_bound(trace, config.capacity_bytes, count_from_s=count_from_s)
        assert bound.wan_bytes <= result.wan_bytes
