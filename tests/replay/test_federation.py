"""Several caches: who holds what; and in levels, by hand and beside a plain loop that knows no arrays."""

import math
from collections import OrderedDict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xcache_oracle import brute_simulate, ids

from features.common.arrays import FloatArray
from features.common.errors import ConfigError
from features.common.hashes import mixed
from replay.config import CacheConfig
from replay.federation import Level, Served, simulate_federation, simulate_levels
from replay.ranges import layout_of
from replay.trace import Trace

NAMES = [f"mc:file.{i}.root" for i in range(300)]
COUNT_FROM_S = 2000


def make_trace(seed: int, n: int = 400, m: int = 30) -> Trace:
    rng = np.random.default_rng(seed)
    time_s = np.sort(rng.integers(0, 40_000, n))
    return Trace(
        time_s,
        rng.integers(0, m, n, dtype=np.int32),
        rng.integers(0, 20, m),
        names=pa.array(NAMES[:m]),
        close_s=time_s + rng.integers(0, 3000, n),
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_each_cache_is_replayed_as_if_alone(seed: int) -> None:
    trace = make_trace(seed)
    federation = {"small": CacheConfig(30), "large": CacheConfig(90, 0.5, 0.8, 60)}
    shares = simulate_federation(trace, federation, count_from_s=COUNT_FROM_S)
    holder = layout_of({"small": 30, "large": 90}).owners_of(trace.names.to_pylist())
    server = holder[trace.item]
    total: dict[str, int] = {}
    for name, config in federation.items():
        here = server == name
        part = Trace(
            trace.time_s[here],
            trace.item[here],
            trace.size_bytes,
            names=trace.names,
            close_s=trace.close_s[here],
        )
        span = (int(trace.time_s[0]), int(trace.time_s[-1]))
        expect, _ = brute_simulate(
            part,
            config,
            planner=None,
            cycle_s=900,
            plan_from_s=0,
            span=span,
            elsewhere=np.flatnonzero(holder != name).tolist(),
            count_from_s=COUNT_FROM_S,
        )
        assert {key: getattr(shares.caches[name], key) for key in expect} == expect
        for key, value in expect.items():
            total[key] = total.get(key, 0) + value
    assert {key: getattr(shares.total, key) for key in total} == total
    assert shares.total.daily.wan_bytes.sum() == shares.total.wan_bytes
    assert shares.total.fill.used_bytes.max() <= shares.total.peak_usage_bytes


def test_what_cannot_be_shared_out_is_named() -> None:
    with pytest.raises(ConfigError, match="caches"):
        simulate_federation(Trace(ids([1]), ids([0]), ids([1])), {})
    nameless = Trace(ids([1]), ids([0]), ids([1]))
    with pytest.raises(ConfigError, match="no names"):
        simulate_federation(nameless, {"a": CacheConfig(1), "b": CacheConfig(1)})


MB = 10**6


def plain(
    reads: Trace, levels: list[Level], readers: list[int], owner_of: list[list[int]]
) -> list[tuple[int, int, float]]:
    """Of each access the level that serves it, whether it was under way, and the wait: LRU, one by one."""
    held = [[OrderedDict[int, None]() for _ in range(level.n_caches)] for level in levels]
    ways: list[dict[tuple[int, int], tuple[float, float]]] = [{} for _ in levels]
    free = {(kind, at, c): 0.0 for kind in (0, 1) for at, x in enumerate(levels) for c in range(x.n_caches)}
    asked_bytes = reads.size_bytes[reads.item] if reads.read_bytes is None else reads.read_bytes
    served = []
    for i, file in enumerate(reads.item.tolist()):
        now, size, want = float(reads.time_s[i]), int(reads.size_bytes[file]), int(asked_bytes[i])
        caches = [
            int(mixed(np.array([readers[i]], np.uint64))[0] % level.n_caches)
            if level.by == "reader"
            else owner_of[at][file]
            for at, level in enumerate(levels)
        ]
        serves = next((at for at, cache in enumerate(caches) if file in held[at][cache]), len(levels))
        part = whole = now
        late = False
        if serves < len(levels):
            began, ends = ways[serves][caches[serves], file]
            late = ends > now
            if late:
                part, whole = max(now, began + want / size * (ends - began)), ends
            disk = (1, serves, caches[serves])
            begins, rate = max(now, free[disk]), levels[serves].disk_bytes_s
            free[disk] = begins + (size if serves else want) / rate
            part, whole = max(part, begins + want / rate), max(whole, free[disk])
        for at in reversed(range(serves)):
            level, link = levels[at], (0, at, caches[at])
            start = max(now, free[link])
            free[link] = start + size / level.link_bytes_s
            begins = start + level.latency_s
            part = max(part + level.latency_s, begins + want / level.link_bytes_s)
            whole = max(whole + level.latency_s, begins + size / level.link_bytes_s)
            ways[at][caches[at], file] = (begins, whole)
        for at in range(min(serves + 1, len(levels))):
            cache = held[at][caches[at]]
            if size <= levels[at].capacity_bytes:
                cache[file] = None
                cache.move_to_end(file)
                while sum(int(reads.size_bytes[cached]) for cached in cache) > levels[at].capacity_bytes:
                    cache.popitem(last=False)
        served.append((serves, int(late), part - now))
    return served


def flat(rows: list[Served]) -> list[tuple[int, int, FloatArray]]:
    return [(row.hits, row.under_way, np.sort(row.wait_s)) for row in rows]


@pytest.mark.parametrize("seed", range(8))
def test_it_equals_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = 300, 40
    sizes = rng.integers(1, 100, m) * MB
    items = (rng.zipf(1.3, n) % m).astype(np.int32)
    part = rng.random() < 0.5
    read = (sizes[items] * rng.random(n)).astype(np.int64) if part else None
    names = pa.array([f"t:f{i}" for i in range(m)])
    reads = Trace(np.sort(rng.integers(0, 600, n)), items, sizes, names=names, read_bytes=read)
    levels = [
        Level("node", 150 * MB, 3, by="reader", link_bytes_s=20 * MB, disk_bytes_s=50 * MB),
        Level("site", 600 * MB, 1, link_bytes_s=30 * MB, latency_s=0.5),
        Level("region", 500 * MB, 2, link_bytes_s=math.inf, disk_bytes_s=15 * MB, latency_s=2.0),
    ]
    readers = rng.integers(0, 7, n)
    rows = simulate_levels(reads, levels, readers=readers)
    owners = layout_of({"000000": 1.0, "000001": 1.0}).owners_of(names.to_pylist()).astype(int).tolist()
    expected = plain(reads, levels, readers.tolist(), [[0] * m, [0] * m, owners])
    for at, (hits, under_way, waits) in enumerate(flat(rows)):
        mine = [row for row in expected if row[0] == at]
        assert (hits, under_way) == (len(mine), sum(late for _, late, _ in mine))
        assert waits == pytest.approx(np.sort([wait for _, _, wait in mine]), abs=1e-6)
    assert sum(row.under_way for row in rows) > 0
