"""Who reads, as the numbers by which an order tells readers apart."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection
from typing import Final

from features.stream.readers import SESSION, TASK, USER
from features.stream.state import task_number, user_number
from prefetch.xcache.users import Login, Work

NOBODY: Final = 0
MOST_SESSIONS: Final = 50_000
"""Sessions whose user is remembered: of more, the one that began first is forgotten, and names nobody."""
_BITS: Final = 51


@dataclasses.dataclass(slots=True)
class _Session:
    user: int
    task: int = NOBODY


class Readers:
    """The readers of a cache's sessions. `kinds`: those that the order has learned to tell apart, of
    `features.stream.readers.KINDS`; without one, everyone is nobody.

    Names are kept as hashes of 51 bits.
    """

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = frozenset(kinds)
        self._sessions: dict[tuple[int, int, int], _Session] = {}
        self._by_name: dict[tuple[int, int, int], _Session] = {}

    def __bool__(self) -> bool:
        """Whether anybody is told apart."""
        return bool(self._kinds)

    def note(self, report: Login | Work) -> None:
        """Take what a server says of a session."""
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
