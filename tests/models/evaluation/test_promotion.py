"""The promotion rule and its bootstrap: on days whose answer is known, and against a slow twin."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.common.units import TOO_FEW_DAYS
from features.results import (
    CHALLENGER_PLAN,
    CHAMPION_PLAN,
    LRU,
    S3FIFO,
    S3FIFO_PLAN,
    STEWARD,
    STEWARD_CHAMPION,
    STEWARD_PLAN,
)
from models.evaluation import metrics
from models.evaluation.metrics import BOUNDED_DAYS, Interval, few_days, mean_interval, ratio_interval
from models.evaluation.promotion import DailyWan, Decision, decide, decide_order, decide_pair

TB = 10**12
RIVALS = {"lru": LRU, "s3fifo": S3FIFO_PLAN, "champion": CHAMPION_PLAN}


def replay(n_days: int = 28, fraction: float = 0.1, **savings: float) -> DailyWan:
    """Days of about 10 TB; each rival needs `savings` TB a day more than the challenger, give or take 1."""
    rng = np.random.default_rng(4)
    days = [f"2026-03-{i + 1:02}" for i in range(n_days)]
    mine = {day: int((10 + rng.normal()) * TB) for day in days}
    wan = {CHALLENGER_PLAN: mine}
    for name, saving in savings.items():
        wan[RIVALS[name]] = {day: int(mine[day] + (saving + rng.normal()) * TB) for day in days}
    return DailyWan(fraction, wan)


def test_a_clear_winner_is_promoted_with_its_figures() -> None:
    decision = decide([replay(lru=3, s3fifo=1, champion=1)], has_champion=True)
    assert decision.promote
    assert [comparison.against for comparison in decision.comparisons] == [LRU, S3FIFO_PLAN, CHAMPION_PLAN]
    first = decision.comparisons[0]
    assert first.saving_bytes == pytest.approx(3 * TB, rel=0.2)
    assert 0 < first.lower_bytes < first.saving_bytes < first.upper_bytes
    assert first.saving_share == pytest.approx(3 / 13, rel=0.2)
    assert "beats lru at 10% capacity: saves" in decision.reasons[0]
    assert decide([replay(lru=3, s3fifo=1, champion=1)], has_champion=True) == decision


@pytest.mark.parametrize("rival", RIVALS)
def test_one_rival_that_is_not_significantly_beaten_is_enough_to_refuse(rival: str) -> None:
    savings: dict[str, Any] = dict.fromkeys(RIVALS, 3.0) | {rival: 0.0}
    decision = decide([replay(**savings)], has_champion=True)
    assert not decision.promote
    assert [lost.against for lost in decision.comparisons if not lost.won] == [RIVALS[rival]]
    assert any(reason.startswith("is not significantly better than") for reason in decision.reasons)


def test_a_saving_on_average_that_one_lucky_week_made_is_refused() -> None:
    days = [f"2026-03-{i + 1:02}" for i in range(28)]
    mine = dict.fromkeys(days, 10 * TB)
    lucky = {day: (18 if i < 7 else 9) * TB for i, day in enumerate(days)}
    decision = decide(
        [DailyWan(0.1, {CHALLENGER_PLAN: mine, LRU: lucky, S3FIFO_PLAN: lucky})], has_champion=False
    )
    assert decision.comparisons[0].saving_bytes > 1 * TB
    assert not decision.promote


def test_every_capacity_must_be_won() -> None:
    walks = [replay(fraction=0.05, lru=3, s3fifo=3), replay(fraction=0.1, lru=3, s3fifo=-3)]
    assert not decide(walks, has_champion=False).promote
    assert decide(walks[:1], has_champion=False).promote


def in_line(fraction: float = 0.1, n_days: int = 28, **savings: float) -> DailyWan:
    """The same days of an order of eviction, against rivals in line."""
    plans = replay(n_days, fraction, **savings).wan_bytes
    names = {CHALLENGER_PLAN: STEWARD, LRU: LRU, S3FIFO_PLAN: S3FIFO}
    return DailyWan(fraction, {names[name]: days for name, days in plans.items()})


def test_an_order_may_evict_if_it_beats_lru_and_s3fifo_at_every_capacity() -> None:
    wins = [in_line(0.05, lru=3, s3fifo=1), in_line(0.1, lru=3, s3fifo=1)]
    decision = decide_order(wins)
    assert decision.promote
    assert [(comparison.policy, comparison.against) for comparison in decision.comparisons] == [
        (STEWARD, LRU),
        (STEWARD, S3FIFO),
    ] * 2
    for loses, rival in ((in_line(0.1, lru=3, s3fifo=0), S3FIFO), (in_line(0.1, lru=0, s3fifo=3), LRU)):
        refused = decide_order([wins[0], loses])
        assert not refused.promote
        assert [lost.against for lost in refused.comparisons if not lost.won] == [rival]


def test_a_successor_is_refused_only_where_it_surely_misses_more() -> None:
    for savings, is_refused in (((3, 1), False), ((0, 0), False), ((3, -3), True), ((-3, 3), True)):
        at = [in_line(0.05, lru=3, s3fifo=3), in_line(0.1, lru=savings[0], s3fifo=savings[1])]
        decision = decide_order(at, is_successor=True)
        assert decision.promote is not is_refused, savings
        assert decision.reasons[0].startswith("an order learned alike serves")
    few = decide_order([in_line(n_days=20, lru=9, s3fifo=9)], is_successor=True)
    assert not few.promote, "too few days decide nothing about a successor either"


def test_a_successor_without_a_capacity_of_the_order_that_serves_is_judged_as_a_first_one() -> None:
    for savings, may_evict in ((3, True), (0, False)):
        at = [in_line(0.1, lru=savings, s3fifo=savings)]
        decision = decide_order(at, is_successor=True, served_at=(0.05, 0.1))
        assert decision.promote is may_evict
        assert decision.reasons[0].startswith("the order that serves won at 5% capacity too")
        assert decide_order(at, is_successor=True, served_at=(0.1,)).promote


def test_plans_and_order_are_judged_apart() -> None:
    plans, order = replay(lru=3, s3fifo=1), in_line(lru=0, s3fifo=0)
    days = {**plans.wan_bytes, STEWARD: plans.wan_bytes[LRU], S3FIFO: order.wan_bytes[S3FIFO]}
    assert decide([DailyWan(0.1, days)], has_champion=False).promote
    assert not decide_order([DailyWan(0.1, days)]).promote
    order, poor = in_line(lru=3, s3fifo=3), replay(lru=0, s3fifo=0)
    days = {
        **order.wan_bytes,
        CHALLENGER_PLAN: order.wan_bytes[LRU],
        S3FIFO_PLAN: poor.wan_bytes[S3FIFO_PLAN],
    }
    assert not decide([DailyWan(0.1, days)], has_champion=False).promote
    assert decide_order([DailyWan(0.1, days)]).promote


FEW, MISSING = "20 test days at 10% capacity are too few; 21 are needed", "was not replayed"
NOTHING_FETCHED = DailyWan(0.1, {name: {"2026-03-01": 0} for name in (STEWARD, LRU, S3FIFO)})
WINS = replay(lru=9, s3fifo=9).wan_bytes
UNEQUAL = DailyWan(0.1, WINS | {LRU: replay(27, lru=9).wan_bytes[LRU]})


@pytest.mark.parametrize(
    ("decided", "words"),
    [
        (decide([replay(20, lru=9, s3fifo=9)], has_champion=False), FEW),
        (decide([replay(lru=9)], has_champion=False), f"lru+s3fifo_counts {MISSING}"),
        (decide([replay(lru=9, s3fifo=9)], has_champion=True), f"lru+champion {MISSING}"),
        (decide([], has_champion=False), "no rows"),
        (decide([UNEQUAL], has_champion=False), "different days"),
        *(
            (decide_order(bad, is_successor=is_successor), words)
            for is_successor in (False, True)
            for bad, words in (
                ([in_line(n_days=20, lru=9, s3fifo=9)], FEW),
                ([replay(lru=9, s3fifo=9)], f"steward {MISSING} at 10% capacity"),
                ([NOTHING_FETCHED], "nothing was fetched"),
                ([], "no rows"),
            )
        ),
    ],
)
def test_what_cannot_decide_refuses_with_the_reason(decided: Decision, words: str) -> None:
    assert (decided.promote, decided.comparisons) == (False, ())
    assert any(words in reason for reason in decided.reasons)


def slow_means(days: list[float], block: int, draws: int) -> list[float]:
    rng, means = random.Random(0), []
    for _ in range(draws):
        drawn: list[float] = []
        while len(drawn) < len(days):
            start = rng.randrange(len(days))
            drawn += [days[(start + i) % len(days)] for i in range(block)]
        means.append(sum(drawn[: len(days)]) / len(days))
    return sorted(means)


def test_bounds_are_those_of_a_slow_bootstrap() -> None:
    days = [float(x) for x in np.repeat(np.random.default_rng(1).normal(5, 2, 10), 4)]
    for block in (1, 7):
        interval = mean_interval(days, block=block)
        means = slow_means(days, block, 4000)
        assert interval.lower == pytest.approx(means[200], abs=0.06)
        assert interval.upper == pytest.approx(means[3800], abs=0.06)
    by_week, by_day = (mean_interval(days, block=block).lower for block in (7, 1))
    assert by_week is not None and by_day is not None and by_week < by_day


@pytest.mark.parametrize(("n_days", "is_bounded"), [(1, False), (2, False), (13, False), (14, True)])
def test_fewer_than_two_weeks_have_no_bounds_and_win_nothing(n_days: int, is_bounded: bool) -> None:
    read = np.arange(1.0, n_days + 1)
    mean, ratio = mean_interval([5.0] * n_days), ratio_interval(0.4 * read, read)
    assert ratio is not None and (mean.mean, ratio.mean) == pytest.approx((5.0, 0.4))
    for interval in (mean, ratio):
        bounds = [interval.mean if is_bounded else None] * 2  # no day differs
        assert [interval.lower, interval.upper] == pytest.approx(bounds)
    assert (few_days(n_days) is None) == is_bounded
    decided = decide([replay(n_days, lru=9, s3fifo=9)], has_champion=False, min_days=1)
    assert decided.promote == is_bounded
    assert all((TOO_FEW_DAYS in reason) != is_bounded for reason in decided.reasons)


@given(st.lists(st.floats(-1e12, 1e12), min_size=BOUNDED_DAYS, max_size=40), st.integers(1, 50))
def test_bounds_hold_the_mean_of_what_was_drawn(days: list[float], block: int) -> None:
    interval = mean_interval(days, block=block)
    slack = 1e-6 * max(abs(day) for day in days) + 1e-9
    assert interval.lower is not None and interval.upper is not None
    assert min(days) - slack <= interval.lower <= interval.upper <= max(days) + slack
    assert interval.mean == pytest.approx(np.mean(days))
    to_one = ratio_interval(days, np.ones(len(days)), block=block)
    assert to_one is not None and to_one.lower == pytest.approx(interval.lower, abs=slack)


def test_a_bootstrap_drawn_in_parts_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace of centuries would take gigabytes at once."""
    days = np.random.default_rng(1).normal(5, 2, 40)
    whole = [mean_interval(days, block=7), ratio_interval(days, days[::-1], block=7)]
    monkeypatch.setattr(metrics, "DRAWN_AT_ONCE", 1000)
    parts = [mean_interval(days, block=7), ratio_interval(days, days[::-1], block=7)]
    assert parts == whole


def beside(
    *, lru: float = 3, counts: float = 3, steward_tb: float = 0.1, hours: float = 50, champion: float = 50
) -> DailyWan:
    """Days of a pair that saves so many TB a day, and core-hours against steward and champion."""
    draw = np.random.default_rng(7)
    days = [f"2026-03-{i + 1:02}" for i in range(28)]
    saves = {LRU: lru, S3FIFO_PLAN: counts, STEWARD: steward_tb, STEWARD_CHAMPION: 0.1}
    wan = {STEWARD_PLAN: {day: int((10 + draw.normal()) * TB) for day in days}}
    for name, saving in saves.items():
        mine = wan[STEWARD_PLAN]
        wan[name] = {day: int(mine[day] + (saving + 0.1 * draw.normal()) * TB) for day in days}
    waits = {STEWARD_PLAN: 0.0, STEWARD: hours, STEWARD_CHAMPION: champion}
    waited = {name: {day: 900 + more + 5 * draw.normal() for day in days} for name, more in waits.items()}
    return DailyWan(0.1, wan, waited)


def test_plans_beside_a_steward_win_by_what_jobs_do_not_wait() -> None:
    decision = decide_pair([beside()], has_champion=True)
    assert decision.promote
    assert {row.policy for row in decision.comparisons} == {STEWARD_PLAN}
    assert [row.against for row in decision.comparisons] == [LRU, S3FIFO_PLAN, STEWARD, STEWARD_CHAMPION]
    assert [row.saving_hours is None for row in decision.comparisons] == [True, True, False, False]
    by_hours = decision.comparisons[2]
    assert by_hours.saving_hours == pytest.approx(50, rel=0.1)
    assert by_hours.lower_hours is not None and 45 < by_hours.lower_hours < by_hours.saving_hours
    assert "core-hours per day" in decision.reasons[2]
    assert decide_pair([beside(champion=-50)], has_champion=False).promote


@pytest.mark.parametrize(
    ("loses", "against"),
    [
        ({"lru": 0.0}, LRU),
        ({"counts": -1.0}, S3FIFO_PLAN),
        ({"steward_tb": -0.5}, STEWARD),
        ({"hours": 0.0}, STEWARD),
        ({"champion": -20.0}, STEWARD_CHAMPION),
    ],
)
def test_a_pair_that_loses_one_comparison_is_refused(loses: dict[str, float], against: str) -> None:
    decision = decide_pair([beside(), beside(**loses)], has_champion=True)
    assert not decision.promote
    assert [comparison.against for comparison in decision.comparisons if not comparison.won] == [against]


def test_an_evaluation_that_knows_no_hours_decides_nothing_about_a_pair() -> None:
    whole = beside()
    short = {name: dict(list(days.items())[1:]) for name, days in whole.core_hours.items()}
    for waiting_hours in ({}, short):
        decision = decide_pair([DailyWan(0.1, whole.wan_bytes, waiting_hours)], has_champion=False)
        assert (decision.promote, decision.comparisons) == (False, ())
        assert "core-hours of steward+plan at 10% capacity are not known" in decision.reasons[0]


def test_a_gap_on_one_day_of_many_is_known_without_bounds() -> None:
    most = np.zeros(40)
    most[3] = 10.0
    assert ratio_interval(most / 2, most) == Interval(0.5, None, None)
    assert ratio_interval(most, np.zeros(40)) is None
