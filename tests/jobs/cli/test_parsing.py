"""What is typed, read."""

from __future__ import annotations

import time

import pytest

from features.common.errors import InputError
from features.common.times import DAY_S, day_label
from jobs.cli.parsing import moments, shares, watermarks

HOUR_S = 3600


def test_a_day_has_the_cycles_that_have_begun() -> None:
    first = 1_772_323_200  # 2026-03-01
    assert moments(None, "2026-03-01", 6 * HOUR_S) == [first + n * 6 * HOUR_S for n in range(4)]
    assert moments(None, "2026-03-01", 2 * DAY_S) == [first]
    assert moments("2026-03-01T04:00:00Z", None, HOUR_S) == [first + 4 * HOUR_S]
    now_s = int(time.time())
    today = moments(None, day_label(now_s), 60)
    assert today[0] <= today[-1] <= time.time()
    assert len(today) >= (now_s - today[0]) // 60
    with pytest.raises(InputError, match="has not begun"):
        moments(None, day_label(now_s + DAY_S), HOUR_S)


def test_a_share_that_is_named_twice_is_one() -> None:
    assert shares("0.1,0.05,0.10,0.1000000000000001") == [0.1, 0.05]


def test_watermarks_may_be_equal_and_do_not_fall() -> None:
    assert watermarks("0.95,0.95") == (0.95, 0.95)
    with pytest.raises(InputError, match="not a low and a high watermark"):
        watermarks("0.95,0.9")
