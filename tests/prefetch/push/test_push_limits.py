"""The limits of a push: cancelled plans, origins, rates, guards, touches."""

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator

import pytest
from pushes import AT_ONCE, Fake, item, lfn_of, run
from waiting import eventually

from features.common.errors import InputError, SourceUnavailable
from features.common.times import DAY_S
from prefetch.journal import lease
from prefetch.journal.journal import Journal
from prefetch.journal.lease import LEASE_S
from prefetch.push import attempt, worker
from prefetch.push.push import PushLimits, PushSummary, push
from prefetch.push.worker import AHEAD_S, MOST_S, WRITE_S
from prefetch.target import Held


def test_a_cancelled_plan_stops_under_way(journal: Journal) -> None:
    journal.plans.record_plan([item(number) for number in range(300)], now_s=time.time())
    fake = Fake()

    def cancel_at_fifty(_verb: str, _name: str) -> None:
        time.sleep(0.01)
        if len(fake.log) == 50:
            journal.plans.cancel("c", now_s=time.time())

    fake.before = cancel_at_fifty
    summary = run(fake, journal, parallel=1)
    # Some are marked ahead then, and the run looks for what was cancelled a few times a second.
    assert 50 <= summary.pushed <= 50 + (AHEAD_S + WRITE_S) / 0.01
    assert journal.reports.counts()["cancelled"] == 300 - summary.pushed
    assert {row["attempts"] for row in journal.reports.receipts() if row["state"] == "cancelled"} == {0}


def away_for(names: Collection[str]) -> Callable[[str, str], None]:
    def fail(_verb: str, name: str) -> None:
        if name in names:
            raise SourceUnavailable("the origin is away")

    return fail


def test_a_source_that_is_away_is_left_alone_and_reconsidered(journal: Journal) -> None:
    fake, clock = Fake(), [time.time()]
    plan = [dataclasses.replace(item(n), source="bad:1" if n < 50 else "good:1") for n in range(60)]
    journal.plans.record_plan(plan, now_s=clock[0])
    bad = {each.name for each in plan if each.source == "bad:1"}

    def go() -> PushSummary:
        return push(
            fake, journal, cache="c", now_s=lambda: clock[0], limits=PushLimits(parallel=1, **AT_ONCE)
        )

    fake.before = away_for(bad)
    first = go()
    assert (first.pushed, first.failed, first.stopped) == (10, 0, None)
    assert first.left_alone == ("bad:1: 5 of 5 tries failed, 0 s wasted",)
    assert sum(name in bad for name in map(lfn_of, fake.log)) == 5
    clock[0] += 600
    assert go().left_alone == first.left_alone and len(fake.log) == 15
    clock[0] += 1300
    fake.before = lambda verb, name: None
    assert (go().pushed, journal.reports.counts()["done"]) == (50, 60)


@pytest.mark.parametrize("is_renewal", [True, False])
def test_pins_of_a_dead_origin_are_left_alone_and_the_rest_goes_on(
    journal: Journal, is_renewal: bool
) -> None:
    fake, clock = Fake(), [time.time()]
    pins = [dataclasses.replace(item(n, "pin"), source="bad:1" if n < 20 else "good:1") for n in range(25)]
    plan = [*pins, *(dataclasses.replace(item(n), source="good:1") for n in range(30, 40))]
    old_s = int(clock[0]) - 1000
    fake.held = {pin.name: Held(pin.name, 10, 10, True, old_s, False) for pin in pins}
    bad = {pin.name for pin in pins if pin.source == "bad:1"}

    def go(touch_every_s: int) -> PushSummary:
        limits = PushLimits(parallel=1, touch_every_s=touch_every_s, **AT_ONCE)
        return push(fake, journal, cache="c", now_s=lambda: clock[0], limits=limits)

    if is_renewal:
        journal.plans.record_plan(pins, now_s=clock[0])
        assert go(2000).already_done == 25
    fake.before = away_for(bad)
    journal.plans.record_plan(plan, now_s=clock[0])
    summary = go(500)
    assert (summary.stopped, summary.failed) == (None, 0)
    assert summary.pushed + summary.pins_renewed == 15 and summary.left_alone[0].startswith("bad:1: 5 of 5")
    assert sum(name in bad for name in map(lfn_of, fake.log)) == 5
    # They are due still, and another run looks at their origin anew.
    fake.before = lambda verb, name: None
    clock[0] += 10
    again = go(500)
    assert again.pushed + again.pins_renewed == 20


def test_failed_tries_are_spread_over_time(journal: Journal) -> None:
    fake, times = Fake(), list[float]()

    def away(_verb: str, _name: str) -> None:
        times.append(time.monotonic())
        raise SourceUnavailable("away")

    fake.before = away
    assert run(fake, journal, [item(1)], retry_after_s=0.2).failed == 1
    assert len(times) == 3 and times[1] - times[0] >= 0.2 and times[2] - times[1] >= 0.4
    assert journal.reports.faults("c") == {"source": 1}


def test_bytes_a_second_hold_on_average(journal: Journal) -> None:
    plan = [dataclasses.replace(item(number), size_bytes=10) for number in range(11)]
    fake = Fake()
    summary = run(fake, journal, plan, bytes_per_s=100)
    assert summary.pushed == 11 and summary.seconds >= 0.9
    # What is there already costs nothing.
    plan = [dataclasses.replace(each, item_id=f"x{each.item_id}") for each in plan]
    assert run(fake, journal, plan, bytes_per_s=10, parallel=1).seconds < 9


@pytest.mark.parametrize("removes_open", [False, True])
def test_a_file_that_the_server_keeps_is_no_fault_of_the_cache(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, removes_open: bool
) -> None:
    monkeypatch.setattr(attempt, "_EVICTED_WITHIN_S", 0.1)
    fake = Keeping()
    fake.removes_open = removes_open
    for number in range(3):
        fake.held[f"/k{number}"] = Held(f"/k{number}", 10, 10, True, 1, False)
    plan = [item(n, "evict", name=f"/k{n}") for n in range(3)]
    summary = run(fake, journal, plan, breaker=2, parallel=1, timeout_s=1.0, attempts=1)
    assert (summary.stopped is None, journal.reports.faults("c")) == (
        not removes_open,
        {"cache": 2} if removes_open else {"file": 3},
    )


class Keeping(Fake):
    """A cache that accepts evictions, and keeps all files."""

    def evict(self, name: str, *, timeout_s: float) -> None:
        self._verb("evict", name)


@pytest.mark.parametrize(
    ("skew_s", "age_s", "reason"),
    [
        (-660, 100_000, "is 660 s behind ours"),
        (660, 100_000, "is 660 s ahead of ours"),
        (-40, 630, "used within"),
        (40, 590, "used within"),
        (-40, 700, None),
        (40, 700, None),
    ],
)
def test_the_guard_knows_the_caches_clock(
    journal: Journal, skew_s: float, age_s: int, reason: str | None
) -> None:
    fake = Fake()
    fake.removes_open, fake.skew_s = True, skew_s
    fake.held["/e"] = Held("/e", 10, 10, True, int(time.time()) - age_s, False)
    run(fake, journal, [item(1, "evict", name="/e")], evict_guard_s=600)
    (receipt,) = journal.reports.receipts()
    assert receipt["state"] == ("failed" if reason else "done") and (reason or "") in (receipt["error"] or "")


def test_a_file_of_another_size_than_planned_has_changed(journal: Journal) -> None:
    fake = Fake()
    fake.held["/old"] = Held("/old", 9, 9, True, 1, False)
    plan = [dataclasses.replace(item(n, name=name), size_bytes=11) for n, name in enumerate(("/old", "/new"))]
    assert run(fake, journal, plan).failed == 2
    errors = [row["error"] for row in journal.reports.receipts()]
    assert "the cache holds a complete file of 9 bytes" in errors[0] and "changed at its source" in errors[0]
    assert "its source has a file of 10 bytes" in errors[1]


def test_touches_follow_the_age_of_unpinned_files(journal: Journal) -> None:
    now, fake = int(time.time()), Fake()
    ages = {"/pinned-old": 500, "/pinned-young": 300, "/oldest": 800, "/other": 10}
    fake.held = {name: Held(name, 10, 10, True, now - age, False) for name, age in ages.items()}
    plan = [item(n, "pin", name=f"/pinned-{age}") for n, age in enumerate(("old", "young"))]
    # Half of 800 s: the older one would be in the tail soon.
    summary = run(fake, journal, plan, touch_every_s=None)
    assert (summary.pushed, summary.already_done, fake.log) == (1, 1, ["touch /pinned-old"])


def test_a_last_use_of_the_future_keeps_no_pin_from_its_touch(journal: Journal) -> None:
    # As a forged datagram of the g-stream tells it, or a server whose clock was wrong.
    fake = Fake()
    fake.held["/p"] = Held("/p", 10, 10, True, int(time.time()) + 400 * DAY_S, False)
    assert run(fake, journal, [item(1, "pin", name="/p")], touch_every_s=600).pushed == 1
    assert fake.log == ["touch /p"]
    (pin,) = journal.reports.receipts()
    assert pin["state"] == "done" and not journal.reports.due_pins("c", now_s=time.time(), touch_every_s=600)


def test_a_record_of_1970_stops_no_touches(journal: Journal) -> None:
    now, fake = int(time.time()), Fake()
    fake.held = {
        "/x": Held("/x", 10, 10, True, 1, False),
        "/p": Held("/p", 10, 10, True, now - MOST_S, False),
    }
    run(fake, journal, [item(1, "pin", name="/p")], touch_every_s=None)
    assert fake.log == ["touch /p"]


def test_long_looks_at_files_and_slow_touches_keep_the_lease(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "BEAT_S", 0.0)
    monkeypatch.setattr(worker, "BEAT_S", 0.01)
    clock, kept = [time.time()], list[str | None]()

    def holder_later() -> str | None:
        return journal.leases.holder("c", now_s=clock[0] + 2 * LEASE_S / 3)

    class Slow(Fake):
        def inventory(self, expected: Collection[str] = ()) -> Iterator[Held]:
            for held in list(self.held.values()):
                clock[0] += 2 * LEASE_S / 3
                yield held
                kept.append(holder_later())

    def touched(_verb: str, _name: str) -> None:
        clock[0] += 2 * LEASE_S / 3
        kept.append(eventually(holder_later))

    fake = Slow()
    ages = {"/pinned": 5, "/other": 10_000}
    fake.held = {name: Held(name, 10, 10, True, int(clock[0]) - age, False) for name, age in ages.items()}
    fake.before = touched
    journal.plans.record_plan([item(1, "pin", name="/pinned")], now_s=clock[0])
    limits = PushLimits(touch_every_s=None)
    for n_renewed in (0, 1):
        summary = push(fake, journal, cache="c", now_s=lambda: clock[0], limits=limits)
        assert summary.pins_renewed == n_renewed
        clock[0] += 50_000
    assert len(kept) == 5 and all(kept)


def test_a_namespace_or_a_record_that_cannot_be_read_ends_no_push(journal: Journal) -> None:
    class Locked(Fake):
        def inventory(self, expected: Collection[str] = ()) -> list[Held]:
            raise InputError("namespace /cache: /store: a folder, no permission to read")

    def damaged(_verb: str, name: str) -> None:
        if name == "/damaged":
            raise InputError("/cache/damaged.cinfo: cinfo cut short")

    fake = Locked()
    fake.before = damaged
    plan = [item(1), item(2, "evict", name="/e"), item(3, name="/damaged")]
    summary = run(fake, journal, plan, touch_every_s=None)
    assert (summary.pushed, summary.already_done, summary.stopped) == (1, 1, None)
    assert (summary.failed, journal.reports.faults("c")) == (1, {"file": 1})
