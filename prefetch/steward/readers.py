"""Who reads, as the numbers by which an order tells readers apart, and which files they have open."""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from features.accesses import SESSION, TASK, USER
from features.stream.state import task_number, user_number
from prefetch.xcache.fstream import Login, Work

NOBODY: Final = 0
MOST_SESSIONS: Final = 50_000
"""Most sessions whose user is remembered; of more, the oldest is forgotten and counts as nobody."""
_BITS: Final = 51


@dataclasses.dataclass(slots=True)
class _Session:
    user: int
    task: int = NOBODY


class Readers:
    """The readers of a cache's sessions, as numbers.

    `kinds`: those of `features.accesses.KINDS` that the order was trained to distinguish; if there are
    none, every reader is nobody. Names are kept as hashes of 51 bits.
    """

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = frozenset(kinds)
        self._sessions: dict[tuple[int, int, int], _Session] = {}
        self._by_name: dict[tuple[int, int, int], _Session] = {}

    def __bool__(self) -> bool:
        """Whether readers are distinguished."""
        return bool(self._kinds)

    def note(self, report: Login | Work) -> None:
        """Take a server's report on a session."""
        name = report.stod, report.server_id, hash(report.session)
        if isinstance(report, Work):
            if (known := self._by_name.get(name)) is not None:
                known.task = _number(report.work, task_number)
            return
        began = _Session(_number(report.user, user_number))
        key = report.stod, report.server_id, report.user_id
        for sessions, of in ((self._sessions, key), (self._by_name, name)):
            sessions.pop(of, None)
            sessions[of] = began
            if len(sessions) > MOST_SESSIONS:
                del sessions[next(iter(sessions))]

    def number(self, stod: int, server_id: int, user_id: int) -> int:
        """The reader of session `user_id` of a server: its task, else its user, else the session itself."""
        session = self._sessions.get((stod, server_id, user_id))
        if session is not None and TASK in self._kinds and session.task:
            return session.task
        if session is not None and USER in self._kinds and session.user:
            return session.user
        if SESSION in self._kinds and user_id:
            return _number(f"{stod} {server_id} {user_id}", user_number)
        return NOBODY


def _number(name: str, numbered: Callable[[int], int]) -> int:
    """The number of a name, the same in every run; of no name that of nobody."""
    if not name:
        return NOBODY
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return numbered(int.from_bytes(digest) >> (64 - _BITS))


_OVER_AT_MOST: Final = 64
"""So many uses that are over are kept before they are removed together."""


class Key(NamedTuple):
    """An open file at a server: `stod` is the start of the server, `file_id` means something within it."""

    stod: int
    server_id: int
    file_id: int


@dataclasses.dataclass(slots=True)
class Use:
    """A file that `reader` opened between `begin_s` and `end_s`, known at `seen_s`, by our clock.

    `holds`: it keeps the file on disk; `is_counted`: its read was; `until_s`: nobody has the file open any
    more, so that its close comes by then; `is_over`: it is not followed any more.
    """

    file: int
    reader: int
    begin_s: int
    end_s: int
    seen_s: float
    n_blocks: int
    holds: bool
    is_counted: bool = False
    until_s: float = math.inf
    is_over: bool = False


class FileUses:
    """The uses of one file. Whatever closes come, a use is returned once as begun and once as ended."""

    def __init__(self) -> None:
        self.n_open = 0
        self.seen_s = -math.inf
        self._number = itertools.count()
        self._begun: list[tuple[int, int, Use]] = []
        self._ended: list[tuple[int, int, Use]] = []

    def add(self, use: Use) -> None:
        """Follow a use. `seen_s` is when the newest became known."""
        number = next(self._number)
        heapq.heappush(self._begun, (use.begin_s, number, use))
        heapq.heappush(self._ended, (use.end_s, number, use))
        self.n_open += 1
        self.seen_s = max(self.seen_s, use.seen_s)

    def end(self, use: Use) -> None:
        """Follow a use no more."""
        use.is_over = True
        self.n_open -= 1
        self._begun, self._ended = self._without_over(self._begun), self._without_over(self._ended)

    def begun_by(self, at_s: int) -> Iterator[Use]:
        """Uses that began by `at_s` and were not returned yet, oldest first."""
        return _until(self._begun, at_s)

    def ended_by(self, at_s: int) -> Iterator[Use]:
        """Uses that may have ended by `at_s` and were not returned yet, oldest first."""
        return _until(self._ended, at_s)

    def _without_over(self, uses: list[tuple[int, int, Use]]) -> list[tuple[int, int, Use]]:
        if len(uses) <= 2 * self.n_open + _OVER_AT_MOST:
            return uses
        left = [one for one in uses if not one[2].is_over]
        heapq.heapify(left)
        return left


def _until(uses: list[tuple[int, int, Use]], at_s: int) -> Iterator[Use]:
    while uses and uses[0][0] <= at_s:
        use = heapq.heappop(uses)[2]
        if not use.is_over:
            yield use
