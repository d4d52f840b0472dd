"""What one cache reports: closes and opens in the order received, and where some are missing.

A report counts as this cache's if it comes under the name that the server gives itself when it is asked.
Anybody can send under that name: no report decides what is open, held or evicted.
"""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from features.accesses import SESSION, TASK, USER
from features.common.errors import PushError
from features.stream.state import task_number, user_number
from prefetch.target import ServerIdentity
from prefetch.xcache.events import FileClose, ReportSender
from prefetch.xcache.fstream import Login, Packet, Work
from prefetch.xcache.gstream import CaptureReader, FolderReader
from prefetch.xcache.rolling import Heartbeat

MOST_STREAMS: Final = 64
"""Most senders under the cache's name that are remembered; a server has one number in each life."""
ASK_EVERY_S: Final = 10.0
ALARM_S: Final = 600.0
"""Seconds that two senders under one name raise an alarm."""


class Lost(NamedTuple):
    """Datagrams are missing from the numbering of a sender, or were not kept by the collector."""

    n_datagrams: int


class Restarted(NamedTuple):
    """The cache's server was started at `stod`, s since 1970: nothing that was open before is open now."""

    stod: int


class Skipped(NamedTuple):
    """Some reports of other caches were left out."""

    n_reports: int


Report = FileClose | Packet | Login | Work | Lost | Restarted | Skipped
_SKIPPED_AT_ONCE: Final = 1000


class Feed:
    """The reports of one cache in the captures of `reader`.

    `identity`: asks the server who it is, and raises PushError; None: no server, all reports are this
    cache's. `check`: raises InputError while captures are not written, or not completely. `reports_opens`:
    the server has reported opens with names since it was started.
    """

    def __init__(
        self,
        reader: CaptureReader | FolderReader,
        identity: Callable[[], ServerIdentity | None],
        *,
        check: Callable[[], Heartbeat | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reports_opens = False
        self._reader, self._ask, self._check, self._clock = reader, identity, check, clock
        self._self = identity()
        self._asked_at, self._strange_at = clock(), -ALARM_S
        self._strange, self._strange_stod = "", 0
        self._lives = set[int]() if self._self is None else {self._self.started_s}
        self._streams: dict[tuple[int, int], None] = {}
        self._is_by_us = False
        self._n_lost = self._n_refused = 0
        self._is_past = True

    @property
    def is_served(self) -> bool:
        return self._self is not None

    @property
    def server(self) -> str | None:
        """The version of the server, as it names itself; None: nobody serves the cache."""
        return None if self._self is None else self._self.version

    @property
    def fault(self) -> str | None:
        """Who sent reports under the cache's name lately that are not its own; None if nobody did."""
        return self._strange if self._clock() - self._strange_at < ALARM_S else None

    def poll(self) -> Iterator[Report]:
        """Reports since the last poll. Raises InputError after them if more may be missing.

        The first poll gives reports of the past, which may be of earlier lives of the server.
        """
        n_skipped = 0
        for event in self._reader.events():
            if isinstance(event, ReportSender):
                yield from self._sender(event)
            elif self._is_ours(event):
                if isinstance(event, Packet):
                    self.reports_opens |= any(opened.lfn for opened in event.opened)
                yield event
            else:
                n_skipped += 1
                if n_skipped % _SKIPPED_AT_ONCE == 0:
                    yield Skipped(_SKIPPED_AT_ONCE)
        self._is_past = False
        beat = self._check()
        n_refused = 0 if beat is None else beat.dropped + beat.over_quota
        lost = max(0, self._reader.n_lost - self._n_lost) + max(0, n_refused - self._n_refused)
        self._n_lost, self._n_refused = self._reader.n_lost, n_refused
        if lost:
            yield Lost(lost)

    def refresh(self) -> Restarted | None:
        """Ask the server who it is; `Restarted` if it was restarted, else None. Raises PushError."""
        self._asked_at = self._clock()
        server = self._ask()
        before, self._self = self._self, server
        if server is None or before is None or server.started_s == before.started_s:
            return None
        self._lives.add(server.started_s)
        self.reports_opens = False
        if self._strange_stod == server.started_s:  # it was heard before it could be asked
            self._strange_at = -ALARM_S
        return Restarted(server.started_s)

    def _is_ours(self, event: FileClose | Packet | Login | Work) -> bool:
        if self._self is None:
            return True
        if isinstance(event, FileClose):
            return self._is_by_us
        if (event.stod, event.server_id) in self._streams:
            return True
        # Before the server's first datagram of JSON only its start is known.
        return event.stod == self._self.started_s and not self._numbers(event.stod)

    def _numbers(self, stod: int) -> list[int]:
        return [number for of, number in self._streams if of == stod]

    def _sender(self, source: ReportSender) -> Iterator[Report]:
        """Decide whether what follows from this sender is the cache's; ask the server about a new start."""
        host, instance, port, stod, number = source.key
        known = self._self
        self._is_by_us = known is None or (host, instance, port) == (known.host, known.instance, known.port)
        if known is None or not self._is_by_us:
            return
        if stod not in self._lives and not self._is_past:
            if self._clock() - self._asked_at >= ASK_EVERY_S:
                with suppress(PushError):  # a server that does not answer is an alarm of its own
                    if (restarted := self.refresh()) is not None:
                        self._streams.clear()
                        yield restarted
            if stod not in self._lives:
                self._is_by_us = False
                self._suspect(f"one that was started at {stod}", stod)
                return
        if not self._is_past and (others := self._numbers(stod)) and number not in others:
            self._suspect(f"one with the number {number}, and one with {others[-1]}", stod)
        self._streams.pop((stod, number), None)
        self._streams[stod, number] = None
        if len(self._streams) > MOST_STREAMS:
            del self._streams[next(iter(self._streams))]

    def _suspect(self, who: str, stod: int) -> None:
        name = self._self
        assert name is not None
        self._strange = (
            f"two senders call themselves {name.instance} at {name.host}:{name.port}: the server says that "
            f"it was started at {name.started_s}, and reports come from {who}"
        )
        self._strange_at, self._strange_stod = self._clock(), stod


NOBODY: Final = 0
MOST_SESSIONS: Final = 50_000
"""Most sessions whose user is remembered; of more, the oldest is forgotten and counts as nobody."""
_BITS: Final = 51


@dataclasses.dataclass(slots=True)
class _Session:
    user: int
    task: int = NOBODY


class Readers:
    """The readers of a cache's sessions, as numbers, by the `kinds` that the order distinguishes."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = frozenset(kinds)
        self._sessions: dict[tuple[int, int, int], _Session] = {}
        self._by_name: dict[tuple[int, int, int], _Session] = {}

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def note(self, report: Login | Work) -> None:
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
        session = self._sessions.get((stod, server_id, user_id), _Session(NOBODY))
        for kind, reader in ((TASK, session.task), (USER, session.user)):
            if kind in self._kinds and reader:
                return reader
        if SESSION in self._kinds and user_id:
            return _number(f"{stod} {server_id} {user_id}", user_number)
        return NOBODY


def _number(name: str, numbered: Callable[[int], int]) -> int:
    """The number of a name, the same in every run; of no name that of nobody."""
    if not name:
        return NOBODY
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return numbered(int.from_bytes(digest) >> (64 - _BITS))
