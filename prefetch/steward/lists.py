"""What plans and queues ask of a steward, read in a thread of its own, as journal and tables may hang."""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeVar

from features.common.errors import CachecastError, ServiceError
from prefetch.steward.book import Book

FRESH_S: Final = 5.0
"""While files go, lists are read again after so long, as a newer plan may pin what an older one evicts."""
SILENT_S: Final = 20.0
"""A journal that has not answered for so long is unavailable."""
_ANSWERS_WITHIN_S: Final = 0.2
"""It is waited for the journal no longer than this at once."""
_PAUSES: Final = 20
"""Reading takes no more than one part in so many of the time."""

_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class Lists(NamedTuple):
    """Names that plans pin, which are never evicted, and names that they evict, which go first.

    `expected`: names that queued work will read, and when, s since 1970. `fault`: why the pins are those
    that were read last; None: they are of now.
    """

    pins: Collection[str]
    evictions: Sequence[str]
    expected: Mapping[str, float] = MappingProxyType({})
    fault: str | None = None


class QueuedReads:
    """Which of the files in a book queued work will read, and when."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._due_s: Mapping[str, float] = {}
        self._expected: set[int] = set()
        self._n_known = 0

    def expect(self, due_s: Mapping[str, float]) -> None:
        """Let the steward expect these reads; of the same object as before, those of files known since then.

        A file that was read meanwhile is expected again if a queue still names it.
        """
        book, expected = self._book, dict[int, float]()
        if due_s is not self._due_s:
            expected = dict.fromkeys(self._expected, math.nan)
            expected |= {file: at_s for name, at_s in due_s.items() if (file := book.find(name)) is not None}
            self._expected.clear()
        elif due_s:  # files are fetched because a queue names them: they come after it
            new = range(self._n_known, len(book))
            expected = {file: due_s[name] for file in new if (name := book.name(file)) in due_s}
        for file, at_s in expected.items():
            book.steward.expect(file, at_s)
        self._expected |= {file for file, at_s in expected.items() if not math.isnan(at_s)}
        self._due_s, self._n_known = due_s, len(book)


class ListReader:
    """Reads `lists` at the times given, s since 1970, every `every_s`, more often while files go."""

    def __init__(self, lists: Callable[[Sequence[float]], Lists], every_s: float) -> None:
        self._lists, self._every_s = lists, every_s
        self._asking: Asking[Lists] | None = None
        self._began = -every_s
        self._took_s = 0.0

    def read(self, times_s: Sequence[float], *, files_go: bool) -> Lists | None:
        """New lists; None if none are due, or not answered yet. Raises ServiceError: it is unavailable."""
        now = time.monotonic()
        if self._asking is None:
            soon_s = min(self._every_s, max(FRESH_S, _PAUSES * self._took_s))
            if now - self._began < (soon_s if files_go else self._every_s):
                return None
            self._began, self._asking = now, Asking(partial(self._lists, times_s))
        self._asking.join(_ANSWERS_WITHIN_S)
        if self._asking.is_alive():
            if now - self._began > SILENT_S:
                raise ServiceError(f"the push journal has not answered for {now - self._began:.0f} s")
            return None
        asking, self._asking, self._took_s = self._asking, None, time.monotonic() - self._began
        if asking.fault is not None:
            self._began = -self._every_s
            raise asking.fault
        assert asking.answer is not None
        return asking.answer


class Asking(threading.Thread, Generic[_Answer]):
    """Asks once, in a thread of its own: the `answer`, or the `fault`, once it has ended."""

    def __init__(self, ask: Callable[[], _Answer]) -> None:
        super().__init__(name="asking", daemon=True)
        self.answer: _Answer | None = None
        self.fault: ServiceError | None = None
        self.began_s = time.monotonic()
        self._ask = ask
        self.start()

    def run(self) -> None:
        """Ask."""
        try:
            self.answer = self._ask()
        except (CachecastError, OSError) as error:
            self.fault = ServiceError(str(error))
        except Exception as error:  # noqa: BLE001  a damaged table may fail anywhere: who asks goes on
            _log.exception("an answer failed as no code foresaw")
            self.fault = ServiceError(f"{type(error).__name__}: {error}")
