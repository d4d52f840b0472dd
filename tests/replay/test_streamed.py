"""Caches served chunk after chunk, with numbers of files used again: equal to one trace of all accesses."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from ladders import one_split

from features.arrays import BoolArray, Ids, IntArray
from features.stream.state import Files
from replay.kernels.inline import HIT_BYTES, HITS, OUTLIVED, REQUESTS, Births, Chunk, empty_cache, no_births
from replay.kernels.valued import PEAK
from replay.policies import run_policy
from replay.policies.learned import Learned, LearnedCache, Order
from replay.policies.lru import LruCache
from replay.story import Story
from replay.trace import Trace
from replay.workload import WorkloadConfig

BENCH = Path(__file__).parents[2] / "bench"
SCENARIO = BENCH.parent / "conf" / "workloads" / "socal.toml"
DAY_S = 86_400
YEARS = 2
N = 240_000


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    sys.path.append(str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("federation", BENCH / "federation.py")
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(BENCH))


class Whole:
    """A stream joined to one trace, in which each file and dataset has a number of its own."""

    def __init__(self, chunks: list[Chunk], n_files: int, n_datasets: int) -> None:
        self.n_files, self.n_datasets = n_files, n_datasets
        number, d_number = np.full(n_files, -1), np.full(n_datasets, -1)
        size: list[int] = []
        dataset: list[int] = []
        tier: list[int] = []
        items: list[int] = []
        last = -1
        for chunk in chunks:
            born, births = 0, chunk.births
            for i, file in enumerate(chunk.item):
                while born < births.at.size and births.at[born] <= i:
                    if births.dataset[born] != last:
                        last = births.dataset[born]
                        d_number[last] = (dataset[-1] if dataset else -1) + 1
                    number[births.item[born]] = len(size)
                    size.append(births.size_bytes[born])
                    dataset.append(d_number[last])
                    tier.append(births.tier[born])
                    born += 1
                items.append(number[file])
            assert born == births.at.size
        self.trace = Trace(np.concatenate([c.time_s for c in chunks]), np.array(items), np.array(size))
        unknown, none = np.full(len(size), -1, np.int32), np.zeros(dataset[-1] + 1, np.int64)
        ids, kinds = np.array(dataset, np.int32), np.array(tier, np.int32)
        files = Files(ids, kinds, self.trace.size_bytes, unknown, none, np.inf)
        self.story = Story(files, none.size, np.concatenate([c.reader for c in chunks]))


def copied(chunk: Chunk) -> Chunk:
    of = chunk.births
    births = Births(of.at.copy(), of.item.copy(), of.dataset.copy(), of.tier.copy(), of.size_bytes.copy())
    return Chunk(chunk.time_s.copy(), chunk.item.copy(), chunk.reader.copy(), births)


@pytest.fixture(scope="module")
def stream(bench: ModuleType) -> tuple[list[Chunk], Whole]:
    """Two years of a small cache."""
    drawing = bench.Site("small", 0, N // YEARS, 7).drawing(5000)
    chunks = [copied(drawing.next(5000)) for _ in range(N // 5000)]
    return chunks, Whole(chunks, drawing.n_files, drawing.n_datasets)


def blank(whole: Whole) -> Files:
    m, d = whole.n_files, whole.n_datasets
    zeros: Ids = np.zeros(m, np.int32)
    unknown = np.full(m, -1, np.int32)
    return Files(zeros, zeros.copy(), np.zeros(m, np.int64), unknown, np.zeros(d, np.int64), np.inf)


def served(cache: LruCache | LearnedCache, chunks: list[Chunk]) -> BoolArray:
    hits = []
    for chunk in chunks:
        hits.append(np.zeros(chunk.item.size, np.bool_))
        cache.serve(chunk, hits[-1])
    return np.concatenate(hits)


def test_the_stream_uses_numbers_again_and_is_the_same_for_the_same_seed(
    bench: ModuleType, stream: tuple[list[Chunk], Whole]
) -> None:
    chunks, whole = stream
    assert whole.trace.n_items > 2 * whole.n_files
    assert whole.story.n_datasets > whole.n_datasets
    assert whole.trace.n_accesses == N
    again = bench.Site("small", 0, N // YEARS, 7).drawing(5000).next(5000)
    assert np.array_equal(again.item, chunks[0].item)
    assert np.array_equal(again.time_s, chunks[0].time_s)


def test_the_stream_has_the_rate_sizes_and_reads_per_file_of_its_scenario(
    bench: ModuleType, stream: tuple[list[Chunk], Whole]
) -> None:
    _, whole = stream
    days = (whole.trace.time_s[-1] - whole.trace.time_s[0]) / DAY_S
    assert days == pytest.approx(YEARS * bench.DAYS, rel=0.2)
    config = WorkloadConfig.from_mapping(bench.tomllib.loads(SCENARIO.read_text()))
    files = sum(one.files for one in config.categories)
    mean = sum(one.files * one.mean_size_bytes for one in config.categories) / files
    assert whole.trace.size_bytes.mean() == pytest.approx(mean, rel=0.1)
    reads = sum(one.accesses for one in config.categories) / files
    # The last datasets have not had all of their reads.
    assert N / whole.trace.n_items == pytest.approx(reads, rel=0.3)


@pytest.mark.parametrize("share", [0.01, 0.03])
def test_lru_in_a_stream_equals_lru_on_the_trace(stream: tuple[list[Chunk], Whole], share: float) -> None:
    chunks, whole = stream
    capacity = int(share * whole.trace.footprint_bytes)
    cache = empty_cache(np.zeros(whole.n_files, np.int64), capacity)
    hit = served(LruCache(cache), chunks)
    expected = run_policy("lru", whole.trace, capacity)
    assert cache.tally[OUTLIVED] == 0
    assert cache.tally[REQUESTS] == N
    assert cache.tally[HITS] == hit.sum() == expected.hits
    assert cache.tally[HIT_BYTES] == expected.bytes_requested - expected.wan_bytes
    assert cache.disk.sums[PEAK] == expected.peak_usage_bytes


def test_the_learned_order_in_a_stream_equals_it_on_the_trace(stream: tuple[list[Chunk], Whole]) -> None:
    chunks, whole = stream
    capacity = int(0.02 * whole.trace.footprint_bytes)
    trace = whole.trace
    # The first order begins within a chunk, the second at the beginning of one.
    orders = [
        Order(float(trace.time_s[31_234]), one_split("dataset_recency_s", 20_000.0, 1.0, -1.0), 0.7),
        Order(float(trace.time_s[60_000]), one_split("n_reads", 2.0, -1.0, 1.0), 0.4),
    ]
    expected = np.zeros(N, np.bool_)
    peak = Learned(whole.story, orders)(trace, capacity, expected)
    files = blank(whole)
    cache = empty_cache(files.size_bytes, capacity)
    hit = served(LearnedCache(files, whole.n_datasets, orders, cache), chunks)
    assert cache.tally[OUTLIVED] == 0
    assert (hit == expected).all()
    assert cache.disk.sums[PEAK] == peak


def births_of(at: int, files: list[int], sizes: list[int]) -> Births:
    many: IntArray = np.full(len(files), at, np.int64)
    zeros = np.zeros(len(files), np.int32)
    return Births(many, np.array(files, np.int32), zeros, zeros, np.array(sizes, np.int64))


def test_a_file_on_disk_whose_number_goes_to_a_new_one_leaves_the_disk() -> None:
    cache = empty_cache(np.array([10, 20, 30]), 60)
    item, none = np.array([0, 1, 2, 0, 0], np.int32), np.zeros(5, np.int64)
    chunk = Chunk(np.arange(5), item, none, births_of(3, [0], [25]))
    hit = np.zeros(5, np.bool_)
    LruCache(cache).serve(chunk, hit)
    assert hit.tolist() == [False, False, False, False, True]
    assert cache.tally[OUTLIVED] == 1
    # 25 bytes for the new file: the 20 of the oldest one had to go.
    assert cache.disk.place.tolist() == [1, -1, 0]
    assert cache.tally.tolist() == [5, 1, 110, 25, 1]


def test_a_file_larger_than_the_cache_stays_out_of_the_stream() -> None:
    cache = empty_cache(np.array([10, 61]), 60)
    hit = np.zeros(4, np.bool_)
    item = np.array([0, 1, 0, 1], np.int32)
    LruCache(cache).serve(Chunk(np.arange(4), item, np.zeros(4, np.int64), no_births()), hit)
    assert hit.tolist() == [False, False, True, False]


def test_the_caches_share_the_accesses(bench: ModuleType) -> None:
    found = bench.sites(1_000_000)
    assert len(found) == 24
    assert sum(site.n_accesses for site in found) == 1_000_000
    assert len({site.capacity_bytes for site in found}) == 13


def test_the_bench_prints_a_row_per_cache_and_tells_when_nothing_can_be_learned(
    bench: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    few = bench.sites(10_000)
    bench.print_lru(few)
    printed = capsys.readouterr().out
    assert sum(line.startswith("| ") and " TB) |" in line for line in printed.splitlines()) == len(few)
    assert "LRU: 10000 accesses" in printed
    assert "files that outlived the rest of their numbers on disk: 0\n" in printed
    bench.print_steward(few, 1000)
    assert "too few accesses to learn from" in capsys.readouterr().out
