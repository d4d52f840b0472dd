"""What is typed, read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cachecast_main import cachecast

from features.common.errors import InputError
from features.common.times import DAY_S, as_of_label, day_label
from jobs.cli.options import AskedReads
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
    ahead = as_of_label(now_s + HOUR_S)
    assert moments(ahead, None, 2 * HOUR_S) == [now_s + HOUR_S]
    with pytest.raises(InputError, match=f"{ahead} has not come"):
        moments(ahead, None, HOUR_S // 2)


@pytest.mark.parametrize("words", [("train",), ("features",), ("predict",), ("cycle",), ("arrivals",)])
def test_nothing_is_computed_for_a_time_that_has_not_come(tmp_path: Path, words: tuple[str, ...]) -> None:
    """It would stay the newest until then: a model that never is too old, a state that no cycle follows."""
    done = cachecast(*words, "--as-of", "2098-01-01T00:00:00Z", "--tables", tmp_path / "tables")
    assert done.returncode == 1
    assert "error: 2098-01-01T00:00:00Z has not come" in done.stderr
    assert not (tmp_path / "tables").exists()


def test_a_share_that_is_named_twice_is_one() -> None:
    assert shares("0.1,0.05,0.10,0.1000000000000001") == [0.1, 0.05]


def test_watermarks_may_be_equal_and_do_not_fall() -> None:
    assert watermarks("0.95,0.95") == (0.95, 0.95)
    with pytest.raises(InputError, match="not a low and a high watermark"):
        watermarks("0.95,0.9")


def test_what_describes_a_trace_needs_one(tmp_path: Path) -> None:
    asked = AskedReads(time_zone="Europe/Berlin")
    with pytest.raises(InputError, match="give --trace"):
        asked.file(None, None)
    file = asked.file(tmp_path, None)
    assert file is not None
    assert file.time_zone == "Europe/Berlin"
    assert AskedReads(site="PIC").file(None, None) is None
