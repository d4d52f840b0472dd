"""Threads that try items on a cache, and the items that a push marks before it tries them."""

from __future__ import annotations

import concurrent.futures
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from prefetch.actions import Action
from prefetch.journal.tables import Item
from prefetch.journal.work import Work
from prefetch.push.attempt import PushLimits, Tried, attempt, renewal
from prefetch.target import CacheTarget, Confirmation

Renewal = concurrent.futures.Future[tuple[Confirmation, float]]


class Worker(AbstractContextManager["Worker"]):
    """Tries up to `limits.parallel` items of `target` at once; a context manager that awaits its threads."""

    def __init__(self, target: CacheTarget, limits: PushLimits, now_s: Callable[[], float]) -> None:
        self.target, self.limits = target, limits
        self._now_s = now_s
        self._pool = concurrent.futures.ThreadPoolExecutor(limits.parallel, "push")
        self._running: dict[concurrent.futures.Future[Tried], Item] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what runs."""
        self._pool.shutdown()

    @property
    def room(self) -> int:
        """How many more items may be started."""
        return self.limits.parallel - len(self._running)

    @property
    def is_busy(self) -> bool:
        """Whether an item is being tried."""
        return bool(self._running)

    def start(self, item: Item) -> None:
        """Begin to try `item`."""
        self._running[self._pool.submit(attempt, self.target, item, self.limits, self._now_s)] = item

    def ended(self, within_s: float) -> list[tuple[Item, concurrent.futures.Future[Tried]]]:
        """Wait for a try to end, at most `within_s` seconds; return all that ended."""
        waited = concurrent.futures.wait(self._running, within_s, concurrent.futures.FIRST_COMPLETED)
        return [(self._running.pop(future), future) for future in waited.done]

    def renew(self, pin: Item) -> Renewal:
        """Begin to renew a pin, see `renewal`."""
        return self._pool.submit(renewal, self.target, pin.name, self.limits, self._now_s)


AHEAD_S = 0.25
"""Seconds of work that are marked ahead. What is marked is not cancelled, so it is little."""

WRITE_S = 0.1
"""Results are written to the journal within this time …"""

MOST_ITEMS = 256
"""… and never more than so many items at once."""

Ended = tuple[Item, Tried]


class MarkedItems:
    """Items marked as running before they are tried, and results not written yet.

    A transaction waits for the disk: one per item would make the journal slower than a cache with fast files.
    So items are marked and written in groups, as many as a fraction of a second needs. After a run is killed,
    at most that much work is looked up at the cache again. `retry_after_s`: pause per failed try.
    """

    def __init__(self, work: Work, now_s: Callable[[], float], retry_after_s: float) -> None:
        self._work, self._now_s, self._retry_after_s = work, now_s, retry_after_s
        self._ahead = deque[Item]()
        self._ended = list[Ended]()
        self._items_per_s = 0.0
        self._written = time.monotonic()

    def next(self, action: Action, n_items: int, but: Callable[[], Collection[str]]) -> Item | None:
        """An item to try now, or None. If none is marked, `n_items` are, and some more for soon after.

        `but()`: the sources whose files are left out.
        """
        if not self._ahead:
            n_items += min(MOST_ITEMS, int(self._items_per_s * AHEAD_S))
            begun = self._work.begin(
                action, n_items, now_s=self._now_s(), but=but(), retry_after_s=self._retry_after_s
            )
            self._ahead.extend(begun)
        return self._ahead.popleft() if self._ahead else None

    def retry_in_s(self, action: Action, but: Collection[str]) -> float | None:
        """Seconds until an item may be tried, not above 0 if one may be now; None: there is none."""
        if self._ahead:
            return 0.0
        now_s = self._now_s()
        at_s = self._work.next_retry_s(action, now_s=now_s, but=but, retry_after_s=self._retry_after_s)
        return None if at_s is None else at_s - now_s

    def drop(self, unwanted: Callable[[Item], bool], begun: Sequence[Item] = ()) -> None:
        """Give back the marked items that are `unwanted`, and those of `begun`, without a try."""
        dropped = [*begun, *filter(unwanted, self._ahead)]
        self._ahead = deque(item for item in self._ahead if not unwanted(item))
        if dropped:
            self._work.give_back([item.item_id for item in dropped], now_s=self._now_s())

    def ended(self, item: Item, tried: Tried) -> None:
        """Keep the result of a try, to be written soon."""
        self._ended.append((item, tried))

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
        self._work.finish({item.item_id: tried.receipt for item, tried in ended}, now_s=self._now_s())
        now = time.monotonic()
        self._items_per_s = len(ended) / max(now - self._written, 1e-3)
        self._written = now
        if self._ahead:
            cancelled = self._work.cancelled()
            self.drop(lambda item: item.item_id in cancelled)
        return ended

    def close(self) -> None:
        """Give back all marked items."""
        self.drop(lambda _: True)
