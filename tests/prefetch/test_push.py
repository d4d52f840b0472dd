from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from features.errors import PushRejected, SourceUnavailable, TargetUnavailable
from prefetch.directory import DirectoryTarget
from prefetch.journal import LEASE_S, Item, Journal, Patience
from prefetch.push import PushLimits, PushSummary, push
from prefetch.target import Confirmation, Held

AT_ONCE: dict[str, Any] = {"retry_after_s": 0.0, "evict_guard_s": 0}


def item(number: int, action: str = "prefetch", *, plan: int = 0, name: str | None = None) -> Item:
    lfn = name or f"/store/p/f{number}"
    as_of_s = int(time.time()) + plan
    return Item(
        f"{plan}-{action}-{number}", "c", as_of_s, f"t:{lfn}", lfn, action, number, 0, 10, as_of_s + 3600
    )


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(str(tmp_path / "journal.db"))
    yield opened
    opened.close()


def run(target: Any, journal: Journal, **limits: Any) -> PushSummary:
    return push(target, journal, cache="c", limits=PushLimits(**({"timeout_s": 20.0} | AT_ONCE | limits)))


def test_a_plan_is_carried_out_once(world: Any, journal: Journal) -> None:
    names = [world.add(f"/store/p/{world.kind}{number}", b"x" * 400_000) for number in range(20)]
    journal.record_plan([item(number, name=name) for number, name in enumerate(names)], now_s=time.time())
    first = run(world.target, journal)
    assert (first.pushed, first.already_done, first.failed, first.bytes_fetched) == (20, 0, 0, 8_000_000)
    assert all((world.namespace / name[1:]).stat().st_size == 400_000 for name in names)
    receipts = journal.receipts()
    assert {row["confirmed_by"] for row in receipts} == {"cinfo" if world.kind == "xcache" else "directory"}
    assert all(row["seconds"] > 0 and row["attempts"] == 1 and row["bytes"] == 400_000 for row in receipts)
    second = run(world.target, journal)
    assert (second.pushed, second.already_done, second.bytes_fetched) == (0, 0, 0)
    journal.record_plan([item(n, name=name, plan=1) for n, name in enumerate(names)], now_s=time.time())
    third = run(world.target, journal)
    assert (third.pushed, third.already_done, third.bytes_fetched) == (0, 20, 0)


def test_pin_renew_unpin_and_evict(world: Any, journal: Journal) -> None:
    name = world.add("/store/p/pinned", b"x" * 200_000)
    world.target.prefetch(name, timeout_s=20)
    # A busy cache notes the end of a use up to 30 s late.
    assert world.eventually(lambda: world.target.confirm(name).held.last_detach_s is not None, 45)
    journal.record_plan([item(1, "pin", name=name)], now_s=time.time())
    fresh = run(world.target, journal)
    assert (fresh.already_done, fresh.pushed) == (1, 0)
    before = world.target.confirm(name).held.last_detach_s
    time.sleep(1.1)
    assert run(world.target, journal, touch_every_s=1, timeout_s=60).pins_renewed == 1
    assert world.target.confirm(name).held.last_detach_s > before
    journal.record_plan(
        [item(1, "unpin", name=name, plan=1), item(1, "evict", name=name, plan=1)], now_s=time.time()
    )
    last = run(world.target, journal, touch_every_s=0)
    assert (last.pushed, last.pins_renewed) == (2, 0)
    assert world.target.confirm(name).held is None
    assert run(world.target, journal, touch_every_s=0) == PushSummary(seconds=pytest.approx(0, abs=5))


def test_a_missing_file_is_a_failed_receipt(world: Any, journal: Journal) -> None:
    journal.record_plan([item(1, name="/store/p/none"), item(2, name="/store/../x")], now_s=time.time())
    summary = run(world.target, journal)
    assert (summary.failed, summary.pushed) == (2, 0)
    errors = [row["error"] for row in journal.receipts()]
    assert len(errors) == 2 and all(errors)
    assert [row["attempts"] for row in journal.receipts()] == [1, 1]


def test_a_pin_of_a_file_that_is_gone_fails(world: Any, journal: Journal) -> None:
    journal.record_plan([item(1, "pin", name="/store/p/never")], now_s=time.time())
    assert run(world.target, journal).failed == 1
    assert "does not hold" in journal.receipts()[0]["error"]


class Fake:
    """A cache in memory whose verbs can be made to fail."""

    name = "fake"

    def __init__(self) -> None:
        self.removes_open = False
        self.held: dict[str, Held] = {}
        self.log: list[str] = []
        self.lock = threading.Lock()
        self.before: Callable[[str, str], None] = lambda verb, name: None
        self.forgets = False

    def _verb(self, verb: str, name: str) -> None:
        with self.lock:
            self.log.append(f"{verb} {name}")
        self.before(verb, name)

    def prefetch(self, name: str, *, timeout_s: float) -> int:
        self._verb("prefetch", name)
        if not self.forgets:
            self.held[name] = Held(name, 10, 10, True, int(time.time()), False)
        return 10

    def touch(self, name: str, *, timeout_s: float) -> None:
        self._verb("touch", name)
        self.held[name] = Held(name, 10, 10, True, int(time.time()), False)

    def evict(self, name: str, *, timeout_s: float) -> None:
        self._verb("evict", name)
        self.held.pop(name, None)

    def removes_open_files(self) -> bool:
        return self.removes_open

    def confirm(self, name: str) -> Confirmation:
        return Confirmation(self.held.get(name), "directory")

    def inventory(self) -> list[Held]:
        return list(self.held.values())


def test_evictions_go_first_then_pins_then_prefetches_by_rank(journal: Journal) -> None:
    fake = Fake()
    for name in ("/e", "/p", "/q"):
        fake.held[name] = Held(name, 10, 10, True, 1, False)
    plan = [item(2, name="/b"), item(1, name="/a"), item(3, name="/c"), item(1, "pin", name="/p")]
    journal.record_plan([*plan, item(1, "evict", name="/e")], now_s=time.time())
    run(fake, journal, parallel=1)
    assert fake.log == ["evict /e", "touch /p", "prefetch /a", "prefetch /b", "prefetch /c"]


def test_what_the_cache_does_not_confirm_is_not_done(journal: Journal) -> None:
    fake = Fake()
    fake.forgets = True
    journal.record_plan([item(1, name="/a")], now_s=time.time())
    summary = run(fake, journal, timeout_s=0.1, attempts=2)
    assert (summary.failed, summary.pushed, len(fake.log)) == (1, 0, 2)
    (row,) = journal.receipts()
    assert (row["state"], row["attempts"]) == ("failed", 2) and "does not confirm" in row["error"]


def test_away_once_is_tried_again(journal: Journal) -> None:
    fake, failures = Fake(), [TargetUnavailable("away")]

    def flaky(_verb: str, _name: str) -> None:
        if failures:
            raise failures.pop()

    fake.before = flaky
    journal.record_plan([item(1, name="/a"), item(2, name="/b")], now_s=time.time())
    assert run(fake, journal, parallel=1).pushed == 2
    assert [row["attempts"] for row in journal.receipts()] == [2, 1]


def test_rejected_is_not_tried_again(journal: Journal) -> None:
    fake = Fake()
    fake.before = _raise(PushRejected("no"))
    journal.record_plan([item(1, name="/a")], now_s=time.time())
    assert run(fake, journal).failed == 1
    assert len(fake.log) == 1


def test_a_cache_that_is_away_is_left_alone(journal: Journal) -> None:
    fake = Fake()
    fake.before = _raise(TargetUnavailable("connection refused"))
    journal.record_plan([item(number) for number in range(100)], now_s=time.time())
    summary = run(fake, journal, parallel=2)
    assert summary.stopped is not None and "connection refused" in summary.stopped
    assert len(fake.log) <= 7
    assert {state: n for state, n in journal.counts().items() if n} == {"planned": 100}
    fake.before = lambda verb, name: None
    assert run(fake, journal).pushed == 100


def test_a_file_in_use_is_not_evicted(journal: Journal) -> None:
    fake = Fake()
    fake.held["/e"] = Held("/e", 10, 10, True, 1, True)
    journal.record_plan([item(1, "evict", name="/e")], now_s=time.time())
    assert run(fake, journal).failed == 1
    assert fake.log == []


def test_late_items_expire(journal: Journal) -> None:
    journal.record_plan([item(1)], now_s=time.time())
    fake = Fake()
    summary = push(fake, journal, cache="c", now_s=lambda: time.time() + 7200)
    assert (summary.expired, fake.log) == (1, [])


def test_a_fault_of_ours_is_raised_and_leaves_nothing_running(journal: Journal) -> None:
    fake = Fake()
    fake.before = _raise(ZeroDivisionError())
    journal.record_plan([item(number) for number in range(9)], now_s=time.time())
    with pytest.raises(ZeroDivisionError):
        run(fake, journal)
    assert journal.counts()["running"] == 0


def test_progress_is_told_of_every_item(journal: Journal) -> None:
    journal.record_plan([item(number) for number in range(30)], now_s=time.time())
    told: list[str] = []
    push(
        Fake(),
        journal,
        cache="c",
        on_progress=lambda each, receipt: told.append(each.item_id + receipt.state),
    )
    assert sorted(told) == sorted(f"0-prefetch-{number}done" for number in range(30))


def test_never_more_than_parallel_at_once(journal: Journal) -> None:
    fake, busy, most = Fake(), [0], [0]

    def slow(_verb: str, _name: str) -> None:
        with fake.lock:
            busy[0] += 1
            most[0] = max(most[0], busy[0])
        time.sleep(0.01)
        with fake.lock:
            busy[0] -= 1

    fake.before = slow
    journal.record_plan([item(number) for number in range(30)], now_s=time.time())
    run(fake, journal, parallel=3)
    assert most[0] == 3


def test_a_lost_pin_is_failed_and_not_renewed_again(tmp_path: Path, journal: Journal) -> None:
    (tmp_path / "origin").mkdir()
    (tmp_path / "origin" / "x").write_bytes(b"x")
    target = DirectoryTarget("d", tmp_path / "origin", tmp_path / "cache")
    target.prefetch("/x", timeout_s=5)
    journal.record_plan([item(1, "pin", name="/x")], now_s=time.time())
    assert run(target, journal).already_done == 1
    target.evict("/x", timeout_s=5)
    assert run(target, journal, touch_every_s=0).pins_renewed == 0
    assert journal.counts()["failed"] == 1


def test_two_pushers_share_a_plan_and_nothing_is_done_twice(tmp_path: Path) -> None:
    url, fake = str(tmp_path / "journal.db"), Fake()
    fake.before = lambda verb, name: time.sleep(0.005)
    journals = [Journal(url), Journal(url)]
    journals[0].record_plan([item(number) for number in range(60)], now_s=time.time())
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        summaries = list(pool.map(lambda each: run(fake, each, parallel=3), journals))
    assert sum(one.pushed for one in summaries) == 60 and min(one.pushed for one in summaries) > 5
    assert len(fake.log) == len(set(fake.log)) == 60
    for each in journals:
        each.close()


def test_pins_due_are_renewed_by_one_of_two_pushers(tmp_path: Path) -> None:
    url, fake = str(tmp_path / "journal.db"), Fake()
    journals = [Journal(url), Journal(url)]
    names = [f"/p{number}" for number in range(20)]
    journals[0].record_plan([item(n, "pin", name=name) for n, name in enumerate(names)], now_s=time.time())
    old_s = int(time.time()) - 1000
    fake.held = {name: Held(name, 10, 10, True, old_s, False) for name in names}
    assert run(fake, journals[0], touch_every_s=2000).already_done == 20
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        summaries = list(pool.map(lambda each: run(fake, each, touch_every_s=500), journals))
    assert sum(one.pins_renewed for one in summaries) == 20
    assert len(fake.log) == len(set(fake.log)) == 20
    for each in journals:
        each.close()


def test_a_run_takes_over_what_a_dead_one_left_while_it_works(journal: Journal) -> None:
    journal.record_plan([item(number) for number in range(9)], now_s=time.time())
    long_ago = time.time() - LEASE_S + 1.0
    journal.claim("c", "prefetch", 3, owner="far|1|5|x", now_s=long_ago, patience=Patience())
    fake = Fake()
    fake.before = lambda verb, name: time.sleep(0.3)
    summary = push(fake, journal, cache="c", limits=PushLimits(parallel=1), beat_s=0.0)
    assert (summary.pushed, summary.in_other_hands) == (9, 0)


def test_what_others_have_in_hand_is_left_to_them(journal: Journal) -> None:
    journal.record_plan([item(number) for number in range(5)], now_s=time.time())
    journal.claim("c", "prefetch", 2, owner="far|1|5|x", now_s=time.time(), patience=Patience())
    summary = run(Fake(), journal)
    assert (summary.pushed, summary.in_other_hands) == (3, 2)


def test_a_cancelled_plan_stops_under_way(journal: Journal) -> None:
    journal.record_plan([item(number) for number in range(50)], now_s=time.time())
    fake = Fake()

    def cancel_at_ten(_verb: str, _name: str) -> None:
        if len(fake.log) == 10:
            journal.cancel("c", now_s=time.time())

    fake.before = cancel_at_ten
    assert run(fake, journal, parallel=1).pushed == 10
    assert journal.counts()["cancelled"] == 40


def test_a_source_that_is_away_is_left_alone_and_reconsidered(journal: Journal) -> None:
    fake, clock = Fake(), [time.time()]
    plan = [dataclasses.replace(item(n), source="bad:1" if n < 50 else "good:1") for n in range(60)]
    journal.record_plan(plan, now_s=clock[0])
    bad = {each.name for each in plan if each.source == "bad:1"}

    def away(_verb: str, name: str) -> None:
        if name in bad:
            raise SourceUnavailable("the origin is away")

    def go() -> PushSummary:
        return push(
            fake, journal, cache="c", now_s=lambda: clock[0], limits=PushLimits(parallel=1, **AT_ONCE)
        )

    fake.before = away
    first = go()
    assert (first.pushed, first.failed, first.stopped) == (10, 0, None)
    assert first.left_alone == ("bad:1: 5 of 5 tries failed, 0 s wasted",)
    assert sum(name in bad for name in map(_name, fake.log)) == 5
    clock[0] += 600
    assert go().left_alone == first.left_alone and len(fake.log) == 15
    clock[0] += 1300
    fake.before = lambda verb, name: None
    assert (go().pushed, journal.counts()["done"]) == (50, 60)


def test_failed_tries_are_spread_over_time(journal: Journal) -> None:
    fake, times = Fake(), list[float]()

    def away(_verb: str, _name: str) -> None:
        times.append(time.monotonic())
        raise SourceUnavailable("away")

    fake.before = away
    journal.record_plan([item(1)], now_s=time.time())
    assert run(fake, journal, retry_after_s=0.2).failed == 1
    assert len(times) == 3 and times[1] - times[0] >= 0.2 and times[2] - times[1] >= 0.4
    assert journal.faults("c") == {"source": 1}


def test_bytes_a_second_hold_on_average(journal: Journal) -> None:
    plan = [dataclasses.replace(item(number), size_bytes=10) for number in range(11)]
    journal.record_plan(plan, now_s=time.time())
    fake = Fake()
    summary = run(fake, journal, bytes_per_s=100)
    assert summary.pushed == 11 and summary.seconds >= 0.9
    journal.record_plan(
        [dataclasses.replace(each, item_id=f"x{each.item_id}") for each in plan], now_s=time.time()
    )
    # What is there already costs nothing.
    assert run(fake, journal, bytes_per_s=10, parallel=1).seconds < 5


@pytest.mark.parametrize(
    ("removes_open", "age_s", "failed"), [(True, 100, 1), (True, 700, 0), (False, 100, 0)]
)
def test_a_server_that_removes_open_files_is_asked_late(
    journal: Journal, removes_open: bool, age_s: int, failed: int
) -> None:
    fake = Fake()
    fake.removes_open = removes_open
    fake.held["/e"] = Held("/e", 10, 10, True, int(time.time()) - age_s, False)
    journal.record_plan([item(1, "evict", name="/e")], now_s=time.time())
    assert run(fake, journal, evict_guard_s=600).failed == failed
    assert ("/e" in fake.held) == bool(failed)


def test_a_file_of_another_size_than_planned_has_changed(journal: Journal) -> None:
    fake = Fake()
    fake.held["/old"] = Held("/old", 9, 9, True, 1, False)
    plan = [dataclasses.replace(item(n, name=name), size_bytes=11) for n, name in enumerate(("/old", "/new"))]
    journal.record_plan(plan, now_s=time.time())
    assert run(fake, journal).failed == 2
    errors = [row["error"] for row in journal.receipts()]
    assert "the cache holds a complete file of 9 bytes" in errors[0] and "changed at its source" in errors[0]
    assert "its source has a file of 10 bytes" in errors[1]


def test_touches_follow_the_age_of_unpinned_files(journal: Journal) -> None:
    now, fake = int(time.time()), Fake()
    ages = {"/pinned-old": 500, "/pinned-young": 300, "/oldest": 800, "/other": 10}
    fake.held = {name: Held(name, 10, 10, True, now - age, False) for name, age in ages.items()}
    plan = [item(n, "pin", name=f"/pinned-{age}") for n, age in enumerate(("old", "young"))]
    journal.record_plan(plan, now_s=now)
    # Half of 800 s: the older one would be in the tail soon.
    summary = run(fake, journal, touch_every_s=None)
    assert (summary.pushed, summary.already_done, fake.log) == (1, 1, ["touch /pinned-old"])


def _name(line: str) -> str:
    return line.partition(" ")[2]


def _raise(error: Exception) -> Callable[[str, str], None]:
    def fail(_verb: str, _name: str) -> None:
        raise error

    return fail
