"""Policies against slow twins, and against libCacheSim; on 10 M reads: bench/replay_speed.py --exact."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from cases import cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from libcachesim_oracle import JUDGED, judge, write_lcs
from policy_oracle import ORACLES, Cache
from random_traces import traces
from ranges_oracle import held, moved

from features.common.arrays import Float32Array, Ids
from features.common.errors import ConfigError
from features.common.jit import bare
from replay.kernels.trees import FEW, LANES, Words, aligned, rule_out, rule_out_few
from replay.policies import POLICIES, run_policy
from replay.policies.policy import Policy
from replay.ranges import SLOTS, SPACE, key_of, keys_of, layout_of, scores, shares
from replay.trace import Trace


def check(name: str, trace: Trace, capacity: int, oracle: Cache, policy: Policy | None = None) -> None:
    hits = oracle.serve()
    result = run_policy(name, trace, capacity, policy=policy)
    assert result.hits == sum(hits)
    assert result.hit_bytes == sum(
        trace.size_bytes[f] for f, hit in zip(trace.item, hits, strict=True) if hit
    )
    assert result.peak_usage_bytes == oracle.peak <= capacity


@pytest.mark.parametrize("name", ORACLES)
@cases(40, thorough=2000)
@given(traces(), st.integers(0, 120))
def test_a_policy_equals_its_slow_twin(name: str, trace: Trace, capacity: int) -> None:
    check(name, trace, capacity, ORACLES[name](trace, capacity))


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("seed", range(4))
def test_a_policy_equals_its_slow_twin_over_many_evictions(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    item = (60 * rng.random(1500) ** 2).astype(np.int32)
    size = rng.integers(1, (2, 8, 30, 100)[seed], 60)
    trace = Trace(np.arange(1500), item, size)
    capacity = int(size.sum() * (0.3, 0.5, 0.6, 0.4)[seed])
    check(name, trace, capacity, ORACLES[name](trace, capacity))


def test_an_unknown_policy_is_named_with_the_known() -> None:
    trace = Trace(np.array([0]), np.array([0]), np.array([1]))
    with pytest.raises(ConfigError, match=r"fifo9.*lru.*clairvoyant-bypass"):
        run_policy("fifo9", trace, 10)


FRACTIONS = (0.01, 0.20)
SAME = 1e-9


@pytest.fixture(scope="module")
def cloudphysics(shared: Callable[[str], Path]) -> Trace:
    rows = pd.read_csv(shared("data/cloudphysics_io.csv.gz"))
    code, blocks = pd.factorize(rows["lbn"])
    size = np.zeros(len(blocks), np.int64)
    size[code[::-1]] = rows["size"].to_numpy()[::-1]
    trace = Trace(np.arange(len(rows)), code.astype(np.int32), size)
    assert (trace.n_accesses, trace.footprint_bytes) == (113_872, 2_029_769_728)
    return trace


@pytest.fixture(scope="module")
def cloudphysics_lcs(cloudphysics: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lcs") / "cloudphysics.lcs"
    write_lcs(cloudphysics, path)
    return path


def ratios(result: Any) -> Any:
    return pytest.approx((result.object_miss_ratio, result.byte_miss_ratio), abs=SAME, rel=0)


@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("policy", JUDGED)
def test_equal_on_a_real_trace(
    cloudphysics: Trace, cloudphysics_lcs: Path, policy: str, fraction: float
) -> None:
    capacity = int(fraction * cloudphysics.footprint_bytes)
    verdict = judge(policy, cloudphysics_lcs, capacity, hashpower=18)
    assert verdict[:2] == ratios(run_policy(policy, cloudphysics, capacity))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 200), st.floats(0, 1))
def test_equal_on_random_traces(tmp_path: Path, seed: int, m: int, largest: int, fraction: float) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 400))
    size = rng.integers(1, largest + 1, m)
    trace = Trace(np.arange(n), (m * rng.random(n) ** 2).astype(np.int64), size)
    # Its S3-FIFO ends the process if the small queue has no byte.
    capacity = 20 + int(fraction * size.sum())
    write_lcs(trace, tmp_path / "random.lcs")
    for policy in JUDGED:
        verdict, ours = (
            judge(policy, tmp_path / "random.lcs", capacity, hashpower=12),
            run_policy(policy, trace, capacity),
        )
        assert verdict[:2] == ratios(ours), policy
        assert ours.peak_usage_bytes <= capacity, policy


def test_every_policy_has_a_judge() -> None:
    assert set(JUDGED) | set(ORACLES) == set(POLICIES)


ALL = 0xFFFFFFFF


class Splits(NamedTuple):
    plane: Ids
    threshold: Float32Array
    rest: Words


def plain(planes: Float32Array, splits: Splits, part: tuple[int, int]) -> list[int]:
    """For each row, the leaves that no split of `part` rules out."""
    words = [ALL] * LANES
    for row in range(LANES):
        for split in range(*part):
            if not planes[splits.plane[split], row] <= splits.threshold[split]:
                words[row] &= int(splits.rest[split])
    return words


@bare
def by_vectors(words: Words, planes: Float32Array, splits: Splits, part: tuple[int, int]) -> None:
    rule_out(words, planes, splits.plane, splits.threshold, splits.rest, part[0], part[1])


@bare
def by_short_vectors(words: Words, planes: Float32Array, splits: Splits, part: tuple[int, int]) -> None:
    rule_out_few(words, planes, splits.plane, splits.threshold, splits.rest, part[0], part[1])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("kernel", "n_rows"), [(by_vectors, LANES), (by_short_vectors, FEW)])
def test_the_leaves_left_are_those_of_the_plain_twin(
    kernel: Callable[..., None], n_rows: int, seed: int
) -> None:
    """With missing values, infinities and values that equal the threshold; other rows are left alone."""
    draw, n_planes, n_splits = np.random.default_rng(seed), 7, 31
    planes = aligned(n_planes * LANES, np.float32).reshape(-1, LANES)
    planes[:] = draw.choice([np.nan, -np.inf, np.inf, 0.0, 1.0, 1.5, -3.0], planes.shape)
    rest = draw.integers(0, 2**32, (2, n_splits), dtype=np.uint32)
    splits = Splits(
        draw.integers(0, n_planes, n_splits).astype(np.int32),
        draw.choice([0.0, 1.0, 1.5, np.inf], n_splits).astype(np.float32),
        rest[0] | rest[1],
    )
    for part in ((0, n_splits), (3, 9), (5, 5)):
        words = aligned(LANES, np.uint32)
        words[:] = 7
        kernel(words, planes, splits, part)
        assert words[:n_rows].tolist() == plain(planes, splits, part)[:n_rows]
        assert (words[n_rows:] == 7).all()


MOVED_BEYOND_LEAST = 0.10
"""Share of the names; docs/adr/0009-owner-layout.md states it, and what is usual."""

names = st.text("abcdefgh", min_size=1, max_size=3)
sizes = st.dictionaries(names, st.integers(1, 1000), min_size=1, max_size=24)


@given(sizes)
def test_every_server_holds_its_share_to_the_last_unit(servers: dict[str, int]) -> None:
    layout = layout_of(servers)
    uppers = [part.upper for part in layout.ranges]
    assert uppers == sorted(set(uppers))
    assert uppers[-1] == SPACE
    assert held(layout) == {name: n for name, n in shares(servers).items() if n}
    total = sum(servers.values())
    assert all(abs(n - Fraction(servers[name], total) * SPACE) <= 1 for name, n in held(layout).items())
    assert len(layout.ranges) <= SLOTS + len(servers)


@given(sizes, st.randoms(use_true_random=False))
def test_neither_order_nor_unit_matters(servers: dict[str, int], random: object) -> None:
    shuffled = sorted(servers.items(), key=lambda _: random.random())  # type: ignore[attr-defined]
    assert layout_of(dict(shuffled)) == layout_of(servers)
    assert layout_of({name: n * 10**12 for name, n in servers.items()}) == layout_of(servers)
    assert layout_of({name: n / 1024 for name, n in servers.items()}) == layout_of(servers)


@cases(60, thorough=2000)
@given(sizes, st.data())
def test_a_join_a_leave_or_a_resize_moves_little_more_than_it_must(
    before: dict[str, int], data: st.DataObject
) -> None:
    name = data.draw(names | st.sampled_from(sorted(before)))
    after = {other: n for other, n in before.items() if other != name}
    if name not in before or not after or data.draw(st.booleans()):
        after[name] = data.draw(st.integers(1, 1000))
    old, new = shares(before), shares(after)
    least = sum(max(0, n - old.get(other, 0)) for other, n in new.items())
    assert least <= moved(layout_of(before), layout_of(after)) <= least + MOVED_BEYOND_LEAST * SPACE


KEYS = keys_of(f"cms:/P{i}/E/AOD" for i in range(20_000))
WEIGHTS = {"A": 1.0, "B": 2.0, "C": 5.0}


def best_sites(weights: dict[str, float]) -> list[str]:
    best = scores(KEYS, list(weights), list(weights.values())).argmax(axis=1)
    return [list(weights)[i] for i in best.tolist()]


def test_each_is_chosen_by_its_weight() -> None:
    sites = best_sites(WEIGHTS)
    for name, weight in WEIGHTS.items():
        assert abs(sites.count(name) / len(sites) - weight / 8) < 0.012


def test_the_choice_is_what_it_was() -> None:
    # Placements outlive releases: a change of the hash would move everything.
    assert key_of("cms:/A/B/AOD") == 6438093600196897641
    ranking = scores(np.array([1, 2, 3, 4, 5], np.uint64), ["A", "B", "C"], [1.0, 1.0, 1.0])
    assert ranking.argmax(axis=1).tolist() == [2, 2, 1, 0, 2]
