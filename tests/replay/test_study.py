"""The study's numbers against slow walks over random traces."""

import collections
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.config import CacheConfig
from replay.engine import simulate
from replay.study.benefit import Region
from replay.study.categories import Thresholds, categories, category_table
from replay.study.use import (
    activities,
    hits_by_age,
    hotness,
    lru_age_s,
    origins,
    ranks,
    reads,
    replayed,
    replayed_without,
    running_mean,
    sizes,
)
from replay.trace import Trace

DAY = 86400
THRESHOLDS = Thresholds(small_file_bytes=40)
REGIONS = (Region("near", ("*.es", "PIC*"), 9.0), Region("far", ("*.gov",), 150.0))
ORIGINS = ("host.es:1094", "root://u@disk.gov//store/x", "PIC_DISK", "who.knows", None)
KINDS = ("AOD", "TXT", None)


@st.composite
def cases(draw: st.DrawFn, max_accesses: int = 80) -> tuple[Trace, pa.Table, CacheConfig]:
    """A trace with details and the cache to replay it with."""
    m = draw(st.integers(1, 12))
    n = draw(st.integers(1, max_accesses))
    item = draw(st.lists(st.integers(0, m - 1), min_size=n, max_size=n))
    step = draw(st.lists(st.sampled_from([0, 7, 400, 5000, DAY]), min_size=n, max_size=n))
    size = draw(st.lists(st.integers(0, 100), min_size=m, max_size=m))
    trace = Trace(np.cumsum(step), np.array(item), np.array(size))
    kind = draw(st.lists(st.sampled_from(KINDS), min_size=m, max_size=m))
    origin = draw(st.lists(st.sampled_from(ORIGINS), min_size=n, max_size=n))
    details = pa.table(
        {
            "category": pa.array([kind[i] for i in item], pa.string()).dictionary_encode(),
            "origin": pa.array(origin, pa.string()).dictionary_encode(),
        }
    )
    config = CacheConfig(
        draw(st.integers(1, 400)), 0.8, 0.9, purge_interval_s=draw(st.sampled_from([60, 1000]))
    )
    return trace, details, config


def walked(trace: Trace, config: CacheConfig) -> list[tuple[int, int, bool, bool]]:
    """(file, time, hit, passed) of each access, from the replay's outcomes."""
    outcome = np.zeros(trace.n_accesses, np.uint8)
    simulate(trace, config, outcome=outcome)
    return list(
        zip(trace.item.tolist(), trace.time_s.tolist(), (outcome & 1) > 0, (outcome & 2) > 0, strict=True)
    )


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_category_table_is_what_a_walk_over_the_accesses_counts(
    case: tuple[Trace, pa.Table, CacheConfig],
) -> None:
    trace, details, config = case
    use, result = replayed(trace, config)
    labels = categories(trace, details)
    expected: dict[str, list[int]] = collections.defaultdict(lambda: [0] * 7)
    files_before = set()
    for (file, _, hit, passed), kind in zip(
        walked(trace, config), details["category"].to_pylist(), strict=True
    ):
        size = int(trace.size_bytes[file])
        name = kind or ("other" if any(details["category"].to_pylist()) else "all")
        row, first = expected[name], file not in files_before
        files_before.add(file)
        more = (1, first, size * first, size, hit, size * hit, 0 if hit or passed else size)
        expected[name] = [a + int(b) for a, b in zip(row, more, strict=True)]
    table = category_table(use, labels, THRESHOLDS)
    assert {row.name: list(row.sums) for row in table} == dict(expected)
    assert sum(row.sums.hits for row in table) == result.hits
    assert sum(row.sums.hit_bytes for row in table) == result.hit_bytes
    requested_bytes = [row.sums.requested_bytes for row in table]
    assert requested_bytes == sorted(requested_bytes, reverse=True)


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 2**12 - 1))
def test_a_cache_that_refuses_files_is_a_replay_of_the_others(
    case: tuple[Trace, pa.Table, CacheConfig], mask: int
) -> None:
    trace, _, config = case
    out = np.array([mask >> k & 1 for k in range(trace.n_items)], bool)
    use = replayed_without(trace, config, out)
    inside = [k for k, file in enumerate(trace.item.tolist()) if not out[file]]
    others = []
    if inside:
        part = Trace(trace.time_s[inside], trace.item[inside], trace.size_bytes)
        others = [hit for _, _, hit, _ in walked(part, config)]
    assert use.hit[inside].tolist() == others
    assert not use.hit[out[trace.item]].any()
    assert use.passed[out[trace.item]].all()
    requested = int(trace.size_bytes[trace.item].sum())
    served = sum(int(trace.size_bytes[trace.item[k]]) for k, hit in zip(inside, others, strict=True) if hit)
    assert use.byte_hit_ratio == (served / requested if requested else 0.0)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_shapes_are_what_a_walk_over_the_accesses_counts(
    case: tuple[Trace, pa.Table, CacheConfig],
) -> None:
    trace, _, config = case
    use, _ = replayed(trace, config)
    times: dict[int, list[int]] = collections.defaultdict(list)
    hits: collections.Counter[int] = collections.Counter()
    ages: collections.Counter[int] = collections.Counter()
    for file, at, hit, _ in walked(trace, config):
        times[file].append(at)
        if hit:
            hits[file] += 1
            ages[(at - times[file][0]) // DAY] += 1
    size = trace.size_bytes.tolist()
    by_age = hits_by_age(use)
    n_days = by_age.hits.size
    assert by_age.hits.tolist() == [ages[day] for day in range(n_days)]
    assert by_age.hit_bytes.sum() == sum(hits[file] * size[file] for file in hits)
    counts = {file: len(at) for file, at in times.items()}
    for row in hotness(use):
        in_class = [f for f, n in counts.items() if row.least <= n <= (row.most or n)]
        assert row.files == len(in_class) > 0
        assert row.accesses == sum(counts[f] for f in in_class)
        assert row.requested_bytes == sum(counts[f] * size[f] for f in in_class)
    assert sum(row.files for row in hotness(use)) == len(counts)
    falling = sorted(counts.values(), reverse=True)
    assert [falling[rank - 1] for rank in ranks(use).rank.tolist()] == ranks(use).accesses.tolist()
    bins = sizes(use)
    for low, high, files, in_bytes in zip(
        bins.edges_bytes, bins.edges_bytes[1:], bins.files, bins.footprint_bytes, strict=False
    ):
        in_class = [f for f in counts if low <= max(1, size[f]) < high]
        assert (files, in_bytes) == (len(in_class), sum(size[f] for f in in_class))
    assert bins.files.sum() == len(counts)


@settings(max_examples=60, deadline=None)
@given(cases(max_accesses=40))
def test_the_lru_age_tells_hits_from_misses_with_the_fewest_errors(
    case: tuple[Trace, pa.Table, CacheConfig],
) -> None:
    trace, _, config = case
    use, _ = replayed(trace, config)
    last: dict[int, int] = {}
    again: list[tuple[int, bool]] = []
    for file, at, hit, _ in walked(trace, config):
        if file in last:
            again.append((at - last[file], hit))
        last[file] = at
    longest_s = lru_age_s(use)
    if all(hit for _, hit in again):
        assert longest_s is None
        return

    def errors(age_s: int) -> int:
        return sum(hit != (gap <= age_s) for gap, hit in again)

    best = min(errors(age) for age in {-1, *(gap for gap, _ in again)})
    assert longest_s is not None
    assert errors(longest_s) == best or (longest_s == 0 and best == sum(hit for _, hit in again))


@settings(max_examples=60, deadline=None)
@given(cases())
def test_origins_are_what_a_walk_over_the_accesses_counts(case: tuple[Trace, pa.Table, CacheConfig]) -> None:
    trace, details, config = case
    use, _ = replayed(trace, config)
    region = {"host.es:1094": "near", "root://u@disk.gov//store/x": "far", "PIC_DISK": "near"}
    expected: dict[str, list[int]] = collections.defaultdict(lambda: [0] * 5)
    files_before = set()
    for (file, _, hit, _), origin in zip(walked(trace, config), details["origin"].to_pylist(), strict=True):
        size, first = int(trace.size_bytes[file]), file not in files_before
        files_before.add(file)
        row = expected[region.get(origin, "unknown")]
        more = (first, size * first, 1, size, size * hit)
        row[:] = [a + int(b) for a, b in zip(row, more, strict=True)]
    by_origin = origins(use, details, REGIONS)
    assert {
        o.label: [o.files, o.footprint_bytes, o.accesses, o.requested_bytes, o.hit_bytes] for o in by_origin
    } == dict(expected)
    by_class = reads(by_origin)
    assert by_class.hit_bytes.sum() == int(use.hit_bytes.sum())
    assert by_class.miss_bytes.sum() + by_class.hit_bytes.sum() == int(use.requested_bytes.sum())


@given(cases())
def test_activities_part_the_accesses_and_their_hits(case: tuple[Trace, pa.Table, CacheConfig]) -> None:
    trace, details, config = case
    use, _ = replayed(trace, config)
    n = trace.n_accesses
    stated = [("analysis", "production", None)[k % 3] for k in range(n)]
    by_activity = {
        part.label: part for part in activities(use, pa.table({"activity": pa.array(stated, pa.string())}))
    }
    for label, part in by_activity.items():
        mine = np.array([(activity or "unknown") == label for activity in stated])
        size = trace.size_bytes[trace.item]
        assert part.accesses == mine.sum()
        assert part.hits == (mine & use.hit).sum()
        assert part.requested_bytes == size[mine].sum()
        assert part.hit_bytes == size[mine & use.hit].sum()
    assert sum(part.accesses for part in by_activity.values()) == n
    assert sum(part.files for part in by_activity.values()) == len(np.unique(trace.item))
    for silent in (details, pa.table({"activity": pa.nulls(n)})):
        assert activities(use, silent) == []


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=60))
def test_the_running_mean_is_that_of_the_days_so_far(values: Any) -> None:
    means = running_mean(np.array(values))
    slow = [np.mean(values[max(0, k - 13) : k + 1]) for k in range(len(values))]
    assert means == pytest.approx(np.array(slow))
