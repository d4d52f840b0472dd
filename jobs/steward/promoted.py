"""The order of eviction that a cache's steward may follow: the one promoted, unless it is too old.

Until one is promoted, `auto` tries the region's imported one (`jobs.train.exchange`).
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final, NamedTuple

from features.common.errors import CachecastError, ServiceError
from features.common.times import as_of_label
from features.common.units import duration_label
from jobs.settings.tree import CacheSettings, Settings
from jobs.store.tables import Tables
from jobs.store.trainings import named
from models.serving.names import STEWARD

if TYPE_CHECKING:
    from models.serving.registry import ServedOrder

LOOK_UP_EVERY_S: Final = 600.0
"""A promotion takes effect within this time, and the time that it takes to load an order."""
BEGINS_WITHIN_S: Final = 10.0
"""A steward waits so long for its first look-up; what comes later is taken when it comes."""
LEARNED_WITHIN_S: Final = 60.0
"""One that may follow no other order than a learned one waits so long."""
_STEP_S: Final = 0.1
MAY_BE_LEARNED: Final = ("auto", "learned")
"""Policies that can follow a learned order."""

_log = logging.getLogger(__name__)


class Promoted:
    """The region's promoted order for `cache`, looked up now and then by a process that nobody waits for.

    `serves`: the order that may evict now, the same object as long as it serves; `since_s`: from when on, s
    since 1970; `fault`: why it is not the promoted one. An order that was promoted but cannot be read, or a
    table promotions that cannot, leaves the one before in place. With the policy `learned`, raises
    CachecastError if the first look-up fails or does not end in time.
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
        self._look_up: _LookUp | None = None
        self._due = math.inf
        if settings.steward.policy in MAY_BE_LEARNED:
            self._look_up = self._begin()
            is_learned = settings.steward.policy == "learned"
            self._look_up.wait(LEARNED_WITHIN_S if is_learned else BEGINS_WITHIN_S)
            self.refresh()
        if self._error is not None and settings.steward.policy == "learned":
            raise self._error

    def refresh(self) -> None:
        """Take what the last look-up found, and begin the next one when it is due; waits for nothing."""
        if self._look_up is not None and self._look_up.is_done():
            found, self._look_up = self._look_up, None
            self._due = time.monotonic() + LOOK_UP_EVERY_S
            self._read, self._error = found.order, found.error
        elif self._look_up is not None and self._look_up.is_late(BEGINS_WITHIN_S):
            self._error = ServiceError(f"MLflow has not answered for {BEGINS_WITHIN_S:.0f} s")
        elif self._look_up is None and time.monotonic() >= self._due:
            self._look_up = self._begin()
        self._judge()

    def _begin(self) -> _LookUp:
        return _LookUp(self._settings, self._cache.capacity, self._read)

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


class _LookUp:
    """Loads the promoted order, in a process of its own: MLflow and scikit-learn take 200 MB.

    A server that never ends its answer holds up nothing, the end of the steward included.
    """

    def __init__(self, settings: Settings, capacity_bytes: int, known: ServedOrder | None) -> None:
        self.order = known
        self.error: CachecastError | None = None
        self._asked_s: float | None = None
        self._is_done = False
        context = multiprocessing.get_context("spawn")
        self._answers, theirs = context.Pipe(duplex=False)
        asked = theirs, settings, capacity_bytes, known
        self._process = context.Process(target=_look_up, args=asked, name="promoted order", daemon=True)
        self._process.start()
        theirs.close()

    def is_done(self) -> bool:
        """Whether `order` and `error` are what was found; waits for nothing."""
        while not self._is_done and self._answers.poll():
            self._take()
        return self._is_done

    def is_late(self, timeout_s: float) -> bool:
        """Whether the answer takes longer than this; to load MLflow does not count."""
        return self._asked_s is not None and time.monotonic() - self._asked_s > timeout_s

    def wait(self, timeout_s: float) -> None:
        """Wait for the answer until it is late."""
        while not self.is_done() and not self.is_late(timeout_s):
            self._answers.poll(_STEP_S)

    def _take(self) -> None:
        try:
            answer: _Asking | _Found = self._answers.recv()
        except (EOFError, OSError):
            answer = _Found(None, True, ServiceError("the process that asks MLflow has ended early"))
        if isinstance(answer, _Asking):
            self._asked_s = time.monotonic()
            return
        self.error = answer.error
        if not answer.is_known:
            self.order = answer.order
        self._is_done = True
        self._answers.close()
        self._process.join()


class _Asking:
    """A look-up has loaded what it needs, and asks."""


class _Found(NamedTuple):
    """What a look-up found. `is_known`: nothing else than was known."""

    order: ServedOrder | None
    is_known: bool
    error: CachecastError | None


def _look_up(to: Connection, settings: Settings, capacity_bytes: int, known: ServedOrder | None) -> None:
    """Read the table promotions, then ask the registry; send when that begins, and what was found."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the steward, which ends this process
    from jobs.train.exchange import imported
    from jobs.train.registry import registry
    from models.serving.registry import load_order

    to.send(_Asking())
    region, order, error = settings.region.name, known, None
    try:
        tables = Tables(settings.tables.root)
        on_record = named(tables, region=region).get(STEWARD)
        if on_record is None:  # never promoted or taken back, whatever MLflow says
            is_auto = settings.steward.policy == "auto"
            order = imported(tables, region, capacity_bytes, known=known) if is_auto else None
        at = registry(settings.mlflow)
        found = load_order(at, region, capacity_bytes, named=on_record, known=known)
        if found is not None or on_record is not None:
            order = found
    except CachecastError as failed:
        error = failed
    is_known = order is known
    to.send(_Found(None if is_known else order, is_known, error))
