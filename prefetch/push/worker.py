"""Threads that try items on a cache, some at once."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from prefetch.journal.items import Item
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
