"""Threads that try items on a cache, the items marked as running before a try, and renewals of pins."""

import concurrent.futures
import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

from features.common.errors import InputError, PushRejected, SourceUnavailable, TargetUnavailable
from features.common.times import DAY_S
from prefetch.actions import Action
from prefetch.journal.lease import BEAT_S, Lease
from prefetch.journal.reports import Reports
from prefetch.journal.tables import Item, Receipt
from prefetch.push.attempt import PushLimits, attempt, renewal
from prefetch.push.limiter import Breaker, Limiter
from prefetch.target import CacheTarget, Confirmation, Held

Renewal = concurrent.futures.Future[tuple[Confirmation, float]]


class Worker(AbstractContextManager["Worker"]):
    """Tries up to `limits.parallel` items of `target` at once; a context manager that awaits its threads."""

    def __init__(self, target: CacheTarget, limits: PushLimits, now_s: Callable[[], float]) -> None:
        self.target, self.limits = target, limits
        self._now_s = now_s
        self._pool = concurrent.futures.ThreadPoolExecutor(limits.parallel, "push")
        self._running: dict[concurrent.futures.Future[Receipt], Item] = {}

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()

    @property
    def room(self) -> int:
        return self.limits.parallel - len(self._running)

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def start(self, item: Item) -> None:
        self._running[self._pool.submit(attempt, self.target, item, self.limits, self._now_s)] = item

    def await_ended(self, within_s: float) -> list[tuple[Item, concurrent.futures.Future[Receipt]]]:
        """Wait for a try to end, at most `within_s` seconds; return all that ended."""
        waited = concurrent.futures.wait(self._running, within_s, concurrent.futures.FIRST_COMPLETED)
        return [(self._running.pop(future), future) for future in waited.done]

    def renew(self, pin: Item) -> Renewal:
        return self._pool.submit(renewal, self.target, pin.name, self.limits, self._now_s)


AHEAD_S = 0.25
"""Seconds of work that are marked ahead; little, as marked items are cancelled only at the next write."""

WRITE_S = 0.1
"""Results are written to the journal within this time."""

MOST_ITEMS = 256
"""At most so many items are marked ahead, or their results written, at once."""

Ended = tuple[Item, Receipt]


class MarkedItems:
    """Items marked as running before they are tried, and results not written yet.

    A transaction waits for the disk: one per item would make the journal slower than a cache with fast files.
    So items are marked and written in groups, as many as a fraction of a second needs. After a run is killed,
    at most that much work is looked up at the cache again. `retry_after_s`: pause per failed try.
    """

    def __init__(self, lease: Lease, now_s: Callable[[], float], retry_after_s: float) -> None:
        self._lease, self._now_s, self._retry_after_s = lease, now_s, retry_after_s
        self._ahead = deque[Item]()
        self._ended = list[Ended]()
        self._items_per_s = 0.0
        self._written = time.monotonic()

    def next(self, action: Action, n_items: int, but: Callable[[], Collection[str]]) -> Item | None:
        """An item to try now, or None. If none is marked, `n_items` are, and some more for soon after."""
        if not self._ahead:
            n_items += min(MOST_ITEMS, int(self._items_per_s * AHEAD_S))
            begun = self._lease.begin(
                action, n_items, now_s=self._now_s(), but=but(), retry_after_s=self._retry_after_s
            )
            self._ahead.extend(begun)
        return self._ahead.popleft() if self._ahead else None

    def retry_in_s(self, action: Action, but: Collection[str]) -> float | None:
        """Seconds until an item may be tried, 0 or less if one may be now; None: there is no item."""
        if self._ahead:
            return 0.0
        now_s = self._now_s()
        at_s = self._lease.next_retry_s(action, now_s=now_s, but=but, retry_after_s=self._retry_after_s)
        return None if at_s is None else at_s - now_s

    def drop(self, unwanted: Callable[[Item], bool], begun: Sequence[Item] = ()) -> None:
        """Give back the marked items that are `unwanted`, and those of `begun`, without a try."""
        dropped = [*begun, *filter(unwanted, self._ahead)]
        self._ahead = deque(item for item in self._ahead if not unwanted(item))
        if dropped:
            self._lease.give_back([item.item_id for item in dropped], now_s=self._now_s())

    def note_result(self, item: Item, receipt: Receipt) -> None:
        self._ended.append((item, receipt))

    @property
    def due_s(self) -> float:
        """Seconds until results should be written; infinity: there are none."""
        if not self._ended:
            return math.inf
        if len(self._ended) >= MOST_ITEMS:
            return 0.0
        return max(0.0, self._written + WRITE_S - time.monotonic())

    def write(self) -> list[Ended]:
        """Write the results to the journal and return them; give back marked items that were cancelled."""
        ended, self._ended = self._ended, []
        if not ended:
            return []
        self._lease.finish({item.item_id: receipt for item, receipt in ended}, now_s=self._now_s())
        now = time.monotonic()
        self._items_per_s = len(ended) / max(now - self._written, 1e-3)
        self._written = now
        if self._ahead:
            cancelled = self._lease.cancelled()
            self.drop(lambda item: item.item_id in cancelled)
        return ended


UNMEASURED_S = 6 * 3600
"""Seconds between touches if the cache holds only pinned files, or does not list its files."""

MOST_S = 30 * DAY_S
"""Most seconds between touches: a clock that stood at 1970 may have written the oldest record."""


def touch_every_s(held: Iterable[Held], pinned: Collection[str], now_s: float) -> int:
    """Seconds between touches of a pinned file: half the age of the least recently used file without a pin.

    A purge removes the oldest files, so a pinned file is in danger in the last quarter of that age. Pushes
    look at pins at least once per quarter: one that is due at half is renewed before the last quarter begins.
    """
    free = (file for file in held if not file.is_open and file.name not in pinned)
    oldest_s = min((end_s for file in free if (end_s := file.last_detach_s) is not None), default=None)
    return UNMEASURED_S if oldest_s is None else min(max(1, int(now_s - oldest_s) // 2), MOST_S)


@dataclasses.dataclass
class Renewals:
    """Renews the pins of the cache of `lease` that were due when this object was made."""

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
            every_s = touch_every_s(self._looked_at(), pinned, now_s)
        except (TargetUnavailable, InputError) as error:
            # An unreadable folder does not end the push: the server is asked about each file.
            self.breaker.note(str(error))
            every_s = UNMEASURED_S
        self.worker.limits = dataclasses.replace(self.worker.limits, touch_every_s=every_s)

    def _looked_at(self) -> Iterator[Held]:
        # A walk over millions of files may take longer than the lease lasts.
        for held in self.worker.target.inventory():
            self.lease.keep(now_s=self.now_s())
            yield held

    def renew_due(self) -> int:
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
            began, renewals = time.monotonic(), [(pin, self.worker.renew(pin)) for pin in batch]
            while concurrent.futures.wait([future for _, future in renewals], BEAT_S).not_done:
                self.lease.keep(now_s=self.now_s())
            n_renewed += self._note(renewals, began)
            self.lease.keep(now_s=self.now_s())
        return n_renewed

    def _note(self, renewals: Sequence[tuple[Item, Renewal]], began: float) -> int:
        used_at_s = dict[str, float]()
        for pin, future in renewals:
            error, is_lost = None, False
            try:
                _, used_at_s[pin.item_id] = future.result()
            except PushRejected as refused:
                self.lease.lose_pin(pin.item_id, str(refused), now_s=self.now_s())
            except SourceUnavailable:
                # The cache answered, so this is no failure that ends the run.
                is_lost = True
            except TargetUnavailable as unavailable:
                error = str(unavailable)
            self.breaker.note(error)
            if is_lost or used_at_s.get(pin.item_id, 0.0) >= self._began_s:
                self.limiter.note_try(pin, time.monotonic() - began, is_lost)
        self.lease.renewed(used_at_s)
        return len(used_at_s)
