"""Evictions under way at a cache: requested, confirmed by it, or not possible now."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, NamedTuple

from prefetch.actions import Action
from prefetch.journal.tables import Item
from prefetch.push.attempt import PushLimits, Tried
from prefetch.push.limiter import Breaker
from prefetch.push.worker import Worker
from prefetch.target import CacheTarget

PAUSE_S: Final = 10.0
"""Seconds without evictions after the breaker opened."""


class Ended(NamedTuple):
    """An eviction that ended. `error`: None if the cache confirmed that the file is gone.

    `was_there`: it was not gone before.
    """

    file: int
    error: str | None
    was_there: bool


class Evictions(AbstractContextManager["Evictions"]):
    """Evicts files one by one, `limits.parallel` at once, each as a push does; a context manager.

    When the cache was unavailable `limits.breaker` times in a row, nothing is begun for `PAUSE_S`; `fault`
    says why until it answers again. `last_error`: of the evictions since the last one that succeeded.
    """

    def __init__(self, target: CacheTarget, limits: PushLimits, now_s: Callable[[], float]) -> None:
        self.fault: str | None = None
        self.last_error: str | None = None
        self._target, self._limits, self._now_s = target, limits, now_s
        self._worker = Worker(target, limits, now_s)
        self._breaker = Breaker(target.name, limits.breaker)
        self._resume_at = 0.0
        self._under_way: dict[str, int] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what runs."""
        self._worker.__exit__(kind, error, trace)

    @property
    def room(self) -> int:
        """How many more evictions may begin now."""
        return self._worker.room if time.monotonic() >= self._resume_at else 0

    @property
    def files(self) -> Collection[int]:
        """The files under way."""
        return self._under_way.values()

    def begin(self, file: int, name: str) -> None:
        """Begin to evict a file."""
        self._under_way[name] = file
        now_s = int(self._now_s())
        self._worker.start(Item(name, self._target.name, now_s, "", name, Action.EVICT, 0, 0, 0, now_s, 1))

    def ended(self, within_s: float) -> list[Ended]:
        """Wait at most `within_s` for an eviction to end; all that ended."""
        return [self._note(item.name, future.result()) for item, future in self._worker.ended(within_s)]

    def _note(self, name: str, tried: Tried) -> Ended:
        receipt = tried.receipt
        self._breaker.note(receipt.error if receipt.fault == "cache" else None)
        if self._breaker.reason is not None:
            self.fault, self._resume_at = self._breaker.reason, time.monotonic() + PAUSE_S
            self._breaker = Breaker(self._target.name, self._limits.breaker)
        elif receipt.fault != "cache":
            self.fault = None
        self.last_error = receipt.error
        return Ended(self._under_way.pop(name), receipt.error, not tried.already)
