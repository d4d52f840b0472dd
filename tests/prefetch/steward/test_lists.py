"""What a steward is told besides reads: pins, queues, a namespace; and who reads."""

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
from closes import file_close
from ladders import DAY_S, one_split

from features.common.errors import ServiceError, TargetUnavailable
from prefetch.steward import feed, lists, watch
from prefetch.steward.book import Book, Datasets, listed
from prefetch.steward.feed import NOBODY, Feed, Readers, Report
from prefetch.steward.follower import FileUses, Use
from prefetch.steward.lists import ListReader, Lists, QueuedReads
from prefetch.steward.watch import LiveCache, Watch
from prefetch.target import CacheTarget, Confirmation, Held
from prefetch.xcache.fstream import Login, Work
from replay.kernels.heuristics import LRU
from replay.policies.learned import Order
from replay.steward import Steward, new_order
from replay.steward.order import HeuristicOrder

NONE = Lists((), ())


class Journal:
    """Counts its readers, who wait until it `answers`."""

    def __init__(self) -> None:
        self.n_read, self.fault = 0, ""
        self.answers = threading.Event()
        self.answers.set()

    def lists(self, _times_s: Sequence[float]) -> Lists:
        self.n_read += 1
        self.answers.wait(60)
        if self.fault:
            raise ServiceError(self.fault)
        return NONE


def test_lists_are_read_when_due_and_soon_while_files_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "FRESH_S", 0.1)
    monkeypatch.setattr(lists, "_PAUSES", 0)  # on a busy machine the first answer takes long
    journal = Journal()
    reader = ListReader(journal.lists, 3600.0)
    assert reader.read([0.0], files_go=False) == NONE
    time.sleep(0.2)
    assert reader.read([0.0], files_go=False) is None
    assert reader.read([0.0], files_go=True) == NONE
    assert reader.read([0.0], files_go=True) is None
    assert journal.n_read == 2


def test_an_answer_that_no_code_foresaw_is_a_fault() -> None:
    """It may not leave the steward without one: it would end it."""
    reader = ListReader(lambda _: (_ for _ in ()).throw(KeyError("row")), 3600.0)
    with pytest.raises(ServiceError, match="KeyError"):
        [reader.read([0.0], files_go=True) for _ in range(20)]


def test_what_queues_name_is_told_as_it_changes() -> None:
    """The model values the smaller file less, so without a queue that one goes."""
    order = new_order("learned", 1000, [Order(0.0, one_split("size_bytes", 15.0, -9.0, 0.0))])
    steward = Steward(order, capacity_bytes=1000)
    book = Book(steward, Datasets())
    for at_s, size in enumerate((10, 20)):
        file = book.number(f"/f/{at_s}", size)
        steward.read(file, 0, float(at_s))
        steward.stored(file, size, float(at_s))
    queued = QueuedReads(book)
    for due_s, goes in (({"/f/0": DAY_S, "/f/none": DAY_S}, 1), ({"/f/1": DAY_S}, 0), ({}, 0)):
        queued.expect(due_s)
        assert steward.victims(10, DAY_S - 3600) == [goes]


T = 1_700_000_000
BLOCK = 128 * 1024
REAL = [f"/store/{n}" for n in range(100)]


class Unmounted:
    """A server holds the files `REAL`, and its namespace shows `shown`."""

    def __init__(self, *shown: Held) -> None:
        self.shown, self.reports = list(shown), list[Report]()
        self.steward = Steward(HeuristicOrder(LRU), capacity_bytes=100 * BLOCK)
        target = mock.create_autospec(CacheTarget)
        target.inventory.side_effect = self._inventory
        target.confirm.return_value = Confirmation(None, "cinfo")
        listing = listed(target, now_s=T)
        feed: Any = mock.create_autospec(Feed, instance=True, is_served=False, reports_opens=False)
        feed.poll.side_effect = self._polled
        self.target, self.feed = target, feed
        book = Book(self.steward, Datasets(), listing=listing)
        cache = LiveCache(target, feed, usage=mock.Mock(), opens=mock.Mock(has=lambda _: False))
        self.watch = Watch(cache, book, timeout_s=9, readers=Readers(()))
        self.begin = lambda: self.watch.begin(listing, T + 20.0)

    def _inventory(self, expected: Collection[str] = ()) -> Iterator[Held]:
        yield from self.shown
        if missing := set(expected) & set(REAL) - {held.name for held in self.shown}:
            raise TargetUnavailable(f"the cache holds {missing}: mount the disk")

    def _polled(self) -> Iterator[Report]:
        polled, self.reports = self.reports, []
        return iter(polled)


def test_a_disk_that_no_report_told_of_is_missed_at_the_first_and_found_when_it_is_mounted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after `cachecast pull` and a boot. The next inventory would have been due in a day."""
    monkeypatch.setattr(watch, "REST_S", 0.0)
    monkeypatch.setattr(watch, "RESTS_PER_RESCAN", 0)
    world = Unmounted()
    world.begin()
    world.watch.follow(T + 30.0)
    assert not world.watch.faults
    world.reports = [file_close(REAL[0], T + 31, T + 31)]
    world.watch.follow(T + 32.0)
    assert "mount the disk" in world.watch.faults["inventory"]
    world.shown = [Held(name, BLOCK, BLOCK, True, T, False) for name in REAL]
    for _ in range(3):
        world.watch.follow(T + 40.0)
    assert (world.steward.n_held, world.watch.faults) == (100, {})


def logged_in(*kinds: str) -> Readers:
    """Sessions 1 and 2 of alice, of which 2 works for a job, 3 of bob, 4 of nobody."""
    readers = Readers(kinds)
    for number, user in enumerate(("alice", "alice", "bob", ""), start=1):
        readers.note(Login(9, 7, number, f"{number}", user))
    readers.note(Work(9, 7, "2", "job"))
    readers.note(Work(9, 7, "unheard of", "job"))
    return readers


def numbers(readers: Readers, stod: int = 9) -> list[int]:
    return [readers.number(stod, 7, user_id) for user_id in range(6)]


def test_readers_are_those_that_the_order_was_told_of() -> None:
    nobody, alice, again, bob, unnamed, unknown = numbers(logged_in("user"))
    assert alice == again != bob and nobody == unnamed == unknown == NOBODY
    assert alice % 2 == bob % 2 == 1 and max(alice, bob) < 2**53
    both = numbers(logged_in("user", "task"))
    assert both[1] == alice and both[2] % 2 == 0 < both[2] and both[3] == bob
    assert numbers(logged_in("task")) == [0, 0, both[2], 0, 0, 0]
    of_sessions = numbers(logged_in("session"))
    assert of_sessions[0] == NOBODY and len(set(of_sessions)) == 6
    assert numbers(logged_in()) == [NOBODY] * 6 and not logged_in()


def test_a_server_that_was_started_again_has_other_sessions() -> None:
    assert numbers(logged_in("user"), stod=10) == [NOBODY] * 6


def test_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_SESSIONS", 2)
    readers = logged_in("user")
    assert [number == NOBODY for number in numbers(readers)] == [True, True, True, False, True, True]
    assert len(readers._sessions) == len(readers._by_name) == 2


def use(begin_s: int) -> Use:
    return Use(file=1, reader=0, begin_s=begin_s, end_s=begin_s + 1, seen_s=begin_s, n_blocks=1, holds=True)


def test_each_use_is_given_once_as_begun_and_once_as_ended() -> None:
    uses, first, second, third = FileUses(), use(10), use(11), use(20)
    for reader in (third, first, second):
        uses.add(reader)
    assert list(uses.ended_by(11)) == [first]
    assert list(uses.begun_by(11)) == [first, second]
    assert not list(uses.begun_by(19))
    assert list(uses.ended_by(19)) == [second]
    assert list(uses.begun_by(10**9)) == [third]
    assert uses.seen_s == 20


def test_a_use_that_is_over_is_given_no_more() -> None:
    uses, first, second = FileUses(), use(10), use(11)
    uses.add(first)
    uses.add(second)
    uses.end(first)
    assert uses.n_open == 1
    assert list(uses.begun_by(99)) == list(uses.ended_by(99)) == [second]


def test_opens_that_come_and_go_take_no_memory() -> None:
    uses = FileUses()
    uses.add(use(10**6))
    for begin_s in range(10_000):
        uses.add(reader := use(begin_s))
        uses.end(reader)
    assert max(len(uses._begun), len(uses._ended)) < 100
