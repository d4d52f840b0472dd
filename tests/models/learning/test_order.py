"""How far an order follows its models: all the way, unless a smaller share surely misses less."""

from __future__ import annotations

import numpy as np
import pytest

from models.learning.order import PARTS, SHARES, _surely_best

MISSED = np.full(PARTS, 100.0)


def missed(share: float, saved: list[float]) -> dict[float, np.ndarray]:
    """Missed bytes by part where `share` saves something, and all others miss alike."""
    return {one: MISSED - (np.resize(saved, PARTS) if one == share else 0) for one in SHARES}


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_a_smaller_share_that_misses_less_in_many_parts_is_followed(share: float) -> None:
    assert _surely_best(missed(share, [10.0])) == share
    assert _surely_best(missed(share, [30.0, -5.0])) == share


def test_one_burst_or_a_little_less_decides_nothing() -> None:
    assert _surely_best(missed(0.0, [90.0] + [0.0] * (PARTS - 1))) == 1.0
    assert _surely_best(missed(0.0, [1.0])) == 1.0
    assert _surely_best(missed(0.0, [-10.0])) == 1.0
    assert _surely_best(missed(0.0, [0.0])) == 1.0


def test_of_two_that_surely_miss_less_the_better_is_followed() -> None:
    both = missed(0.0, [10.0]) | {0.5: MISSED - 20}
    assert _surely_best(both) == 0.5
