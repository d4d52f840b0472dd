"""One pusher, one plan: what is carried out, tried again, refused, expired."""

import time
from pathlib import Path
from typing import Any

import pytest
from pushes import Fake, item, raising, run
from waiting import eventually
from xcache_server import has_ended

from features.common.errors import TargetUnavailable
from prefetch.directory import DirectoryTarget
from prefetch.journal.journal import Journal
from prefetch.journal.tables import Try
from prefetch.push.origins import SourceHealth, SourceLimits
from prefetch.push.push import PushLimits, PushSummary, push
from prefetch.target import Held


def test_a_plan_is_carried_out_once(world: Any, journal: Journal) -> None:
    names = [world.add(f"/store/p/{world.kind}{number}", b"x" * 400_000) for number in range(20)]
    first = run(world.target, journal, [item(number, name=name) for number, name in enumerate(names)])
    assert (first.pushed, first.already_done, first.failed, first.bytes_fetched) == (20, 0, 0, 8_000_000)
    assert all((world.namespace / name[1:]).stat().st_size == 400_000 for name in names)
    receipts = list(journal.reports.receipts())
    assert {row["confirmed_by"] for row in receipts} == {"cinfo" if world.kind == "xcache" else "directory"}
    assert all(row["seconds"] > 0 and row["attempts"] == 1 and row["bytes"] == 400_000 for row in receipts)
    second = run(world.target, journal)
    assert (second.pushed, second.already_done, second.bytes_fetched) == (0, 0, 0)
    third = run(world.target, journal, [item(n, name=name, plan=1) for n, name in enumerate(names)])
    assert (third.pushed, third.already_done, third.bytes_fetched) == (0, 20, 0)


def test_pin_renew_unpin_and_evict(world: Any, journal: Journal) -> None:
    name = world.add("/store/p/pinned", b"x" * 200_000)
    world.target.prefetch(name, timeout_s=20)
    assert eventually(lambda: has_ended(world.target, name))
    fresh = run(world.target, journal, [item(1, "pin", name=name)])
    assert (fresh.already_done, fresh.pushed) == (1, 0)
    before = world.target.confirm(name).held.last_detach_s
    time.sleep(1.1)
    assert run(world.target, journal, touch_every_s=1, timeout_s=60).pins_renewed == 1
    assert eventually(lambda: world.target.confirm(name).held.last_detach_s > before)
    plan = [item(1, action, name=name, plan=1) for action in ("unpin", "evict")]
    last = run(world.target, journal, plan, touch_every_s=0)
    soon: Any = pytest.approx(0, abs=60)
    assert (last.pushed, last.pins_renewed) == (2, 0)
    assert world.target.confirm(name).held is None
    assert run(world.target, journal, touch_every_s=0) == PushSummary(seconds=soon)


def test_a_missing_file_is_a_failed_receipt(world: Any, journal: Journal) -> None:
    summary = run(world.target, journal, [item(1, name="/store/p/none"), item(2, name="/store/../x")])
    assert (summary.failed, summary.pushed) == (2, 0)
    assert sum(summary.failures.values()) == 2
    assert not any("/store/" in kind for kind in summary.failures)
    errors = [row["error"] for row in journal.reports.receipts()]
    assert len(errors) == 2 and all(errors)
    assert [row["attempts"] for row in journal.reports.receipts()] == [1, 1]


def test_a_pin_of_a_file_that_is_gone_fails(world: Any, journal: Journal) -> None:
    assert run(world.target, journal, [item(1, "pin", name="/store/p/never")]).failed == 1
    (row,) = journal.reports.receipts()
    assert "does not hold" in row["error"]


def test_evictions_go_first_then_pins_then_prefetches_by_rank(journal: Journal) -> None:
    fake = Fake()
    for name in ("/e", "/p", "/q"):
        fake.held[name] = Held(name, 10, 10, True, 1, False)
    plan = [item(2, name="/b"), item(1, name="/a"), item(3, name="/c"), item(1, "pin", name="/p")]
    run(fake, journal, [*plan, item(1, "evict", name="/e")], parallel=1)
    assert fake.log == ["evict /e", "touch /p", "prefetch /a", "prefetch /b", "prefetch /c"]


def test_what_the_cache_does_not_confirm_is_not_done(journal: Journal) -> None:
    fake = Fake()
    fake.forgets = True
    summary = run(fake, journal, [item(1, name="/a")], timeout_s=0.1, attempts=2)
    assert (summary.failed, summary.pushed, len(fake.log)) == (1, 0, 2)
    (row,) = journal.reports.receipts()
    assert (row["state"], row["attempts"]) == ("failed", 2) and "does not confirm" in row["error"]


def test_away_once_is_tried_again(journal: Journal) -> None:
    fake, failures = Fake(), [TargetUnavailable("away")]

    def flaky(_verb: str, _name: str) -> None:
        if failures:
            raise failures.pop()

    fake.before = flaky
    assert run(fake, journal, [item(1, name="/a"), item(2, name="/b")], parallel=1).pushed == 2
    assert [row["attempts"] for row in journal.reports.receipts()] == [2, 1]


def test_evictions_are_left_to_a_steward_until_their_time_is_over(journal: Journal) -> None:
    fake = Fake()
    fake.held = {name: Held(name, 10, 10, True, 1, False) for name in ("/e", "/f")}
    plan = [item(1, "evict", name="/e"), item(2, "evict", name="/f"), item(3)]
    summary = run(fake, journal, plan, evicts=False)
    assert (summary.pushed, summary.left_to_steward, sorted(fake.held)) == (1, 2, ["/e", "/f", "/store/p/f3"])
    assert journal.reports.evictions("c", now_s=time.time()) == ["/e", "/f"]
    assert run(fake, journal, evicts=False).left_to_steward == 2
    limits = PushLimits(evicts=False)
    later = push(fake, journal, cache="c", now_s=lambda: time.time() + 2 * 86400, limits=limits)
    assert (later.expired, later.left_to_steward) == (0, 0), "the steward had no need of them"
    assert journal.reports.counts()["expired"] == 2


def test_a_fault_of_ours_is_raised_and_leaves_nothing_running(journal: Journal) -> None:
    fake = Fake()
    fake.before = raising(ZeroDivisionError())
    journal.plans.record_plan([item(number) for number in range(9)], now_s=time.time())
    with pytest.raises(ZeroDivisionError):
        run(fake, journal)
    assert journal.reports.counts()["running"] == 0


def test_progress_is_told_of_every_item(journal: Journal) -> None:
    journal.plans.record_plan([item(number) for number in range(30)], now_s=time.time())
    steps: list[str] = []
    push(
        Fake(),
        journal,
        cache="c",
        on_progress=lambda each, receipt: steps.append(each.item_id + receipt.state),
    )
    assert sorted(steps) == sorted(f"0-prefetch-{number}done" for number in range(30))


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
    run(fake, journal, [item(number) for number in range(30)], parallel=3)
    assert most[0] == 3


def test_a_lost_pin_is_failed_and_not_renewed_again(tmp_path: Path, journal: Journal) -> None:
    (tmp_path / "origin").mkdir()
    (tmp_path / "origin" / "x").write_bytes(b"x")
    target = DirectoryTarget("d", tmp_path / "origin", tmp_path / "cache")
    target.prefetch("/x", timeout_s=5)
    assert run(target, journal, [item(1, "pin", name="/x")]).already_done == 1
    target.evict("/x", timeout_s=5)
    assert run(target, journal, touch_every_s=0).pins_renewed == 0
    assert journal.reports.counts()["failed"] == 1


def tries(source: str, n_failed: int, n_good: int, at_s: float = 1000) -> list[Try]:
    failed = [Try(source, at_s, 30.0, True)] * n_failed
    return failed + [Try(source, at_s, 1.0, False)] * n_good


def test_a_source_is_left_alone_while_most_of_its_last_tries_failed() -> None:
    tried = [*tries("few", 4, 0), *tries("half", 5, 5), *tries("bad", 4, 3), *tries("", 9, 0)]
    sources = SourceHealth(SourceLimits(0.5, 600), tried)
    left = sources.left_alone(1500)
    assert [state.source for state in left] == ["", "bad"]
    assert str(left[0]) == "the cache's own origin: 9 of 9 tries failed, 270 s wasted"
    assert [state.source for state in sources.states(1500)] == ["", "half", "bad", "few"]
    assert sources.left_alone(1600) and not sources.left_alone(1601) and not sources.states(1601)


def test_a_file_in_use_is_not_evicted(journal: Journal) -> None:
    fake = Fake()
    fake.held["/e"] = Held("/e", 10, 10, True, 1, True)
    assert run(fake, journal, [item(1, "evict", name="/e")]).failed == 1
    assert fake.log == []
