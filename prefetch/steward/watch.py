"""What a steward knows of its cache: its inventory, its reports, and a new inventory where they have gaps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from features.errors import InputError, PushError
from prefetch.steward.book import Book
from prefetch.steward.feed import Feed, Lost, Restarted
from prefetch.steward.follower import Follower
from prefetch.steward.inventory import Rescan, begin
from prefetch.steward.readers import Readers
from prefetch.target import CacheTarget
from replay.steward.steward import Steward

RESCAN_EVERY_S: Final = 24 * 3600.0
RESTS_PER_RESCAN: Final = 20
"""After a rescan none begins for this many times as long as it took, at least `REST_S`."""
REST_S: Final = 10.0


class Watch:
    """Follows one cache. `faults`: what cannot be read now, by kind; `n_lost`: reports missing."""

    def __init__(
        self,
        target: CacheTarget,
        feed: Feed,
        book: Book,
        steward: Steward,
        *,
        ours_last_s: float,
        readers: Readers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.faults: dict[str, str] = {}
        self.n_lost = self.n_rescans = 0
        self.follower = Follower(
            book,
            steward,
            ours_last_s=ours_last_s,
            on_disk=self._on_disk,
            readers=readers,
            reports_opens=lambda: feed.sees_opens,
        )
        self._target, self._feed, self._book, self._steward = target, feed, book, steward
        self._clock = clock
        self._rescan: Rescan | None = None
        self._is_urgent = False
        self._began = self._free_at = 0.0
        self._due = clock() + RESCAN_EVERY_S

    @property
    def sees_opens(self) -> bool:
        """Whether the cache has reported opens since its server was started."""
        return self._feed.sees_opens

    def begin(self, now_s: float) -> None:
        """Learn what the cache holds. Raises InputError and PushError if that cannot be learned."""
        began = self._clock()
        begin(self._target, self._book, self._steward, self.follower, self._feed.poll(), now_s=now_s)
        self._rest(began)

    def follow(self, now_s: float) -> None:
        """Take what was reported, and some files of a rescan that is due."""
        try:
            for report in self._feed.poll():
                if isinstance(report, Lost):
                    self.n_lost += report.n_datagrams
                if isinstance(report, Lost | Restarted):
                    self._due = 0.0
                self.follower.apply(report, now_s)
            self.faults.pop("reports", None)
        except (InputError, PushError) as error:
            self.faults["reports"] = str(error)
            self._due = 0.0
        self.follower.ripen(now_s)
        self._scan(now_s)

    @property
    def is_behind(self) -> bool:
        """Whether an urgent inventory is not complete yet."""
        return self._is_urgent

    def rescan(self, *, is_urgent: bool = False) -> None:
        """Take an inventory as soon as one may begin; an urgent one begins at once."""
        self._due = 0.0
        if is_urgent and not self._is_urgent:
            self._is_urgent, self._rescan, self._free_at = True, None, 0.0

    def bytes_on_disk(self, file: int) -> int | None:
        """What the cache's own records say of a file now; None if they cannot be read."""
        try:
            return self._on_disk(self._book.name(file))
        except PushError:
            return None

    def _on_disk(self, name: str) -> int:
        held = self._target.confirm(name).held
        return 0 if held is None else held.bytes_on_disk

    def _scan(self, now_s: float) -> None:
        try:
            if self._rescan is None:
                if self._clock() < max(self._due, self._free_at):
                    return
                self._began, self._due = self._clock(), self._clock() + RESCAN_EVERY_S
                self._rescan = Rescan(self._target, self._book, self._steward, self.follower, now_s=now_s)
            if self._rescan.step() is None:
                return
            self.n_rescans += 1
            self._is_urgent = False
            self.faults.pop("inventory", None)
        except (InputError, PushError) as error:
            self.faults["inventory"] = str(error)
            self._due = 0.0
        self._rescan = None
        self._rest(self._began)

    def _rest(self, began: float) -> None:
        ended = self._clock()
        self._free_at = ended + max(REST_S, RESTS_PER_RESCAN * (ended - began))
