from __future__ import annotations

import concurrent.futures
import dataclasses
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from journals import DAY, claim, claim_all, finish, item, states

from features.errors import ConfigError, ServiceError
from features.schema import RECEIPTS, arrow_schema
from prefetch.actions import Action, ItemState
from prefetch.journal.items import Try
from prefetch.journal.journal import LEASE_S, Journal, Patience, Receipt
from prefetch.journal.owner import is_dead, new_owner
from prefetch.journal.tables import PREFILL


@pytest.fixture
def journal(any_journal: Journal) -> Journal:
    return any_journal


def test_a_plan_recorded_twice_is_recorded_once(journal: Journal) -> None:
    plan = [item(number) for number in range(5)]
    assert journal.record_plan(plan, now_s=1000) == 5
    (first,) = claim(journal, "a", 1)
    finish(journal, first.item_id, Receipt(ItemState.DONE, bytes=10), owner="a", now_s=1002)
    assert journal.record_plan([*plan, item(5)], now_s=1003) == 1
    assert journal.record_plan([], now_s=1003) == 0
    assert states(journal, "xc") == {"planned": 5, "done": 1}
    assert states(journal, "other") == {}


def test_claims_go_by_rank_and_failed_tries_wait_for_the_rest(journal: Journal) -> None:
    journal.record_plan([item(3), item(1), item(2)], now_s=1000)
    (first,) = claim(journal, "a", 1)
    assert (first.rank, first.attempts) == (1, 1)
    finish(journal, first.item_id, Receipt(ItemState.PLANNED, error="away"), owner="a", now_s=1002)
    claimed = claim(journal, "a", 9, now_s=1003)
    assert [(each.rank, each.attempts) for each in claimed] == [(2, 1), (3, 1), (1, 2)]
    assert claim_all(journal, "b", now_s=1003) == []


def test_no_item_is_claimed_twice_by_runs_at_once(url: str) -> None:
    journals = [Journal(url) for _ in range(4)]
    plan = [item(number) for number in range(200)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # All four make the tables and record the plan at once.
        assert sum(pool.map(lambda each: each.record_plan(plan, now_s=1000), journals)) == 200

    def work(number: int) -> list[str]:
        mine: list[str] = []
        while got := claim(journals[number], f"run{number}", 3):
            mine += [each.item_id for each in got]
        return mine

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        claimed = [item_id for part in pool.map(work, range(4)) for item_id in part]
    for each in journals:
        each.close()
    assert len(claimed) == len(set(claimed)) == 200


def test_only_the_owner_finishes(journal: Journal) -> None:
    journal.record_plan([item(1)], now_s=1000)
    claim_all(journal, "a")
    assert not finish(journal, "1000-prefetch-1", Receipt(ItemState.DONE), owner="b", now_s=1002)
    assert finish(journal, "1000-prefetch-1", Receipt(ItemState.DONE), owner="a", now_s=1002)
    assert not finish(journal, "1000-prefetch-1", Receipt(ItemState.FAILED), owner="a", now_s=1003)


def test_receipts_are_written_together_and_only_of_what_is_ours(journal: Journal) -> None:
    journal.record_plan([item(number) for number in range(4)], now_s=1000)
    claim(journal, "a", 2)
    claim(journal, "b", 1)
    receipts = {f"1000-prefetch-{n}": Receipt(ItemState.DONE, bytes=n) for n in range(4)}
    receipts["1000-prefetch-1"] = Receipt(ItemState.PLANNED, error="away", fault="source")
    assert journal.finish(receipts, owner="a", now_s=1002) == {"1000-prefetch-0", "1000-prefetch-1"}
    assert states(journal) == {"planned": 2, "running": 1, "done": 1}
    assert journal.faults("xc") == {"source": 1} and journal.undone("xc")["running"] == 1


def test_runs_that_finish_cancel_and_recover_do_not_wait_for_each_other(url: str) -> None:
    journals = [Journal(url) for _ in range(4)]
    plan = [item(number) for number in range(200)]
    journals[0].record_plan(plan, now_s=1000)

    def work(number: int) -> int:
        mine, n_done = journals[number], 0
        for turn in range(40):
            got = [one.item_id for one in claim(mine, f"far|{number}|5|x", 8)]
            order = got if number else got[::-1]
            n_done += len(
                mine.finish(
                    dict.fromkeys(order, Receipt(ItemState.PLANNED)), owner=f"far|{number}|5|x", now_s=1002
                )
            )
            mine.heartbeat(f"far|{number}|5|x", now_s=1002)
            if turn % 4 == number:
                mine.recover("xc", now_s=1003 + LEASE_S)
        return n_done

    def withdraw(number: int) -> int:
        return sum(sum(journals[number].cancel("xc", now_s=1002)) for _ in range(40))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        worked = [pool.submit(work, number) for number in range(3)]
        withdrawn = pool.submit(withdraw, 3)
        assert all(one.result() >= 0 for one in worked) and withdrawn.result() == 200
    assert states(journals[0]).keys() <= {"cancelled", "cancelling"}
    for each in journals:
        each.close()


def test_what_a_dead_run_left_is_taken_over(journal: Journal) -> None:
    script = "from prefetch.journal.owner import new_owner; print(new_owner())"
    dead = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.strip()
    alive = new_owner()
    journal.record_plan([item(1), item(2)], now_s=1000)
    claim(journal, dead, 1)
    claim(journal, alive, 1)
    assert is_dead(dead) and not is_dead(alive)
    assert journal.recover("xc", now_s=1002) == 1
    assert claim_all(journal, "next") == ["1000-prefetch-1"]


def test_a_silent_run_elsewhere_is_taken_over_after_its_lease(journal: Journal) -> None:
    journal.record_plan([item(1)], now_s=1000)
    claim_all(journal, "otherhost|1|5|x")
    journal.heartbeat("otherhost|1|5|x", now_s=2000)
    assert journal.recover("xc", now_s=2000 + LEASE_S) == 0
    assert journal.recover("xc", now_s=2001 + LEASE_S) == 1


def test_what_a_run_says_after_its_lease_does_not_count(journal: Journal) -> None:
    journal.record_plan([item(1)], now_s=1000)
    claim_all(journal, "slow|1|5|x")
    late = 1002 + LEASE_S
    assert journal.recover("xc", now_s=late) == 1
    assert claim_all(journal, "quick|1|5|x", now_s=late) == ["1000-prefetch-1"]
    journal.heartbeat("slow|1|5|x", now_s=late)
    assert not finish(journal, "1000-prefetch-1", Receipt(ItemState.DONE), owner="slow|1|5|x", now_s=late)
    assert finish(journal, "1000-prefetch-1", Receipt(ItemState.DONE), owner="quick|1|5|x", now_s=late)


def test_a_failed_try_waits_for_longer_each_time(journal: Journal) -> None:
    journal.record_plan([item(1), item(2)], now_s=1000)
    for tries, failed_s in enumerate((1001, 1011, 1031), 1):
        assert [each.attempts for each in claim(journal, "a", 1, now_s=failed_s, retry_after_s=10)] == [tries]
        finish(
            journal, "1000-prefetch-1", Receipt(ItemState.PLANNED, error="away"), owner="a", now_s=failed_s
        )
        due = failed_s + 10 * tries
        if tries == 1:
            assert [each.rank for each in claim(journal, "b", now_s=failed_s, retry_after_s=10)] == [2]
        waits = Patience(retry_after_s=10)
        assert journal.next_retry_s("xc", Action.PREFETCH, now_s=failed_s, patience=waits) == due
        assert claim(journal, "a", now_s=due - 1, retry_after_s=10) == []


def test_items_of_a_source_left_alone_are_not_claimed(journal: Journal) -> None:
    plan = [dataclasses.replace(item(n), source=source) for n, source in enumerate(("", "a:1", "b:1"))]
    journal.record_plan(plan, now_s=1000)
    assert [each.source for each in claim(journal, "x", but=["", "b:1"])] == ["a:1"]
    assert journal.next_retry_s("xc", Action.PREFETCH, now_s=1001, patience=Patience(["", "b:1"])) is None
    assert journal.next_retry_s("xc", Action.PREFETCH, now_s=1001, patience=Patience()) == 0
    assert [each.source for each in claim(journal, "x")] == ["", "b:1"]


def test_what_is_cancelled_is_never_tried_again(journal: Journal) -> None:
    journal.record_plan([item(number) for number in range(4)], now_s=1000)
    journal.record_plan([item(9, as_of_s=2000, kind=PREFILL)], now_s=1000)
    claim(journal, "a", 3)
    assert journal.cancel("xc", 1000, now_s=1002) == (1, 3)
    assert journal.cancel("xc", 1000, now_s=1002) == (0, 0)
    assert states(journal) == {"planned": 1, "cancelling": 3, "cancelled": 1}
    # What is under way ends as it does: done, away, or by the death of its run.
    assert finish(journal, "1000-prefetch-0", Receipt(ItemState.DONE), owner="a", now_s=1003)
    assert finish(journal, "1000-prefetch-1", Receipt(ItemState.PLANNED, error="away"), owner="a", now_s=1003)
    assert journal.release("a", now_s=1003) == 1
    assert states(journal) == {"planned": 1, "done": 1, "cancelled": 3}
    assert journal.record_plan([item(number) for number in range(4)], now_s=1004) == 0
    assert claim_all(journal, "b") == ["2000-prefetch-9"]
    assert journal.cancel("xc", now_s=1005) == (0, 1)


def test_it_tells_of_runs_and_faults(journal: Journal) -> None:
    journal.record_plan([item(number) for number in range(4)], now_s=1000)
    claim(journal, "a|1|5|x", 3)
    receipt = Receipt(ItemState.FAILED, error="it\nis away", fault="source")
    finish(journal, "1000-prefetch-0", receipt, owner="a|1|5|x", now_s=1002)
    (holder,) = journal.holders("xc")
    assert (holder.owner, holder.n_items, holder.heard_at_s) == ("a|1|5|x", 2, 1001)
    assert journal.faults("xc", 1000) == {"source": 1} and journal.faults("xc", 2000) == {}
    assert journal.last_errors("xc") == ["it\nis away"]
    assert journal.tries("xc", since_s=1001.5) == [Try("", 1002, 0.0, True)]
    assert journal.tries("xc", since_s=1002.5) == []
    assert (journal.changed_plans("xc", since_s=1002), journal.changed_plans("xc", since_s=1003)) == (
        [1000],
        [],
    )


def test_a_journal_of_before_gets_its_new_columns(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    first = Journal(str(path))
    first.record_plan([item(1)], now_s=1000)
    first.close()
    with sqlite3.connect(path) as old:
        for column in ("source", "fault", "kind", "generation"):
            old.execute(f"ALTER TABLE push_items DROP COLUMN {column}")
        old.execute("DROP INDEX push_items_held")
        for table in ("push_pruned", "push_plans"):
            old.execute(f"DROP TABLE {table}")
    old.close()
    again = Journal(str(path))
    assert [(each.rank, each.source) for each in claim(again, "a")] == [(1, "")]
    again.record_plan([item(2, as_of_s=2000)], now_s=2000)
    again.close()
    with sqlite3.connect(path) as now:
        found = now.execute("SELECT name FROM sqlite_master WHERE name = 'push_items_held'").fetchall()
    now.close()
    assert found and states(again) == {"cancelling": 1, "planned": 1}


def test_a_journal_that_is_away_is_an_error_without_its_secret() -> None:
    away = Journal("postgresql://me:secret@127.0.0.1:9/none")
    with pytest.raises(ServiceError, match="does not answer") as caught:
        away.counts()
    assert "secret" not in str(caught.value)


def test_late_items_expire_and_are_not_claimed(journal: Journal) -> None:
    journal.record_plan([item(1), item(2)], now_s=1000)
    claim(journal, "a", 1)
    late = 1000 + DAY
    assert claim_all(journal, "b", now_s=late) == []
    assert journal.expire("xc", now_s=late - 1) == 0
    assert journal.expire("xc", now_s=late) == 1
    assert journal.counts()["expired"] == 1


def test_receipts_are_rows_of_the_table(journal: Journal) -> None:
    journal.record_plan([item(1)], now_s=1000)
    journal.record_plan([dataclasses.replace(item(2), item_id="x", cache="xd")], now_s=1000)
    claim_all(journal, "a")
    receipt = Receipt(ItemState.DONE, 7, 0.5, confirmed_by="cinfo")
    finish(journal, "1000-prefetch-1", receipt, owner="a", now_s=1002.5)
    (row,) = journal.receipts("xc", 1000)
    assert (row.pop("as_of_s"), row.pop("cache")) == (1000, "xc")
    table = pa.Table.from_pylist([row], schema=arrow_schema(RECEIPTS))
    assert table.to_pylist()[0] == row
    assert (row["state"], row["attempts"], row["bytes"], row["confirmed_by"]) == ("done", 1, 7, "cinfo")
    assert row["updated_at"].timestamp() == 1002.5
    assert len(list(journal.receipts())) == 2


def test_errors_are_bounded(journal: Journal) -> None:
    journal.record_plan([item(1)], now_s=1000)
    claim_all(journal, "a")
    finish(journal, "1000-prefetch-1", Receipt(ItemState.FAILED, error="e" * 9999), owner="a", now_s=1002)
    (row,) = journal.receipts()
    assert len(row["error"]) == 300


@pytest.mark.parametrize("url", ["mysql://u:secret@h/db", "nonsense://x", "://"])
def test_a_journal_elsewhere_is_a_config_error_without_its_secret(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Journal(url)
    assert "secret" not in str(caught.value)
