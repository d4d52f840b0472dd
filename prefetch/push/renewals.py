"""Pins are renewed before the cache would purge their files: how often, and which are due."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from features.common.errors import InputError, PushRejected, SourceUnavailable, TargetUnavailable
from features.common.times import DAY_S
from prefetch.actions import Action
from prefetch.journal.lease import Lease
from prefetch.journal.reports import Reports
from prefetch.journal.tables import Item
from prefetch.journal.work import Work
from prefetch.push.limiter import Breaker, Limiter
from prefetch.push.worker import Renewal, Worker
from prefetch.target import Held

UNMEASURED_S = 6 * 3600
"""Used if the cache holds only pinned files, or does not list its files."""

MOST_S = 30 * DAY_S
"""Most seconds between touches: a clock that stood at 1970 may have written the oldest record."""


def touch_every_s(held: Iterable[Held], pinned: Collection[str], now_s: float) -> int:
    """Seconds between touches of a pinned file: half the age of the least recently used file without a pin.

    A purge removes the oldest files, so a pinned file is in danger in the last quarter of that age. Pushes
    look at pins in each quarter at least: one older than half would not be renewed before the last quarter.
    """
    ends = (
        file.last_detach_s
        for file in held
        if file.last_detach_s is not None and not file.is_open and file.name not in pinned
    )
    oldest_s = min(ends, default=None)
    return UNMEASURED_S if oldest_s is None else min(max(1, int(now_s - oldest_s) // 2), MOST_S)


@dataclasses.dataclass
class Renewals:
    """Renews the pins of the cache of `lease` that are due when the object is made."""

    reports: Reports
    lease: Lease
    limiter: Limiter
    breaker: Breaker
    worker: Worker
    now_s: Callable[[], float]

    def __post_init__(self) -> None:
        self._began_s = self.now_s()

    def measure(self) -> None:
        """Where no interval is configured, set the worker's from the age at which the cache drops files."""
        if self.worker.limits.touch_every_s is not None:
            return
        now_s = self.now_s()
        pinned = {pin.name for pin in self.reports.pins(self.lease.cache, now_s=now_s)}
        try:
            every_s = touch_every_s(self.worker.target.inventory(), pinned, now_s)
        except (TargetUnavailable, InputError) as error:
            # An unreadable folder does not end the push: the server is asked about each file.
            self.breaker.note(str(error))
            every_s = UNMEASURED_S
        self.worker.limits = dataclasses.replace(self.worker.limits, touch_every_s=every_s)

    def renew_due(self) -> int:
        """Renew the pins that are due; return how many were renewed."""
        every_s, at_once = self.worker.limits.touch_every_s, self.worker.limits.parallel
        assert every_s is not None
        # Due when the run began: what this run itself pinned is not due again.
        due = self.reports.due_pins(self.lease.cache, now_s=self._began_s, touch_every_s=every_s)
        n_renewed = 0
        for first in range(0, len(due), at_once):
            if self.breaker.reason:
                break
            failing = self.limiter.failing(Action.PIN)
            batch = [pin for pin in due[first : first + at_once] if pin.source not in failing]
            began = time.monotonic()
            n_renewed += self._note([(pin, self.worker.renew(pin)) for pin in batch], began)
            self.lease.keep(now_s=self.now_s())
        return n_renewed

    def _note(self, renewals: Sequence[tuple[Item, Renewal]], began: float) -> int:
        used_at_s, work = dict[str, float](), Work(self.lease)
        for pin, future in renewals:
            error, is_lost = None, False
            try:
                _, used_at_s[pin.item_id] = future.result()
            except PushRejected as refused:
                work.lose_pin(pin.item_id, str(refused), now_s=self.now_s())
            except SourceUnavailable:
                # The cache answered, so this is no failure that ends the run.
                is_lost = True
            except TargetUnavailable as unavailable:
                error = str(unavailable)
            self.breaker.note(error)
            if is_lost or used_at_s.get(pin.item_id, 0.0) >= self._began_s:
                self.limiter.note_try(pin, time.monotonic() - began, is_lost)
        work.renewed(used_at_s)
        return len(used_at_s)
