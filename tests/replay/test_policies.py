"""Policies against slow twins on random traces; names. What libCacheSim has too: test_exact.py."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from policy_oracle import ORACLES, Cache, ScoreTail
from random_traces import traces

from features.common.errors import ConfigError, InputError
from replay.policies import run_policy, score_policies
from replay.policies.policy import Policy
from replay.policies.scores import least_score
from replay.trace import Trace


@dataclasses.dataclass(frozen=True)
class TableScores:
    """Scores written down: a row per boundary."""

    boundaries: np.ndarray
    table: np.ndarray

    def at(self, k: int, /) -> Any:
        return self.table[k]


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


@cases(60, thorough=2000)
@given(traces(), st.integers(0, 120), st.data())
def test_score_policies_equal_their_slow_twin(trace: Trace, capacity: int, data: st.DataObject) -> None:
    times = st.integers(-1, trace.n_accesses)
    boundaries = sorted(data.draw(st.lists(times, max_size=4, unique=True)))
    row = st.lists(st.integers(-2, 2), min_size=trace.n_items, max_size=trace.n_items)
    table = [data.draw(row) for _ in boundaries]
    scores = TableScores(np.array(boundaries, np.int64), np.array(table, np.float64))
    share = data.draw(st.sampled_from([0.1, 0.25, 0.5, 1.0]))
    policy = partial(least_score, scores, share)
    check("score-tail", trace, capacity, ScoreTail(trace, capacity, scores, share), policy)


@pytest.mark.parametrize(
    ("boundaries", "table", "match"),
    [
        ([0, 0], [[1.0], [1.0]], "ascend"),
        ([0], [[1.0, 2.0]], "boundary 0 has scores of shape"),
        ([0], [[np.nan]], "no score for file 0"),
    ],
)
def test_scores_that_do_not_fit_are_named(boundaries: Any, table: Any, match: str) -> None:
    trace = Trace(np.array([0]), np.array([0]), np.array([1]))
    policies = score_policies(TableScores(np.array(boundaries), np.array(table)))
    with pytest.raises(InputError, match=match):
        run_policy("score", trace, 10, policy=policies["score"])


def test_the_name_of_the_result_is_the_canonical_one() -> None:
    trace = Trace(np.array([0]), np.array([0]), np.array([1]))
    assert run_policy("S3_FIFO", trace, 10).policy == "s3fifo"


def test_an_unknown_policy_is_named_with_the_known() -> None:
    trace = Trace(np.array([0]), np.array([0]), np.array([1]))
    with pytest.raises(ConfigError, match=r"fifo9.*lru.*score-tail"):
        run_policy("fifo9", trace, 10)
    with pytest.raises(ConfigError, match="score needs scores"):
        run_policy("score", trace, 10)
