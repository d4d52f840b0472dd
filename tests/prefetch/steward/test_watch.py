"""A steward beside a disk that shows nothing: empty, or not mounted; a server that holds files knows."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any
from unittest import mock

import pytest
from closes import file_close

from features.common.errors import TargetUnavailable
from prefetch.steward import watch
from prefetch.steward.book import Book, Datasets, listed
from prefetch.steward.feed import Feed, Readers, Report
from prefetch.steward.watch import LiveCache, Watch
from prefetch.target import CacheTarget, Confirmation, Held
from replay.kernels.heuristics import LRU
from replay.steward import Steward
from replay.steward.order import HeuristicOrder

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


@pytest.mark.parametrize("shown", [[], [Held("/left", 9, 0, False, None, False)]], ids=["nothing", "no byte"])
def test_neither_a_few_forged_closes_nor_a_record_without_a_byte_hide_that_no_disk_is_mounted(
    shown: list[Held],
) -> None:
    world = Unmounted(*shown)
    world.reports = [
        file_close(name, T - 400, T - 400) for name in [*REAL, *(f"/forged/{n}" for n in range(5))]
    ]
    with pytest.raises(TargetUnavailable, match="mount the disk"):
        world.begin()


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


def test_a_server_that_refuses_does_not_answer_and_is_nothing_that_a_steward_is_blind_for() -> None:
    world = Unmounted(*(Held(name, BLOCK, BLOCK, True, T, False) for name in REAL))
    world.feed.is_served = True
    world.target.touch.side_effect = world.target.identity.side_effect = TargetUnavailable("refused")
    world.begin()
    until = time.monotonic() + 10
    while world.watch.silence is None and time.monotonic() < until:
        world.watch.follow(T + 30.0)
    assert world.watch.silence == "the cache does not answer: refused"
