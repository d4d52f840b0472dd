"""What the journal tells of a source's tries: each at the time when it ended, whatever came after."""

from __future__ import annotations

import pytest
from journals import DAY, begin, finish, item, work_on

from prefetch.actions import ItemState
from prefetch.journal.journal import Journal, Receipt
from prefetch.journal.lease import LEASE_S
from prefetch.journal.tables import Try

FAILED = Try("", 1002, 0.0, True)


@pytest.fixture
def journal(any_journal: Journal) -> Journal:
    any_journal.plans.record_plan([item(0)], now_s=1000)
    begin(any_journal, 1)
    receipt = Receipt(ItemState.PLANNED, error="away", fault="source")
    finish(any_journal, "1000-prefetch-0", receipt, now_s=1002)
    return any_journal


def test_a_try_is_not_made_younger_by_a_begin_that_is_given_back(journal: Journal) -> None:
    begin(journal, 1, now_s=1500)
    work_on(journal).give_back(["1000-prefetch-0"], now_s=1501)
    assert journal.reports.tries("xc", since_s=0) == [FAILED]


def test_nor_by_a_run_that_died_with_it(journal: Journal) -> None:
    begin(journal, 1, now_s=1500)
    journal.leases.take("xc", now_s=1501 + LEASE_S)
    assert journal.reports.tries("xc", since_s=0) == [FAILED]


def test_what_expired_or_was_cancelled_is_no_try(journal: Journal) -> None:
    assert journal.plans.expire("xc", now_s=1000 + DAY) == 1
    assert journal.reports.tries("xc", since_s=0) == []
