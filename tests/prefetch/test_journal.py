from __future__ import annotations

import concurrent.futures
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from features.errors import ConfigError
from features.schema import RECEIPTS, arrow_schema
from prefetch.journal import LEASE_S, Item, Journal, Receipt
from prefetch.owner import is_dead, new_owner

DAY = 86400


def item(number: int, action: str = "prefetch", *, as_of_s: int = 1000, name: str | None = None) -> Item:
    lfn = name or f"/store/f{number}"
    item_id = f"{as_of_s}-{action}-{number}"
    return Item(item_id, "xc", as_of_s, f"cms:{lfn}", lfn, action, number, 10, 10, as_of_s + DAY)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(str(tmp_path / "journal.db"))
    yield opened
    opened.close()


def claim_all(journal: Journal, owner: str, action: str = "prefetch", now_s: float = 1001) -> list[str]:
    return [each.item_id for each in journal.claim("xc", action, 100, owner=owner, now_s=now_s)]


def test_a_plan_recorded_twice_is_recorded_once(journal: Journal) -> None:
    plan = [item(number) for number in range(5)]
    assert journal.record_plan(plan, now_s=1000) == 5
    (first,) = journal.claim("xc", "prefetch", 1, owner="a", now_s=1001)
    journal.finish(first.item_id, Receipt("done", bytes=10), owner="a", now_s=1002)
    assert journal.record_plan([*plan, item(5)], now_s=1003) == 1
    assert journal.record_plan([], now_s=1003) == 0
    assert journal.counts("xc") == {"planned": 5, "running": 0, "done": 1, "failed": 0, "expired": 0}
    assert journal.counts("other")["planned"] == 0


def test_claims_go_by_rank_and_failed_tries_wait_for_the_rest(journal: Journal) -> None:
    journal.record_plan([item(3), item(1), item(2)], now_s=1000)
    (first,) = journal.claim("xc", "prefetch", 1, owner="a", now_s=1001)
    assert (first.rank, first.attempts) == (1, 1)
    journal.finish(first.item_id, Receipt("planned", error="away"), owner="a", now_s=1002)
    claimed = journal.claim("xc", "prefetch", 9, owner="a", now_s=1003)
    assert [(each.rank, each.attempts) for each in claimed] == [(2, 1), (3, 1), (1, 2)]
    assert journal.claim("xc", "prefetch", 9, owner="b", now_s=1003) == []


def test_no_item_is_claimed_twice_by_runs_at_once(journal: Journal, tmp_path: Path) -> None:
    journal.record_plan([item(number) for number in range(200)], now_s=1000)
    journals = [Journal(str(tmp_path / "journal.db")) for _ in range(4)]

    def work(number: int) -> list[str]:
        mine: list[str] = []
        while got := journals[number].claim("xc", "prefetch", 3, owner=f"run{number}", now_s=1001):
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
    assert not journal.finish("1000-prefetch-1", Receipt("done"), owner="b", now_s=1002)
    assert journal.finish("1000-prefetch-1", Receipt("done"), owner="a", now_s=1002)
    assert not journal.finish("1000-prefetch-1", Receipt("failed"), owner="a", now_s=1003)


def test_what_a_dead_run_left_is_taken_over(journal: Journal) -> None:
    script = "from prefetch.owner import new_owner; print(new_owner())"
    dead = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.strip()
    alive = new_owner()
    journal.record_plan([item(1), item(2)], now_s=1000)
    journal.claim("xc", "prefetch", 1, owner=dead, now_s=1001)
    journal.claim("xc", "prefetch", 1, owner=alive, now_s=1001)
    assert is_dead(dead) and not is_dead(alive)
    assert journal.recover("xc", now_s=1002) == 1
    assert claim_all(journal, "next") == ["1000-prefetch-1"]


def test_a_silent_run_elsewhere_is_taken_over_after_its_lease(journal: Journal) -> None:
    journal.record_plan([item(1)], now_s=1000)
    claim_all(journal, "otherhost|1|5|x")
    journal.heartbeat("otherhost|1|5|x", now_s=2000)
    assert journal.recover("xc", now_s=2000 + LEASE_S) == 0
    assert journal.recover("xc", now_s=2001 + LEASE_S) == 1


def test_late_items_expire_and_are_not_claimed(journal: Journal) -> None:
    journal.record_plan([item(1), item(2)], now_s=1000)
    journal.claim("xc", "prefetch", 1, owner="a", now_s=1001)
    late = 1000 + DAY
    assert claim_all(journal, "b", now_s=late) == []
    assert journal.expire("xc", now_s=late - 1) == 0
    assert journal.expire("xc", now_s=late) == 1
    assert journal.counts()["expired"] == 1


def pinned(journal: Journal, number: int, renewed_at_s: float, **where: int) -> None:
    pin = item(number, "pin", **where)
    journal.record_plan([pin], now_s=pin.as_of_s)
    claim_all(journal, "a", "pin", now_s=pin.as_of_s + 1)
    journal.finish(pin.item_id, Receipt("done", renewed_at_s=renewed_at_s), owner="a", now_s=pin.as_of_s + 1)


def due(journal: Journal, now_s: float, touch_every_s: int = 100) -> list[str]:
    return [pin.item_id for pin in journal.due_pins("xc", now_s=now_s, touch_every_s=touch_every_s)]


def test_pins_are_due_after_touch_every_until_they_expire(journal: Journal) -> None:
    pinned(journal, 2, 1500)
    pinned(journal, 1, 1400)
    assert due(journal, 1499) == []
    assert due(journal, 1500) == ["1000-pin-1"]
    assert due(journal, 1600) == ["1000-pin-1", "1000-pin-2"]
    journal.renewed("1000-pin-1", at_s=1600)
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
    journal.finish(f"2000-{action}-1", Receipt("done"), owner="a", now_s=2001)
    assert due(journal, 5000) == []
    pinned(journal, 1, 3001, as_of_s=3000)
    assert due(journal, 5000) == ["3000-pin-1"]


def test_a_lost_pin_is_failed(journal: Journal) -> None:
    pinned(journal, 1, 1001)
    journal.lose_pin("1000-pin-1", "gone", now_s=2000)
    assert due(journal, 5000) == []
    assert journal.counts()["failed"] == 1


def test_receipts_are_rows_of_the_table(journal: Journal) -> None:
    journal.record_plan([item(1), dataclasses.replace(item(2), item_id="x", as_of_s=2000)], now_s=1000)
    claim_all(journal, "a")
    receipt = Receipt("done", 7, 0.5, None, "cinfo")
    journal.finish("1000-prefetch-1", receipt, owner="a", now_s=1002.5)
    (row,) = journal.receipts(as_of_s=1000)
    assert (row.pop("as_of_s"), row.pop("cache")) == (1000, "xc")
    table = pa.Table.from_pylist([row], schema=arrow_schema(RECEIPTS))
    assert table.to_pylist()[0] == row
    assert (row["state"], row["attempts"], row["bytes"], row["confirmed_by"]) == ("done", 1, 7, "cinfo")
    assert row["updated_at"].timestamp() == 1002.5
    assert len(journal.receipts()) == 2


def test_errors_are_bounded(journal: Journal) -> None:
    journal.record_plan([item(1)], now_s=1000)
    claim_all(journal, "a")
    journal.finish("1000-prefetch-1", Receipt("failed", error="e" * 9999), owner="a", now_s=1002)
    assert len(journal.receipts()[0]["error"]) == 300


@pytest.mark.parametrize("url", ["mysql://u:secret@h/db", "nonsense://x", "://"])
def test_a_journal_elsewhere_is_a_config_error_without_its_secret(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Journal(url)
    assert "secret" not in str(caught.value)
