"""What the journal tells of a source's tries: each at the time when it ended, whatever came after."""

from __future__ import annotations

import pytest
from journals import DAY, claim, finish, item

from prefetch.actions import ItemState
from prefetch.journal.items import Try
from prefetch.journal.journal import LEASE_S, Journal, Receipt

FAILED = Try("", 1002, 0.0, True)


@pytest.fixture
def journal(any_journal: Journal) -> Journal:
    any_journal.record_plan([item(0)], now_s=1000)
    claim(any_journal, "a", 1)
    receipt = Receipt(ItemState.PLANNED, error="away", fault="source")
    finish(any_journal, "1000-prefetch-0", receipt, owner="a", now_s=1002)
    return any_journal


def test_a_try_is_not_made_younger_by_a_claim_that_is_given_back(journal: Journal) -> None:
    claim(journal, "b", 1, now_s=1500)
    assert journal.give_back(["1000-prefetch-0"], owner="b", now_s=1501) == 1
    assert journal.tries("xc", since_s=0) == [FAILED]


def test_nor_by_a_run_that_died_with_it(journal: Journal) -> None:
    claim(journal, "b|1|5|x", 1, now_s=1500)
    assert journal.recover("xc", now_s=1501 + LEASE_S) == 1
    assert journal.tries("xc", since_s=0) == [FAILED]


def test_what_expired_or_was_cancelled_is_no_try(journal: Journal) -> None:
    assert journal.expire("xc", now_s=1000 + DAY) == 1
    assert journal.tries("xc", since_s=0) == []
