from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from features.accesses import UNKNOWN, catalogue_first, most_stated


def expected(stated: list[int]) -> int:
    told = Counter(size for size in stated if size >= 0)
    positive = {size: n for size, n in told.items() if size} or told
    return max(positive, key=lambda size: (positive[size], size)) if told else UNKNOWN


@pytest.mark.parametrize("seed", range(5))
def test_a_file_has_the_size_that_most_records_state_else_the_largest(seed: int) -> None:
    rng = random.Random(seed)
    rows = [(rng.randrange(30), rng.choice((-1, 0, 0, 7, 8, 2**50))) for _ in range(120)]
    file, stated = (np.array(column) for column in zip(*rows, strict=True))
    wanted = [expected([size for at, size in rows if at == one]) for one in range(31)]
    assert most_stated(file.astype(np.int32), stated, 31).tolist() == wanted
    order = rng.sample(range(120), 120)
    assert most_stated(file[order].astype(np.int32), stated[order], 31).tolist() == wanted


def test_the_catalogue_counts_before_records_unless_it_says_0() -> None:
    listed, stated = np.array([5, 0, 0, -1, -1]), np.array([6, 6, -1, 6, -1])
    assert catalogue_first(listed, stated).tolist() == [5, 6, 0, 6, -1]
