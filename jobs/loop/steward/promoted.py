"""The order of eviction that a cache's steward may follow: the one promoted, unless it is too old.

A steward keeps a copy of the order that it follows. It begins by the table promotions and that copy, while
MLflow is asked only afterwards.
"""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing
import pickle
import shutil
import signal
import tempfile
import time
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from features.common.errors import CachecastError, ServiceError
from features.common.times import as_of_label
from features.common.units import duration_label
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.tables import Tables
from jobs.loop.trainings import promoted_models, registry
from models.serving.versions import STEWARD, ModelVersion
from replay.steward import rehearse

if TYPE_CHECKING:
    from models.serving.bundle_files import ServedOrder


LOOK_UP_EVERY_S: Final = 600.0  # a promotion takes effect within this, and the loading of an order
BEGINS_WITHIN_S: Final = 10.0  # the wait for an answer at the start; a later one is taken when it comes
LEARNED_WITHIN_S: Final = 60.0  # one that may follow no other order than a learned one waits so long
MAY_BE_LEARNED: Final = ("auto", "learned")  # policies that can follow a learned order
_log = logging.getLogger(__name__)


class Promoted:
    """The region's promoted order for `cache`, looked up now and then by a process that nobody waits for.

    `serves`: the order that may evict now, one object as long as it serves; `since_s`: s since 1970;
    `fault`: why it is not the promoted one. What cannot be read leaves the order before in place.
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
            ended, self._look_up = self._look_up, None
            self._due = time.monotonic() + (LOOK_UP_EVERY_S if ended.has_asked else 0.0)
            self._read, self._error = ended.order, ended.error
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
            faults.append(
                f"the order of {order.version} is of {as_of_label(order.until_s)}, older than "
                f"{duration_label(self._settings.training.max_age)} ([training] max_age), so it does not "
                "serve; train, evaluate and promote"
            )
            order = None
        if self._error is not None:
            rest = "no learned order serves" if order is None else f"the order of {order.version} serves on"
            faults.insert(0, f"the promoted order cannot be had: {self._error}; {rest}")
        if order is not self.serves:
            self.serves, self.since_s = order, None if order is None else now_s
        fault = "; ".join(faults) or None
        if fault not in (None, self.fault):
            _log.warning("%s", fault)
        self.fault = fault


_STEP_S: Final = 0.1
_LOADS_WITHIN_S: Final = 120.0  # a process that has not loaded what it needs by then hangs
_OTHER_CODE: Final = (AttributeError, ImportError, TypeError, ValueError, pickle.UnpicklingError)
"""What an answer raises that was made by another cachecast than asked: it was replaced meanwhile."""


class Question(NamedTuple):
    """What a look-up looks for. `known`: the order that was read last; `is_first`: a copy of it will do."""

    settings: Settings
    cache: CacheSettings
    known: ServedOrder | None
    is_first: bool

    @property
    def copies(self) -> Path:
        return self.settings.steward.copies(self.cache.name)

    @property
    def has_copy(self) -> bool:
        with contextlib.suppress(OSError):
            return self.is_first and self.copies.is_dir()
        return False


class LookUp:
    """Loads the promoted order, in a process of its own: MLflow and scikit-learn take 200 MB.

    The first one also compiles the kernels of the steward. A server that never ends its answer holds up
    nothing. `order`: by the disk until MLflow has answered; `has_asked`: not by a copy alone.
    """

    def __init__(self, question: Question) -> None:
        self.order = question.known
        self.error: CachecastError | None = None
        self.has_asked = not question.is_first
        self._counts_from_s = time.monotonic() + _LOADS_WITHIN_S
        self._is_done = False
        scratch = tempfile.mkdtemp()  # a process that is killed removes nothing
        context = multiprocessing.get_context("spawn")
        self._answers, theirs = context.Pipe(duplex=False)
        asked = theirs, question, scratch
        self._process = context.Process(target=_look_up, args=asked, name="promoted order", daemon=True)
        self._clean = weakref.finalize(self, _clean, self._process, scratch)
        self._process.start()
        theirs.close()

    def is_done(self) -> bool:
        """Whether `order` and `error` are what was found; waits for nothing."""
        while not self._is_done and self._answers.poll():
            self._take()
        return self._is_done

    def is_late(self, timeout_s: float) -> bool:
        """Whether the answer takes longer than this; to load MLflow does not count, unless that hangs."""
        return time.monotonic() - self._counts_from_s > timeout_s

    def wait(self, timeout_s: float) -> None:
        while not self.is_done() and not self.is_late(timeout_s):
            self._answers.poll(_STEP_S)

    def end(self) -> None:
        self._is_done = True
        self._answers.close()
        self._clean()

    def _take(self) -> None:
        try:
            answer: _Began | _Answer = self._answers.recv()
        except (EOFError, OSError, *_OTHER_CODE):
            what = "has ended early, or runs another cachecast: restart the steward after an upgrade"
            answer = _Answer(None, True, ServiceError(f"the process that asks MLflow {what}"))
        if isinstance(answer, _Began):
            self._counts_from_s = time.monotonic()
            return
        self.error = answer.error
        if not answer.is_known:
            self.order = answer.order
        if answer.asks_next:
            self.has_asked, self._counts_from_s = True, time.monotonic() + _LOADS_WITHIN_S
            return
        self._is_done = True
        self._answers.close()
        self._process.join(_STEP_S)
        self._clean()


def _clean(process: SpawnProcess, scratch: str) -> None:
    """Leave no process and no folder: the interpreter would wait at its end for a process that is stopped."""
    if process.pid is not None:
        process.kill()
        process.join(_STEP_S)
    shutil.rmtree(scratch, ignore_errors=True)


class _Began:
    """A look-up has loaded what it needs, and asks the tables or MLflow."""


class _Answer(NamedTuple):
    """What a look-up found. `is_known`: nothing else than was known; `asks_next`: it goes on with MLflow."""

    order: ServedOrder | None
    is_known: bool
    error: CachecastError | None
    asks_next: bool = False


def _look_up(to: Connection, question: Question, scratch: str) -> None:
    """Read the table promotions, then ask the registry; send when that begins, and what was found."""
    tempfile.tempdir = scratch
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the steward, which ends this process
    if question.is_first:
        rehearse(question.settings.steward.policy)  # here, for what compilation takes stays with its process
    if question.has_copy:
        import models.serving.bundle_files  # noqa: F401  # to load LightGBM counts as no delay
    to.send(_Began())
    known, order, error = question.known, question.known, None
    try:
        on_record, order = _on_disk(question)
        if not question.is_first or (on_record is not None and order is None):
            to.send(_Answer(None if order is known else order, order is known, None, asks_next=True))
            registered = _in_registry(to, question, on_record, order)
            if registered is not None or on_record is not None:
                order = registered
    except CachecastError as failed:
        error = failed
    to.send(_Answer(None if order is known else order, order is known, error))


def _on_disk(question: Question) -> tuple[ModelVersion | None, ServedOrder | None]:
    """The version in the table promotions, and the order that serves if MLflow does not answer."""
    settings, known = question.settings, question.known
    tables, region = Tables.of(settings), settings.region.name
    on_record = promoted_models(tables, region=region).get(STEWARD)
    if on_record is None:  # never promoted or taken back, whatever MLflow says
        return None, None
    if not question.has_copy:
        return on_record, known
    from models.serving.bundle_files import kept_order

    return on_record, kept_order(question.copies, on_record)


def _in_registry(
    to: Connection, question: Question, on_record: ModelVersion | None, known: ServedOrder | None
) -> ServedOrder | None:
    """The order of the version in MLflow; its files are kept for the next start."""
    from models.serving.bundle_files import keep_files
    from models.serving.registry import load_order

    settings = question.settings

    def keep(folder: Path, version: ModelVersion) -> None:
        try:
            keep_files(folder, question.copies, version)
        except OSError as error:
            _log.warning("the next start has to wait for MLflow, as no copy can be kept: %s", error)

    to.send(_Began())
    at = registry(settings.mlflow)
    return load_order(at, settings.region.name, named=on_record, known=known, keep=keep)
