"""Wrong clocks, and plans of the future: nothing that they wrote lasts once the clock is right."""

from __future__ import annotations

import dataclasses

import pytest
from journals import DAY, begin, begin_all, due, finish, item, pinned, states, stop, work_on

from features.common.errors import InputError
from prefetch.actions import Action, ItemState
from prefetch.journal.journal import Journal, Receipt
from prefetch.journal.tables import CLOCK_SLACK_S, PREFILL
from prefetch.push.attempt import PushLimits
from prefetch.push.push import sources_seen

WRONG = 1000 + 400 * DAY


def test_a_plan_of_the_future_is_refused_and_replaces_nothing(journal: Journal) -> None:
    journal.plans.record_plan([item(1)], now_s=1000)
    ahead = int(1000 + CLOCK_SLACK_S)
    with pytest.raises(InputError, match=r"is of 1970-01-01T01:16:41Z, and it is only 1970-01-01T00:16:40Z"):
        journal.plans.record_plan([item(2, as_of_s=ahead + 1)], now_s=1000)
    assert begin_all(journal) == ["1000-prefetch-1"]
    journal.plans.record_plan([item(2, as_of_s=ahead)], now_s=1000)
    assert states(journal) == {"cancelling": 1, "planned": 1}


def test_a_plan_that_a_wrong_clock_made_does_not_replace_those_of_today(journal: Journal) -> None:
    journal.plans.record_plan([item(1), item(2)], now_s=1000)
    journal.plans.record_plan([item(1, as_of_s=WRONG)], now_s=WRONG)
    assert states(journal) == {"cancelled": 2, "planned": 1}
    # The clock is right again.
    assert begin_all(journal) == []
    journal.plans.record_plan([item(3, as_of_s=1500)], now_s=1500)
    assert begin_all(journal, now_s=1500) == ["1500-prefetch-3"]
    stop(journal, now_s=1500)
    journal.plans.record_plan([item(n, as_of_s=1600) for n in (1, 4)], now_s=1600)
    assert begin_all(journal, now_s=1600) == ["1600-prefetch-1", "1600-prefetch-4"]


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_what_a_wrong_clock_replaced_is_pushed_again(journal: Journal, is_cancelled: bool) -> None:
    today = [item(1), item(2)]
    journal.plans.record_plan(today, now_s=1000)
    journal.plans.record_plan([item(1, "evict", as_of_s=WRONG)], now_s=WRONG)
    if is_cancelled:
        journal.plans.cancel("xc", WRONG, now_s=1001)
    assert journal.plans.record_plan(today, now_s=1002) == 0
    assert begin_all(journal, now_s=1003) == ["1000-prefetch-1", "1000-prefetch-2"]
    assert begin_all(journal, "evict", now_s=1003) == []


@pytest.mark.parametrize("kind", ["plan", PREFILL])
def test_a_cancelled_plan_replaces_nothing(journal: Journal, kind: str) -> None:
    journal.plans.record_plan([item(1, "pin", as_of_s=2000, kind=kind)], now_s=2000)
    assert journal.plans.cancel("xc", 2000, now_s=2000) == (1, 0)
    journal.plans.record_plan([item(1, "evict"), item(2)], now_s=2000)
    assert begin_all(journal, "evict", now_s=2000) == ["1000-evict-1"]
    assert begin_all(journal, now_s=2000) == ["1000-prefetch-2"]
    # The newest that is not cancelled is what counts again.
    journal.plans.record_plan([item(1, "pin", as_of_s=500)], now_s=2000)
    assert begin_all(journal, "pin", now_s=2000) == []


def test_what_was_done_of_a_cancelled_plan_still_is_the_newest_word(journal: Journal) -> None:
    journal.plans.record_plan([item(1, "pin", as_of_s=2000), item(2, as_of_s=2000)], now_s=2000)
    begin_all(journal, "pin", now_s=2000)
    finish(journal, "2000-pin-1", Receipt(ItemState.DONE), now_s=2000)
    journal.plans.cancel("xc", 2000, now_s=2000)
    journal.plans.record_plan([item(1, "evict"), item(2, "evict")], now_s=2000)
    assert begin_all(journal, "evict", now_s=2000) == ["1000-evict-2"]


def test_a_cancelled_moment_that_is_planned_anew_is_carried_out(journal: Journal) -> None:
    journal.plans.record_plan([item(1), item(2)], now_s=1000)
    journal.plans.cancel("xc", now_s=1000)
    assert journal.plans.record_plan([item(1), item(2)], now_s=1000) == 0 and begin_all(journal) == []
    journal.plans.record_plan([item(1), item(3)], now_s=1000)
    assert begin_all(journal) == ["1000-prefetch-1", "1000-prefetch-3"]


def test_what_expired_by_a_wrong_clock_comes_back(journal: Journal) -> None:
    journal.plans.record_plan([item(1), item(2)], now_s=1000)
    assert journal.plans.expire("xc", now_s=WRONG) == 2
    assert begin_all(journal) == []
    assert journal.plans.expire("xc", now_s=1001) == 0
    assert begin_all(journal) == ["1000-prefetch-1", "1000-prefetch-2"]


def test_unless_it_was_replaced_or_cancelled_meanwhile(journal: Journal) -> None:
    journal.plans.record_plan([item(1)], now_s=1000)
    journal.plans.record_plan(
        [item(2, as_of_s=1100, kind=PREFILL), item(3, as_of_s=1100, kind=PREFILL)], now_s=1100
    )
    assert journal.plans.expire("xc", now_s=WRONG) == 3
    journal.plans.record_plan([item(2, "pin", as_of_s=1200)], now_s=1200)
    journal.plans.expire("xc", now_s=1200)
    assert begin_all(journal, now_s=1200) == ["1100-prefetch-3"]
    stop(journal, now_s=1200)
    journal.plans.expire("xc", now_s=WRONG)
    journal.plans.cancel("xc", 1100, now_s=1200)
    assert journal.plans.expire("xc", now_s=1200) == 0 and begin_all(journal, now_s=1200) == []


def test_nothing_waits_for_the_times_that_a_wrong_clock_wrote(journal: Journal) -> None:
    far = [dataclasses.replace(item(n), expires_at_s=2 * WRONG) for n in (1, 2)]
    journal.plans.record_plan(far, now_s=1000)
    begin(journal, 1, now_s=WRONG)
    failed = Receipt(ItemState.PLANNED, error="away", fault="source")
    finish(journal, "1000-prefetch-1", failed, now_s=WRONG)
    begin(journal, 1, now_s=WRONG, retry_after_s=9)
    # A try is tried again, and its origin is not judged by it.
    assert work_on(journal).next_retry_s(Action.PREFETCH, now_s=1002, retry_after_s=9) == 0
    assert sources_seen(journal, "xc", PushLimits(), 1002).states(1002) == []
    stop(journal, now_s=1002)
    assert len(begin(journal, now_s=1003, retry_after_s=9)) == 2


def test_a_pin_renewed_in_the_future_is_due(journal: Journal) -> None:
    pinned(journal, 1, WRONG)
    assert due(journal, 1500) == ["1000-pin-1"]


def test_a_word_of_the_future_does_not_take_a_pin_back(journal: Journal) -> None:
    pinned(journal, 1, 1001)
    journal.plans.record_plan([item(1, "unpin", as_of_s=WRONG)], now_s=WRONG)
    begin_all(journal, "unpin", now_s=WRONG)
    finish(journal, f"{WRONG}-unpin-1", Receipt(ItemState.DONE), now_s=WRONG)
    assert due(journal, 1500) == ["1000-pin-1"]
