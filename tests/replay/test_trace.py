"""Traces from arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.common.errors import InputError
from replay.trace import Trace


@pytest.mark.parametrize(
    ("time_s", "item", "size", "match"),
    [
        ([], [], [1], "no access"),
        ([1, 0], [0, 0], [1], "access 1 is earlier"),
        ([1], [3], [1], "access 0 reads item 3"),
        ([1], [0], [-1], "item 0 has -1 bytes"),
        ([1, 2], [0], [1], "2 times"),
    ],
)
def test_arrays_that_are_no_trace(time_s: Any, item: list[int], size: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        Trace(np.array(time_s, np.int64), np.array(item, np.int32), np.array(size, np.int64))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_following_equals_a_search(items: list[int]) -> None:
    trace = Trace(np.arange(len(items)), np.array(items), np.ones(6, np.int64))
    for i, found in enumerate(trace.following.tolist()):
        assert found == next((j for j in range(i + 1, len(items)) if items[j] == items[i]), len(items))
