"""A steward beside a journal that hangs, and beside a disk that shows nothing: a server knows."""

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
from closes import file_close
from ladders import DAY_S, one_split

from features.common.errors import ServiceError, TargetUnavailable
from prefetch.steward import lists, watch
from prefetch.steward.book import Book, Datasets, listed
from prefetch.steward.feed import Feed, Readers, Report
from prefetch.steward.lists import ListReader, Lists, QueuedReads
from prefetch.steward.watch import LiveCache, Watch
from prefetch.target import CacheTarget, Confirmation, Held
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
    monkeypatch.setattr(lists, "_ANSWERS_WITHIN_S", 60.0)
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
    queued.expect(due_s := {"/f/0": DAY_S, "/f/2": DAY_S})
    file = book.number("/f/2", 10)  # fetched for the jobs that were named before
    steward.read(file, 0, 2.0)
    steward.stored(file, 10, 2.0)
    for goes in (file, 1):
        assert steward.victims(10, DAY_S - 3600) == [goes]
        queued.expect(due_s)


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
