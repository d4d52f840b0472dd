"""Pins in the journal: which stand, and which are due."""

from __future__ import annotations

import pytest
from journals import DAY, begin_all, due, finish, item, pinned, work_on

from prefetch.actions import ItemState
from prefetch.journal.journal import Journal, Receipt


def test_pins_are_due_after_touch_every_until_they_expire(journal: Journal) -> None:
    pinned(journal, 2, 1500)
    pinned(journal, 1, 1400)
    assert due(journal, 1499) == []
    assert due(journal, 1500) == ["1000-pin-1"]
    assert due(journal, 1600) == ["1000-pin-1", "1000-pin-2"]
    work_on(journal).renewed({"1000-pin-1": 1600})
    assert due(journal, 1600) == ["1000-pin-2"]
    assert due(journal, 1000 + DAY) == []


def test_of_a_file_pinned_again_only_the_latest_pin_is_due(journal: Journal) -> None:
    pinned(journal, 1, 1001)
    pinned(journal, 1, 2001, as_of_s=2000)
    assert due(journal, 5000) == ["2000-pin-1"]


@pytest.mark.parametrize("action", ["unpin", "evict"])
def test_a_pin_taken_back_is_not_due_until_pinned_again(journal: Journal, action: str) -> None:
    pinned(journal, 1, 1001)
    journal.plans.record_plan([item(1, action, as_of_s=2000)], now_s=2000)
    assert due(journal, 5000) == ["1000-pin-1"]
    begin_all(journal, action, now_s=2001)
    finish(journal, f"2000-{action}-1", Receipt(ItemState.DONE), now_s=2001)
    assert due(journal, 5000) == []
    pinned(journal, 1, 3001, as_of_s=3000)
    assert due(journal, 5000) == ["3000-pin-1"]


def test_a_lost_pin_is_failed(journal: Journal) -> None:
    pinned(journal, 1, 1001)
    work_on(journal).lose_pin("1000-pin-1", "gone", now_s=2000)
    assert due(journal, 5000) == []
    assert journal.reports.counts()["failed"] == 1
