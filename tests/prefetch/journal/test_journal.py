"""The journal: what it keeps and refuses; wrong clocks, after which nothing that they wrote lasts."""

import contextlib
import dataclasses
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from journals import DAY, begin, begin_all, due, finish, item, pinned, states, stop, work_on

from features.common.errors import ConfigError, InputError, ServiceError
from features.schema import RECEIPTS, arrow_schema
from prefetch.actions import Action, ItemState
from prefetch.journal.journal import Journal, Receipt
from prefetch.journal.tables import CLOCK_SLACK_S, PREFILL, Try
from prefetch.push.attempt import PushLimits
from prefetch.push.push import sources_seen


def test_a_plan_recorded_twice_is_recorded_once(journal: Journal) -> None:
    plan = [item(number) for number in range(5)]
    assert journal.plans.record_plan(plan, now_s=1000) == 5
    (first,) = begin(journal, 1)
    finish(journal, first.item_id, Receipt(ItemState.DONE, bytes=10), now_s=1002)
    assert journal.plans.record_plan([*plan, item(5)], now_s=1003) == 1
    assert journal.plans.record_plan([], now_s=1003) == 0
    assert states(journal, "xc") == {"planned": 5, "done": 1}
    assert states(journal, "other") == {}


def test_tries_go_by_rank_and_failed_tries_wait_for_the_rest(journal: Journal) -> None:
    journal.plans.record_plan([item(3), item(1), item(2)], now_s=1000)
    (first,) = begin(journal, 1)
    assert (first.rank, first.attempts) == (1, 1)
    finish(journal, first.item_id, Receipt(ItemState.PLANNED, error="away"), now_s=1002)
    begun = begin(journal, 9, now_s=1003)
    assert [(each.rank, each.attempts) for each in begun] == [(2, 1), (3, 1), (1, 2)]
    assert begin_all(journal, now_s=1003) == []


def test_a_failed_try_waits_for_longer_each_time(journal: Journal) -> None:
    journal.plans.record_plan([item(1), item(2)], now_s=1000)
    for tries, failed_s in enumerate((1001, 1011, 1031), 1):
        assert [each.attempts for each in begin(journal, 1, now_s=failed_s, retry_after_s=10)] == [tries]
        finish(journal, "1000-prefetch-1", Receipt(ItemState.PLANNED, error="away"), now_s=failed_s)
        due = failed_s + 10 * tries
        if tries == 1:
            (other,) = begin(journal, now_s=failed_s, retry_after_s=10)
            finish(journal, other.item_id, Receipt(ItemState.DONE), now_s=failed_s)
        waits = work_on(journal).next_retry_s(Action.PREFETCH, now_s=failed_s, retry_after_s=10)
        assert waits == due
        assert begin(journal, now_s=due - 1, retry_after_s=10) == []


def test_items_of_a_source_left_alone_are_not_begun(journal: Journal) -> None:
    plan = [dataclasses.replace(item(n), source=source) for n, source in enumerate(("", "a:1", "b:1"))]
    journal.plans.record_plan(plan, now_s=1000)
    assert [each.source for each in begin(journal, but=["", "b:1"])] == ["a:1"]
    next_retry_s = work_on(journal).next_retry_s
    assert next_retry_s(Action.PREFETCH, now_s=1001, but=["", "b:1"]) is None
    assert next_retry_s(Action.PREFETCH, now_s=1001) == 0
    assert [each.source for each in begin(journal)] == ["", "b:1"]


def test_what_is_cancelled_is_never_tried_again(journal: Journal) -> None:
    journal.plans.record_plan([item(number) for number in range(4)], now_s=1000)
    journal.plans.record_plan([item(9, as_of_s=2000, kind=PREFILL)], now_s=1000)
    begin(journal, 3)
    assert journal.plans.cancel("xc", 1000, now_s=1002) == (1, 3)
    assert journal.plans.cancel("xc", 1000, now_s=1002) == (0, 0)
    assert states(journal) == {"planned": 1, "cancelling": 3, "cancelled": 1}
    # What is under way ends as it does: done, away, or by the death of its run.
    finish(journal, "1000-prefetch-0", Receipt(ItemState.DONE), now_s=1003)
    finish(journal, "1000-prefetch-1", Receipt(ItemState.PLANNED, error="away"), now_s=1003)
    stop(journal, now_s=1003)
    assert states(journal) == {"planned": 1, "done": 1, "cancelled": 3}
    assert journal.plans.record_plan([item(number) for number in range(4)], now_s=1004) == 0
    assert begin_all(journal) == ["2000-prefetch-9"]
    assert journal.plans.cancel("xc", now_s=1005) == (0, 1)


def test_what_failed_is_given_up_with_its_plan(journal: Journal) -> None:
    """Else an alarm about it would stand as long as nothing else is undone."""
    journal.plans.record_plan([item(1), item(2)], now_s=1000)
    for each in begin(journal):
        receipt = Receipt(ItemState.FAILED, error="gone", fault="file")
        finish(journal, each.item_id, receipt if each.rank == 1 else Receipt(ItemState.DONE), now_s=1002)
    assert journal.plans.cancel("xc", 2000, now_s=1003) == journal.plans.cancel("xc", now_s=10**9) == (0, 0)
    assert journal.plans.cancel("xc", now_s=1003) == (1, 0)
    assert states(journal) == {"done": 1, "cancelled": 1}
    assert journal.plans.retry("xc", now_s=1004) == 0


def test_it_tells_of_faults(journal: Journal) -> None:
    journal.plans.record_plan([item(number) for number in range(4)], now_s=1000)
    begin(journal, 3)
    receipt = Receipt(ItemState.FAILED, error="it\nis away", fault="source")
    finish(journal, "1000-prefetch-0", receipt, now_s=1002)
    assert journal.reports.faults("xc", 1000) == {"source": 1} and journal.reports.faults("xc", 2000) == {}
    assert journal.reports.last_errors("xc") == ["it\nis away"]
    assert journal.reports.tries("xc", since_s=1001.5) == [Try("", 1002, 0.0, True)]
    assert journal.reports.tries("xc", since_s=1002.5) == []
    assert (
        journal.reports.changed_plans("xc", since_s=1002),
        journal.reports.changed_plans("xc", since_s=1003),
    ) == ([1000], [])


def test_a_journal_of_another_version_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    first = Journal(str(path))
    first.plans.record_plan([item(1)], now_s=1000)
    first.close()
    with closing(sqlite3.connect(path)) as old:
        old.execute("ALTER TABLE push_items DROP COLUMN fault")
        before = old.execute("SELECT * FROM push_items").fetchall()
    again = Journal(str(path))
    with pytest.raises(ConfigError, match=r"another version of cachecast .*push_items.*move it away"):
        again.reports.counts()
    again.close()
    with closing(sqlite3.connect(path)) as old:
        assert old.execute("SELECT * FROM push_items").fetchall() == before


def test_late_items_expire_and_are_not_begun(journal: Journal) -> None:
    journal.plans.record_plan([item(1), item(2)], now_s=1000)
    begin(journal, 1)
    late = 1000 + DAY
    assert begin_all(journal, now_s=late) == []
    assert journal.plans.expire("xc", now_s=late - 1) == 0
    assert journal.plans.expire("xc", now_s=late) == 1
    assert journal.reports.counts()["expired"] == 1


def test_receipts_are_rows_of_the_table(journal: Journal) -> None:
    journal.plans.record_plan([item(1)], now_s=1000)
    journal.plans.record_plan([dataclasses.replace(item(2), item_id="x", cache="xd")], now_s=1000)
    begin_all(journal)
    receipt = Receipt(ItemState.DONE, 7, 0.5, confirmed_by="cinfo")
    finish(journal, "1000-prefetch-1", receipt, now_s=1002.5)
    (row,) = journal.reports.receipts("xc", 1000)
    assert (row.pop("as_of_s"), row.pop("cache")) == (1000, "xc")
    table = pa.Table.from_pylist([row], schema=arrow_schema(RECEIPTS))
    assert table.to_pylist()[0] == row
    assert (row["state"], row["attempts"], row["bytes"], row["confirmed_by"]) == ("done", 1, 7, "cinfo")
    assert row["updated_at"].timestamp() == 1002.5
    assert len(list(journal.reports.receipts())) == 2


def test_errors_are_bounded(journal: Journal) -> None:
    journal.plans.record_plan([item(1)], now_s=1000)
    begin_all(journal)
    finish(journal, "1000-prefetch-1", Receipt(ItemState.FAILED, error="e" * 9999), now_s=1002)
    (row,) = journal.reports.receipts()
    assert len(row["error"]) == 300


@pytest.mark.parametrize(
    "damage",
    [
        *("name = CAST(name AS BLOB)", "source = CAST('x' AS BLOB)", "attempts = 'x'", "rank = 0.5"),
        *("expires_at_s = 1 << 62", "updated_at_s = 'x'"),
    ],
)
def test_what_no_journal_holds_is_a_damage_that_is_said(tmp_path: Path, damage: str) -> None:
    """SQLite keeps anything in any column, whoever wrote it: a steward ended by it, and a push."""
    journal = Journal(f"{tmp_path}/journal.db")
    journal.plans.record_plan([item(1, Action.PIN), item(2), item(3, Action.EVICT)], now_s=1000)
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db")) as connection, connection:
        connection.execute(f"UPDATE push_items SET {damage}")
        connection.execute("UPDATE push_items SET state = 'done' WHERE action = 'pin'")
    with pytest.raises(ServiceError, match="the push journal is damaged"):
        journal.reports.pins("xc", now_s=1000)
    with pytest.raises(ServiceError, match="the push journal is damaged"):
        list(journal.reports.receipts("xc"))
    if damage.startswith("name"):
        with pytest.raises(ServiceError, match="the push journal is damaged"):
            journal.reports.evictions("xc", now_s=1000)
    journal.close()


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
