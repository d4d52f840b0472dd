"""Plans, pins and tries in the journal: the newest word on a file counts; what is settled is forgotten."""

import itertools
from typing import Any

import hypothesis as hy
import hypothesis.strategies as st
import pytest
from cases import cases
from journals import DAY, begin, begin_all, due, finish, item, pinned, states, states_by_item, stop, work_on

from prefetch.actions import ItemState
from prefetch.journal.cleanup import change_all
from prefetch.journal.journal import Journal, Receipt
from prefetch.journal.lease import LEASE_S
from prefetch.journal.tables import PLAN, PREFILL, Heading, Try

LATER = 1000 + 3 * DAY


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_newer_plan_replaces_what_an_older_one_left_undone(journal: Journal, newest_first: bool) -> None:
    older = [item(1, "evict"), item(2), item(3, "evict")]
    newer = [item(1, "pin", as_of_s=2000), item(4, as_of_s=2000)]
    for plan in (newer, older) if newest_first else (older, newer):
        journal.plans.record_plan(plan, now_s=2000)
    assert begin_all(journal, "evict") == []
    assert begin_all(journal, "pin") == ["2000-pin-1"]
    assert begin_all(journal) == ["2000-prefetch-4"]
    (error,) = {row["error"] for row in journal.reports.receipts("xc", 1000)}
    assert error.startswith("replaced by ") and error.endswith("of 1970-01-01T00:33:20Z")
    assert journal.reports.last_errors("xc") == [] and journal.reports.faults("xc") == {}
    # What an older one says again is no news.
    assert journal.plans.record_plan(older, now_s=2001) == 0
    assert states(journal) == {"cancelled": 3, "running": 2}


def test_a_prefill_stands_beside_plans_but_the_newest_word_on_a_file_counts(journal: Journal) -> None:
    journal.plans.record_plan([item(1, "evict"), item(2, "evict"), item(3)], now_s=1000)
    journal.plans.record_plan(
        [item(1, as_of_s=2000, kind=PREFILL), item(5, as_of_s=2000, kind=PREFILL)], now_s=2000
    )
    assert states_by_item(journal)["1000-evict-1"] == "cancelled" and states(journal)["planned"] == 4
    journal.plans.record_plan([item(1, "pin", as_of_s=3000)], now_s=3000)
    assert {at for at, state in states_by_item(journal).items() if state == "planned"} == {
        "2000-prefetch-5",
        "3000-pin-1",
    }
    other = [item(6, as_of_s=4000, kind=PREFILL)]
    journal.plans.record_plan(other, now_s=4000)
    assert states(journal)["planned"] == 3


@pytest.mark.parametrize("newest_first", [False, True])
def test_an_empty_plan_says_that_nothing_of_older_ones_is_to_be_done(
    journal: Journal, newest_first: bool
) -> None:
    empty = Heading("xc", 2000, PLAN)
    for is_older in (not newest_first, newest_first):
        plan = [item(1), item(2, "evict")] if is_older else []
        journal.plans.record_plan(plan, now_s=2000, empty=empty)
    assert states(journal) == {"cancelled": 2} and begin_all(journal) == []
    journal.plans.record_plan([item(3, as_of_s=3000)], now_s=3000)
    assert journal.plans.record_plan([], now_s=3001, empty=empty) == 0
    assert begin_all(journal, now_s=3001) == ["3000-prefetch-3"]
    journal.plans.record_plan([item(4, as_of_s=2000)], now_s=3002)  # of that time, and still older
    assert states_by_item(journal)["2000-prefetch-4"] == "cancelled"


def test_an_empty_plan_is_forgotten_with_what_came_after_it(journal: Journal) -> None:
    journal.plans.record_plan([], now_s=500, empty=Heading("xc", 500, PLAN))
    settle(journal, 1000)
    assert journal.pruning.forget("xc", 1000, before_s=2500.0, now_s=float(LATER)) == 1
    assert journal.reports.newest_s("xc", now_s=LATER) is None


def test_what_failed_is_tried_again_unless_it_is_over_or_a_newer_plan_has_the_file(journal: Journal) -> None:
    failed = Receipt(ItemState.FAILED, error="gone", fault="file")
    plan = [item(1), item(2), item(3)]
    journal.plans.record_plan(plan, now_s=1000)
    journal.plans.record_plan([item(8, as_of_s=1500, kind=PREFILL)], now_s=1500)
    for each in begin(journal, 4, now_s=1501):
        is_third = each.item_id == "1000-prefetch-3"
        finish(journal, each.item_id, Receipt(ItemState.DONE) if is_third else failed, now_s=1600)
    journal.plans.record_plan([item(1, "evict", as_of_s=2000, kind=PREFILL)], now_s=2000)
    assert journal.plans.retry("xc", now_s=2001) == 2  # 1 is the newer plan's, 3 is done
    assert begin_all(journal, now_s=2001) == ["1000-prefetch-2", "1500-prefetch-8"]
    for number in ("1000-prefetch-2", "1500-prefetch-8"):
        finish(journal, number, failed, now_s=2002)
    journal.plans.record_plan([item(9, as_of_s=3000)], now_s=3000)  # replaces that of 1000
    assert journal.plans.retry("xc", now_s=3001) == 1
    assert begin_all(journal, now_s=3001) == ["1500-prefetch-8", "3000-prefetch-9"]
    finish(journal, "1500-prefetch-8", failed, now_s=3002)
    assert (journal.plans.retry("xc", now_s=10**9), journal.plans.retry("other", now_s=3002)) == (0, 0)


@pytest.mark.parametrize("word", ["cancel", "newer"])
def test_what_failed_is_not_tried_again_if_its_plan_ends_at_that_moment(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    journal.plans.record_plan([item(1)], now_s=1000)
    begin_all(journal)

    def change_late(*words: Any) -> int:
        """Just before, the plan ends while a try is under way, which fails then."""
        monkeypatch.undo()
        if states(journal).get("running"):
            if word == "cancel":
                journal.plans.cancel("xc", now_s=1002)
            else:
                journal.plans.record_plan([item(2, as_of_s=2000)], now_s=2000)
            finish(journal, "1000-prefetch-1", Receipt(ItemState.FAILED, error="gone"), now_s=2001)
        return change_all(*words)

    monkeypatch.setattr("prefetch.journal.journal.change_all", change_late)
    assert journal.plans.retry("xc", now_s=2002) == 0
    assert begin_all(journal, now_s=2003) == (["2000-prefetch-2"] if word == "newer" else [])
    assert states_by_item(journal)["1000-prefetch-1"] == "failed"


WORDS = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 4), st.just(PLAN), st.sets(st.integers(0, 3))),
        st.tuples(st.integers(1, 4), st.just(PREFILL), st.sets(st.integers(0, 3), min_size=1)),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda plan: plan[0],
)


@cases(12, thorough=500)
@hy.given(plans=WORDS)
def test_in_whatever_order_plans_come_the_same_is_left(plans: list[tuple[int, str, set[int]]]) -> None:
    """Left is an item of which no newer plan speaks, and, of a whole plan, none that is newer and whole."""

    def stands(at: int, kind: str, number: int) -> bool:
        newer = [plan for plan in plans if plan[0] > at]
        return not any(number in files or (kind == number_kind == PLAN) for _, number_kind, files in newer)

    expected = {
        f"{at}-prefetch-{number}" for at, kind, files in plans for number in files if stands(at, kind, number)
    }
    for order in itertools.islice(itertools.permutations(plans), 6):
        journal = Journal("sqlite://")
        for at, kind, files in order:
            files_of = [item(n, as_of_s=at, kind=kind) for n in files]
            journal.plans.record_plan(files_of, now_s=9, empty=Heading("xc", at, kind))
        assert {at for at, state in states_by_item(journal).items() if state == "planned"} == expected
        journal.close()


def settle(journal: Journal, as_of_s: int, number: int = 1, *, action: str = "prefetch") -> None:
    journal.plans.record_plan([item(number, action, as_of_s=as_of_s)], now_s=as_of_s)
    begin_all(journal, action, now_s=as_of_s)
    finish(journal, f"{as_of_s}-{action}-{number}", Receipt(ItemState.DONE), now_s=as_of_s)


def test_settled_plans_are_forgotten_oldest_first_and_never_done_again(journal: Journal) -> None:
    for as_of_s in (1000, 2000, 3000):
        settle(journal, as_of_s)
    when = {"before_s": 2500.0, "now_s": float(LATER)}
    assert journal.pruning.prunable("xc", before_s=2500, now_s=1000 + DAY - 1) == []
    assert journal.pruning.prunable("xc", **when) == [1000, 2000]
    assert journal.pruning.forget("xc", 1000, **when) == 1
    assert (journal.reports.oldest_s("xc"), journal.pruning.pruned_at_s("xc", 1000)) == (2000, LATER)
    assert journal.pruning.pruned_at_s("xc", 2000) is None and journal.pruning.forget("xc", 3000, **when) == 0
    assert journal.plans.record_plan([item(1), item(2)], now_s=LATER) == 0
    assert not list(journal.reports.receipts("xc", 1000)) and journal.reports.counts("xc")["done"] == 2


@pytest.mark.parametrize("state", ["planned", "running"])
def test_a_plan_that_is_not_settled_stays_with_all_newer_ones(journal: Journal, state: str) -> None:
    journal.plans.record_plan([item(5, kind=PREFILL)], now_s=1000)
    if state == "running":
        begin_all(journal)
    settle(journal, 2000)
    when = {"before_s": 5000.0, "now_s": float(LATER)}
    assert journal.pruning.prunable("xc", **when) == [] and journal.pruning.forget("xc", 1000, **when) == 0
    stop(journal, now_s=5000)
    journal.plans.expire("xc", now_s=5000 + DAY)
    assert journal.pruning.prunable("xc", before_s=5000 + DAY, now_s=LATER) == [1000, 2000]


def test_a_pin_that_was_taken_back_stays_so_when_older_plans_are_forgotten(journal: Journal) -> None:
    pinned(journal, 1, 1001)
    settle(journal, 2000, action="unpin")
    before_s, now_s = 2500.0, float(2000 + DAY)
    assert due(journal, 5000) == []
    for as_of_s in journal.pruning.prunable("xc", before_s=before_s, now_s=now_s):
        journal.pruning.forget("xc", as_of_s, before_s=before_s, now_s=now_s)
        assert due(journal, 5000) == []
    assert journal.reports.oldest_s("xc") is None


def test_evictions_that_no_push_carried_out_are_listed_until_they_expire(journal: Journal) -> None:
    journal.plans.record_plan([item(1, "evict"), item(2, "evict"), item(3, "pin")], now_s=1000)
    assert journal.reports.evictions("xc", now_s=1500) == [item(1, "evict").name, item(2, "evict").name]
    begin_all(journal, "evict", now_s=1500)
    finish(journal, "1000-evict-1", Receipt(ItemState.DONE), now_s=1501)
    finish(journal, "1000-evict-2", Receipt(ItemState.FAILED, error="in use"), now_s=1501)
    assert journal.reports.evictions("xc", now_s=1600) == [item(2, "evict").name]
    assert (
        journal.reports.evictions("xc", now_s=1000 + 30 * DAY)
        == journal.reports.evictions("other", now_s=1600)
        == []
    )
    journal.plans.record_plan([item(4, "evict", as_of_s=2000)], now_s=2000)
    assert journal.reports.evictions("xc", now_s=2001)[0] == item(4, "evict").name
    assert (journal.reports.planned("xc"), journal.reports.planned("xc", evicts=False)) == (1, 0)


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


def test_pins_given_up_are_not_due_nor_is_one_that_was_under_way(journal: Journal) -> None:
    pinned(journal, 1, 1001)
    journal.plans.record_plan([item(2, "pin", as_of_s=2000)], now_s=2000)
    begin_all(journal, "pin", now_s=2001)
    assert journal.plans.cancel("xc", now_s=2002) == (0, 1)
    assert journal.plans.unpin("xc", now_s=2002) == 2
    finish(journal, "2000-pin-2", Receipt(ItemState.DONE, renewed_at_s=2003), now_s=2003)
    assert due(journal, 5000) == []


def test_a_sources_try_stays_as_old_as_it_is_whatever_comes_after(journal: Journal) -> None:
    """A begin that is given back, a run that died with it; what expired is no try."""
    journal.plans.record_plan([item(0)], now_s=1000)
    begin(journal, 1)
    failed = Receipt(ItemState.PLANNED, error="away", fault="source")
    finish(journal, "1000-prefetch-0", failed, now_s=1002)
    begin(journal, 1, now_s=1500)
    work_on(journal).give_back(["1000-prefetch-0"], now_s=1501)
    assert journal.reports.tries("xc", since_s=0) == [Try("", 1002, 0.0, True)]
    begin(journal, 1, now_s=1600)
    journal.leases.take("xc", now_s=1601 + LEASE_S)
    assert journal.reports.tries("xc", since_s=0) == [Try("", 1002, 0.0, True)]
    assert journal.plans.expire("xc", now_s=1000 + DAY) == 1
    assert journal.reports.tries("xc", since_s=0) == []
