"""Sketches of distinct members: unions are exact, and estimates as accurate as documented."""

from __future__ import annotations

import random
import statistics

import pytest
from sketch_oracle import EMPTY, N_WORDS, Words, estimate, sketch, union

from features.sketch import BITS, ESTIMATES, FULLEST, LEVELS


def random_set(seed: int, n_members: int) -> Words:
    rng = random.Random(seed)
    return sketch(rng.getrandbits(64) for _ in range(n_members))


def test_the_table_of_estimates_is_that_of_the_oracle() -> None:
    for level in range(LEVELS):
        fuller = (2**64 - 1,) * level
        last = FULLEST if level < LEVELS - 1 else BITS - 1
        for n_set in range(last + 1):
            words = (*fuller, 2**n_set - 1, *EMPTY[level + 1 :])
            assert ESTIMATES[level][n_set] == estimate(words)


@pytest.mark.parametrize("n_members", [10, 50, 100, 300, 1000, 5000, 20000])
def test_the_error_is_as_documented(n_members: int) -> None:
    errors = [
        estimate(random_set(seed, n_members)) / n_members - 1
        for seed in range(60 if n_members < 2000 else 25)
    ]
    assert abs(statistics.mean(errors)) < 0.12
    assert statistics.pstdev(errors) < (0.15 if n_members <= 100 else 0.23)


def test_few_members_are_counted() -> None:
    assert estimate(EMPTY) == 0
    assert all(estimate(random_set(seed, 1)) == 1 for seed in range(200))
    assert sum(estimate(random_set(seed, 2)) == 2 for seed in range(500)) > 480


def test_a_union_does_not_depend_on_order_or_repetition() -> None:
    sets = [random_set(seed, 20) for seed in range(8)]
    assert union(sets) == union([*reversed(sets), *sets])
    assert estimate(union(sets)) >= max(map(estimate, sets))


def test_a_full_sketch_gives_the_largest_estimate() -> None:
    assert estimate((2**64 - 1,) * N_WORDS) == ESTIMATES[-1][-1] > 50_000
