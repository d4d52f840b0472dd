"""The order of eviction that a cache's steward may follow: the one promoted, unless it is too old."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final

from features.errors import CachecastError
from features.times import as_of_label
from features.units import duration_label
from jobs.settings.tree import CacheSettings, Settings
from jobs.train.registry import registry
from models.serving.order import ServedOrder, load_order

LOOK_UP_EVERY_S: Final = 600.0
"""A promotion takes effect within this time, and the time that it takes to load an order."""
MAY_BE_LEARNED: Final = ("auto", "learned")
"""Policies that can follow a learned order."""

_log = logging.getLogger(__name__)


class Promoted:
    """The region's promoted order for `cache`, looked up again now and then; a context manager.

    `serves`: the order that may evict now, the same object as long as it serves; `since_s`: from when on, s
    since 1970; `fault`: why it is not the promoted one. An order that was promoted but cannot be read leaves
    the one before in place. With the policy `learned`, raises CachecastError if the first look-up fails.
    """

    def __init__(
        self,
        settings: Settings,
        cache: CacheSettings,
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.serves: ServedOrder | None = None
        self.since_s: float | None = None
        self.fault: str | None = None
        self._settings, self._cache, self._now_s = settings, cache, now_s
        self._read: ServedOrder | None = None
        self._error: CachecastError | None = None
        self._beside = ThreadPoolExecutor(max_workers=1)
        self._answer: Future[ServedOrder | None] | None = None
        self._due = math.inf
        if settings.steward.policy in MAY_BE_LEARNED:
            self._take(self._beside.submit(self._look_up))
        if self._error is not None and settings.steward.policy == "learned":
            raise self._error

    def __enter__(self) -> Promoted:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Begin no more look-ups, and wait for none."""
        self._beside.shutdown(wait=False, cancel_futures=True)

    def refresh(self) -> None:
        """Take what the last look-up found, and begin the next one when it is due; waits for nothing."""
        if self._answer is not None and self._answer.done():
            self._take(self._answer)
        elif self._answer is None and time.monotonic() >= self._due:
            self._answer = self._beside.submit(self._look_up)
        self._judge()

    def _look_up(self) -> ServedOrder | None:
        at = registry(self._settings.mlflow)
        return load_order(at, self._settings.region.name, self._cache.capacity, known=self._read)

    def _take(self, answer: Future[ServedOrder | None]) -> None:
        self._answer, self._due = None, time.monotonic() + LOOK_UP_EVERY_S
        try:
            self._read, self._error = answer.result(), None
        except CachecastError as error:
            self._error = error
        self._judge()

    def _judge(self) -> None:
        """Let the order that was read last serve, unless it is too old."""
        now_s, order, faults = self._now_s(), self._read, list[str]()
        if order is not None and now_s - order.until_s > self._settings.training.max_age:
            faults.append(self._too_old(order))
            order = None
        if self._error is not None:
            kept = "no learned order serves" if order is None else f"the order of {order.version} serves on"
            faults.insert(0, f"the promoted order cannot be had: {self._error}; {kept}")
        if order is not self.serves:
            self.serves, self.since_s = order, None if order is None else now_s
        fault = "; ".join(faults) or None
        if fault not in (None, self.fault):
            _log.warning("%s", fault)
        self.fault = fault

    def _too_old(self, order: ServedOrder) -> str:
        return (
            f"the order of {order.version} is of {as_of_label(order.until_s)}, older than "
            f"{duration_label(self._settings.training.max_age)} ([training] max_age), so it does not serve; "
            "train, evaluate and promote"
        )
