"""Two caches of a federation: what the steward of one saves, apart from how they differ anyway."""

import datetime as dt
from pathlib import Path

import numpy as np
import pytest
from access_rows import accesses
from typer.testing import CliRunner

from features.common.errors import InputError
from features.common.times import DAY_S, parse_day
from features.schema import ACCESSES
from jobs.cli.main import app
from jobs.ground.store.tables import Tables
from jobs.studies.efficiency.cache_pair import Pair, compared

BEGAN_S = parse_day("2026-03-20")
Ratios = dict[int, tuple[float | None, float | None]]


def ratios(saved: float, *, seed: int = 1, days: int = 28, noise: float = 0.02) -> Ratios:
    """Both caches move together; `a` is 5 points better anyway, and by `saved` more with its steward."""
    rng = np.random.default_rng(seed)
    by_day: Ratios = {}
    for at_s in range(BEGAN_S - days * DAY_S, BEGAN_S + days * DAY_S, DAY_S):
        both = 0.5 + 0.1 * rng.standard_normal()
        more = saved if at_s >= BEGAN_S else 0.0
        by_day[at_s] = (both + 0.05 + more + noise * rng.standard_normal(), both)
    return by_day


def pair(by_day: Ratios, settled_days: int = 0) -> Pair:
    return compared(by_day, steward="a", other="b", began_s=BEGAN_S, settled_s=settled_days * DAY_S)


def test_a_planted_saving_is_within_its_interval_about_as_often_as_it_says() -> None:
    inside = 0
    for seed in range(200):
        comparison = pair(ratios(0.03, seed=seed))
        assert comparison.saved_lower_share is not None and comparison.saved_upper_share is not None
        inside += comparison.saved_lower_share < 0.03 < comparison.saved_upper_share
    assert 180 <= inside <= 199
    assert comparison.before == pytest.approx(0.05, abs=0.02)
    assert comparison.days_needed is not None and 3 <= comparison.days_needed <= 28


def test_days_that_say_too_little_have_no_interval_and_no_promise() -> None:
    few = pair(ratios(0.03, days=6))
    assert (few.saved_lower_share, few.days_needed) == (None, None)
    assert pair(ratios(0.03, days=28, noise=0.2)).days_needed is None


def test_days_after_the_beginning_do_not_count_until_it_has_settled() -> None:
    by_day = ratios(0.0, noise=0.0)
    by_day |= {BEGAN_S + k * DAY_S: (0.0, 1.0) for k in range(3)}
    assert pair(by_day, settled_days=3).saved_share == pytest.approx(0)
    assert pair(by_day).saved_share < -0.05
    by_day[BEGAN_S - DAY_S] = (None, 0.5)
    assert (pair(by_day).left_out, pair(by_day).days_before) == (1, 27)


def test_nothing_on_one_side_is_told() -> None:
    with pytest.raises(InputError, match="on no day after"):
        pair({at_s: ratio for at_s, ratio in ratios(0.0).items() if at_s < BEGAN_S})
    with pytest.raises(InputError, match="on no day before"):
        pair({at_s: ratio for at_s, ratio in ratios(0.0).items() if at_s >= BEGAN_S})


def recorded(root: Path) -> None:
    """Twenty days: cache `a` hits 60 % of its bytes, and 80 % from the tenth day on; `b` half of them."""
    rows = [
        {"cache": cache, "accessed_at": at, "bytes_hit": hit, "bytes_missed": 100 - hit}
        for day, at in enumerate(dt.datetime(2026, 3, 10, tzinfo=dt.UTC) + dt.timedelta(n) for n in range(20))
        for cache, hit in (("a", 80 if day >= 10 else 60), ("b", 50))
    ]
    Tables(str(root)).replace_arrow(ACCESSES, accesses(rows, source="xcache_gstream"))


def test_the_command_reads_the_caches_own_records(tmp_path: Path) -> None:
    recorded(tmp_path)
    days = ["--from", "2026-03-10", "--to", "2026-03-29", "--began", "2026-03-20", "--tables", str(tmp_path)]
    done = CliRunner().invoke(app, ["compare-caches", "a", "b", *days])
    assert done.exit_code == 0, done.output
    assert "saved of the bytes read: 20.0 %" in done.output
    assert "10.0 % on 10 days" in done.output and "30.0 % on 7 days" in done.output
    for wrong, words in ((["a", "c"], "'c' has no recorded reads"), (["a", "a"], "with itself")):
        done = CliRunner().invoke(app, ["compare-caches", *wrong, *days])
        assert done.exit_code == 1 and words in str(done.exception)
