"""Sketches of distinct members: unions are exact, estimates as close as they say."""

from __future__ import annotations

import functools
import random
import statistics

import pytest

from features.sketch import LEVELS, estimate, words_of

Words = tuple[int, ...]


def union(sets: list[Words]) -> Words:
    return functools.reduce(lambda a, b: tuple(x | y for x, y in zip(a, b, strict=True)), sets, (0,) * LEVELS)


def sketch(seed: int, n_members: int) -> Words:
    rng = random.Random(seed)
    return union([words_of(rng.getrandbits(64)) for _ in range(n_members)])


@pytest.mark.parametrize("n_members", [10, 50, 100, 300, 1000, 5000, 20000])
def test_the_error_is_what_is_said(n_members: int) -> None:
    errors = [
        estimate(sketch(seed, n_members)) / n_members - 1 for seed in range(60 if n_members < 2000 else 25)
    ]
    assert abs(statistics.mean(errors)) < 0.12
    assert statistics.pstdev(errors) < (0.15 if n_members <= 100 else 0.23)


def test_few_members_are_counted() -> None:
    assert estimate((0,) * LEVELS) == 0
    assert all(estimate(sketch(seed, 1)) == 1 for seed in range(200))
    assert sum(estimate(sketch(seed, 2)) == 2 for seed in range(500)) > 480


def test_a_union_does_not_depend_on_order_or_repetition() -> None:
    sets = [sketch(seed, 20) for seed in range(8)]
    assert union(sets) == union([*reversed(sets), *sets])
    assert estimate(union(sets)) >= max(map(estimate, sets))


def test_a_full_sketch_says_its_most() -> None:
    assert estimate((2**64 - 1,) * LEVELS) > 50_000
