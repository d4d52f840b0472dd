"""The order of eviction that a cache's steward may follow: the one promoted, unless it is too old.

A steward keeps a copy of the order that it follows. It begins by the table promotions and that copy, while
MLflow is asked only afterwards.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from features.common.errors import CachecastError, ServiceError
from features.common.times import as_of_label
from features.common.units import duration_label
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.loop.steward.look_up import LookUp, Question

if TYPE_CHECKING:
    from models.serving.bundle_files import ServedOrder

LOOK_UP_EVERY_S: Final = 600.0
"""A promotion takes effect within this time, and the time that it takes to load an order."""
BEGINS_WITHIN_S: Final = 10.0
"""A steward waits so long for an answer at its start; what comes later is taken when it comes."""
LEARNED_WITHIN_S: Final = 60.0
"""One that may follow no other order than a learned one waits so long."""
MAY_BE_LEARNED: Final = ("auto", "learned")
"""Policies that can follow a learned order."""

_log = logging.getLogger(__name__)


class Promoted:
    """The region's promoted order for `cache`, looked up now and then by a process that nobody waits for.

    `serves`: the order that may evict now, the same object as long as it serves; `since_s`: from when on, s
    since 1970; `fault`: why it is not the promoted one. An order that was promoted but cannot be read, or a
    table promotions that cannot, leaves the one before in place.
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
        self._look_up: LookUp | None = None
        self._due = math.inf
        if settings.steward.policy in MAY_BE_LEARNED:
            self._look_up = self._begin(is_first=True)

    def first(self) -> ServedOrder | None:
        """The order to begin with, once the first look-up has ended or is late.

        With the policy `learned`, raises CachecastError if none serves because that has failed or is late.
        """
        is_learned = self._settings.steward.policy == "learned"
        if self._look_up is not None:
            self._look_up.wait(LEARNED_WITHIN_S if is_learned else BEGINS_WITHIN_S)
        self.refresh()
        if self._error is not None and self._read is None and is_learned:
            raise self._error
        return self.serves

    def refresh(self) -> None:
        """Take what the last look-up found, and begin the next one when it is due; waits for nothing."""
        if self._look_up is not None and self._look_up.is_done():
            found, self._look_up = self._look_up, None
            self._due = time.monotonic() + (LOOK_UP_EVERY_S if found.has_asked else 0.0)
            self._read, self._error = found.order, found.error
        elif self._look_up is not None and self._look_up.is_late(BEGINS_WITHIN_S):
            self._read = self._look_up.order
            self._error = ServiceError(f"MLflow has not answered for {BEGINS_WITHIN_S:.0f} s")
            if self._look_up.is_late(LOOK_UP_EVERY_S):
                self._look_up.end()
                self._look_up = self._begin()
        elif self._look_up is None and time.monotonic() >= self._due:
            self._look_up = self._begin()
        self._judge()

    def _begin(self, *, is_first: bool = False) -> LookUp | None:
        """A look-up; None if the machine has no room for its files or its process: later there may be."""
        try:
            return LookUp(Question(self._settings, self._cache, self._read, is_first))
        except OSError as error:
            self._error = ServiceError(f"no process can look for it: {error}")
            self._due = time.monotonic() + LOOK_UP_EVERY_S
            return None

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
