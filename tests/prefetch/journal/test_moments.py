"""Plans of one moment, recorded again and anew, in parts and by several runs at once."""

import concurrent.futures
import dataclasses
import tracemalloc
from collections.abc import Iterator
from contextlib import closing

import pytest
from journals import begin, begin_all, finish, item, states, states_by_item, stop

from features.common.errors import ConflictError
from prefetch.actions import Action, ItemState
from prefetch.journal import journal as journal_plans
from prefetch.journal.journal import Item, Journal, Receipt
from prefetch.journal.tables import PREFILL

AT_ONCE = 10


class Stopped(BaseException):
    """A run that is killed."""


class Part:
    """Items of a plan that ends with an error after so many, the second time it is gone through."""

    def __init__(self, plan: list[Item], n_items: int) -> None:
        self._plan, self._n_items, self._times = plan, n_items, 0

    def __len__(self) -> int:
        return len(self._plan)

    def __iter__(self) -> Iterator[Item]:
        self._times += 1
        if self._times == 1:
            yield from self._plan
        else:
            yield from self._plan[: self._n_items]
            raise Stopped


@pytest.fixture(autouse=True)
def in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_plans, "ITEMS_AT_ONCE", AT_ONCE)


def test_another_plan_of_the_same_moment_replaces_what_is_undone(journal: Journal) -> None:
    journal.plans.record_plan([item(1, "evict"), item(2, "evict"), item(3)], now_s=1000)
    assert journal.plans.record_plan([item(1, "pin"), item(3)], now_s=1001) == 1
    assert begin_all(journal, "evict") == []
    assert begin_all(journal, "pin") == ["1000-pin-1"] and begin_all(journal) == ["1000-prefetch-3"]
    (error,) = {row["error"] for row in journal.reports.receipts("xc") if row["action"] == "evict"}
    assert error == "replaced by another plan of the same time"


def test_what_is_done_stays_done_and_what_a_run_has_in_hand_ends(journal: Journal) -> None:
    journal.plans.record_plan([item(1), item(2), item(3)], now_s=1000)
    begin(journal, 2)
    finish(journal, "1000-prefetch-1", Receipt(ItemState.DONE), now_s=1001)
    journal.plans.record_plan([item(1), item(4)], now_s=1002)
    assert states_by_item(journal) == {
        "1000-prefetch-1": "done",
        "1000-prefetch-2": "cancelling",
        "1000-prefetch-3": "cancelled",
        "1000-prefetch-4": "planned",
    }
    # And back: what was in hand all the time goes on.
    journal.plans.record_plan([item(1), item(2), item(3)], now_s=1003)
    assert states_by_item(journal) == {
        "1000-prefetch-1": "done",
        "1000-prefetch-2": "running",
        "1000-prefetch-3": "planned",
        "1000-prefetch-4": "cancelled",
    }
    assert begin_all(journal) == ["1000-prefetch-3"]


def test_a_new_plan_of_the_moment_says_anew_what_a_file_is(journal: Journal) -> None:
    journal.plans.record_plan([item(1), item(2)], now_s=1000)
    begin(journal, 1)
    finish(journal, "1000-prefetch-1", Receipt(ItemState.FAILED, error="changed", fault="file"), now_s=1001)
    anew = [dataclasses.replace(item(n), size_bytes=77, rank=9 - n, source="o:1") for n in (1, 2)]
    journal.plans.record_plan(anew, now_s=1002)
    begun = begin(journal, now_s=1003)
    assert [(each.rank, each.size_bytes, each.source, each.attempts) for each in begun] == [
        (7, 77, "o:1", 1),
        (8, 77, "o:1", 1),
    ]
    # Where its files come from makes no other plan of it.
    finish(journal, "1000-prefetch-1", Receipt(ItemState.FAILED, error="no", fault="file"), now_s=1004)
    journal.plans.record_plan([dataclasses.replace(each, source="p:2") for each in anew[::-1]], now_s=1005)
    assert states_by_item(journal)["1000-prefetch-1"] == "failed"


def test_a_pin_that_the_moments_new_plan_takes_back_does_not_stand(journal: Journal) -> None:
    journal.plans.record_plan([item(1, "pin")], now_s=1000)
    for action, at_s in (("pin", 1001), ("unpin", 1002)):
        journal.plans.record_plan([item(1, action)], now_s=at_s)
        begin_all(journal, action)
        finish(journal, f"1000-{action}-1", Receipt(ItemState.DONE, renewed_at_s=1001), now_s=at_s)
    assert journal.reports.pins("xc", now_s=1003) == []


@pytest.mark.parametrize("n_items", [0, AT_ONCE, 2 * AT_ONCE, 3 * AT_ONCE])
def test_a_plan_half_recorded_counts_for_nothing_until_it_is_whole(journal: Journal, n_items: int) -> None:
    older = [item(1, "evict"), item(2, "evict")]
    journal.plans.record_plan(older, now_s=1000)
    newer = [item(n, as_of_s=2000) for n in range(3 * AT_ONCE)]
    with pytest.raises(Stopped):
        journal.plans.record_plan(Part(newer, n_items), now_s=2000)
    assert begin_all(journal, now_s=2000) == []
    assert begin_all(journal, "evict", now_s=2000) == ["1000-evict-1", "1000-evict-2"]
    # An older plan that comes meanwhile is not replaced by it.
    assert journal.plans.record_plan([item(7, "pin", as_of_s=1500)], now_s=2000) == 1
    assert begin_all(journal, "pin", now_s=2000) == ["1500-pin-7"]
    stop(journal, now_s=2000)
    assert journal.plans.record_plan(newer, now_s=2001) == 3 * AT_ONCE - n_items
    assert states(journal) == {"cancelled": 3, "planned": 3 * AT_ONCE}
    assert len(begin_all(journal, now_s=2001)) == 3 * AT_ONCE


def test_a_moment_planned_anew_in_half_does_nothing_until_it_is_whole(journal: Journal) -> None:
    first = [item(n) for n in range(2 * AT_ONCE)]
    second = [item(n, "pin") for n in range(2 * AT_ONCE)]
    journal.plans.record_plan(first, now_s=1000)
    with pytest.raises(Stopped):
        journal.plans.record_plan(Part(second, AT_ONCE), now_s=1001)
    assert begin_all(journal) == begin_all(journal, "pin") == []
    # A third plan takes over; nothing of the half one is left.
    third = [item(n) for n in range(AT_ONCE)]
    assert journal.plans.record_plan(third, now_s=1002) == 0
    assert begin_all(journal, "pin") == []
    assert sorted(begin_all(journal)) == sorted(planned.item_id for planned in third)
    assert states(journal) == {"running": AT_ONCE, "cancelled": 2 * AT_ONCE}


def test_what_a_run_that_died_did_not_replace_is_replaced_by_the_next(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.plans.record_plan([item(n, "evict") for n in range(3)], now_s=1000)
    journal.plans.record_plan([item(8, as_of_s=1500, kind=PREFILL)], now_s=1500)

    def killed(*_: object, **__: object) -> None:
        raise Stopped

    with monkeypatch.context() as dying:
        dying.setattr(journal_plans.Plans, "cancel_superseded", killed)
        with pytest.raises(Stopped):
            journal.plans.record_plan([item(8, "pin", as_of_s=2000)], now_s=2000)
    # The newer plan counts from the moment on when it is whole.
    assert begin_all(journal, "evict", now_s=2000) == []
    assert journal.plans.cancel_superseded("xc", now_s=2001) == (4, 0)
    assert journal.plans.cancel_superseded("xc", now_s=2001) == (0, 0)
    assert states(journal) == {"cancelled": 4, "planned": 1}


def test_others_write_while_a_large_plan_is_recorded(url: str) -> None:
    with closing(Journal(url)) as first, closing(Journal(url)) as second:
        second.plans.record_plan(
            [dataclasses.replace(item(n), item_id=f"o{n}", cache="yc") for n in range(9)], now_s=1
        )
        done, work = list[str](), second.leases.take("yc", now_s=1000)

        class Watched:
            """A plan in whose midst another run works."""

            def __len__(self) -> int:
                return 5 * AT_ONCE

            def __iter__(self) -> Iterator[Item]:
                for number in range(5 * AT_ONCE):
                    if number % AT_ONCE == 5:
                        for each in work.begin(Action.PREFETCH, 1, now_s=1001):
                            work.finish({each.item_id: Receipt(ItemState.DONE)}, now_s=1001)
                            done.append(each.item_id)
                    yield item(number)

        assert first.plans.record_plan(Watched(), now_s=1000) == 5 * AT_ONCE
        assert len(done) == 9


def test_runs_that_record_different_plans_of_a_moment_leave_one_of_them(url: str) -> None:
    plans = [[item(n, action) for n in range(100)] for action in ("prefetch", "pin")]
    with closing(Journal(url)) as first, closing(Journal(url)) as second:

        def record(journal: Journal, plan: list[Item]) -> int:
            try:
                return journal.plans.record_plan(plan, now_s=1000)
            except ConflictError:
                return -1

        first.reports.counts()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            assert max(pool.map(record, (first, second), plans)) == 100
        planned = {row["action"] for row in first.reports.receipts("xc") if row["state"] == "planned"}
        begun = {each.action for action in ("prefetch", "pin") for each in begin(first, action=action)}
        assert len(begun) == 1 and begun == planned


def test_a_plan_cancelled_while_it_is_recorded_is_not_carried_out(journal: Journal) -> None:
    class Cancelled(Part):
        def __iter__(self) -> Iterator[Item]:
            self._times += 1
            for number, each in enumerate(self._plan):
                if self._times == 2 and number == AT_ONCE + 5:
                    journal.plans.cancel("xc", now_s=1001)
                yield each

    plan = [item(n) for n in range(3 * AT_ONCE)]
    with pytest.raises(ConflictError, match="cancelled"):
        journal.plans.record_plan(Cancelled(plan, 0), now_s=1000)
    assert journal.plans.record_plan(plan, now_s=1002) == 0 and begin_all(journal) == []


def test_a_large_plan_takes_little_memory(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(journal_plans, "ITEMS_AT_ONCE", 100)

    class Many:
        def __len__(self) -> int:
            return 2_000

        def __iter__(self) -> Iterator[Item]:
            return (item(number) for number in range(2_000))

    journal.plans.record_plan([item(1, "pin", as_of_s=500)], now_s=1000)
    tracemalloc.start()
    request.addfinalizer(tracemalloc.stop)
    journal.plans.record_plan(Many(), now_s=1000)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    assert peak_bytes < 2_000 * 1000
