"""Pins in the journal: which stand, which are due, and who renews them."""

from __future__ import annotations

import pytest
from journals import DAY, claim_all, due, finish, item, pinned, states

from prefetch.actions import ItemState
from prefetch.journal.journal import LEASE_S, Journal, Receipt


@pytest.fixture
def journal(any_journal: Journal) -> Journal:
    return any_journal


def test_a_pin_is_renewed_by_one_run_at_a_time(journal: Journal) -> None:
    pinned(journal, 1, 1400)
    pinned(journal, 2, 1500)
    standing = journal.pins("xc", now_s=1600)

    def taken(owner: str) -> list[int]:
        got = journal.claim_pins(standing, owner=owner, now_s=1600, used_until_s=1450)
        return [pin.rank for pin in got]

    assert (taken("one|1|5|x"), taken("two|1|5|x")) == ([1], [])
    assert states(journal) == {"done": 2}
    assert journal.recover("xc", now_s=1601 + LEASE_S) == 1
    assert taken("two|1|5|x") == [1]
    journal.renewed({"1000-pin-1": 1600})
    assert taken("one|1|5|x") == []
    assert journal.recover("xc", now_s=9999) == 0


def test_pins_are_due_after_touch_every_until_they_expire(journal: Journal) -> None:
    pinned(journal, 2, 1500)
    pinned(journal, 1, 1400)
    assert due(journal, 1499) == []
    assert due(journal, 1500) == ["1000-pin-1"]
    assert due(journal, 1600) == ["1000-pin-1", "1000-pin-2"]
    journal.renewed({"1000-pin-1": 1600})
    assert due(journal, 1600) == ["1000-pin-2"]
    assert due(journal, 1000 + DAY) == []


def test_of_a_file_pinned_again_only_the_latest_pin_is_due(journal: Journal) -> None:
    pinned(journal, 1, 1001)
    pinned(journal, 1, 2001, as_of_s=2000)
    assert due(journal, 5000) == ["2000-pin-1"]


@pytest.mark.parametrize("action", ["unpin", "evict"])
def test_a_pin_taken_back_is_not_due_until_pinned_again(journal: Journal, action: str) -> None:
    pinned(journal, 1, 1001)
    journal.record_plan([item(1, action, as_of_s=2000)], now_s=2000)
    assert due(journal, 5000) == ["1000-pin-1"]
    claim_all(journal, "a", action, now_s=2001)
    finish(journal, f"2000-{action}-1", Receipt(ItemState.DONE), owner="a", now_s=2001)
    assert due(journal, 5000) == []
    pinned(journal, 1, 3001, as_of_s=3000)
    assert due(journal, 5000) == ["3000-pin-1"]


def test_a_lost_pin_is_failed(journal: Journal) -> None:
    pinned(journal, 1, 1001)
    journal.lose_pin("1000-pin-1", "gone", now_s=2000)
    assert due(journal, 5000) == []
    assert journal.counts()["failed"] == 1
