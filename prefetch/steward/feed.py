"""What one cache reports: its closes and opens, in the order received, and where some are missing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from prefetch.xcache.captures import FolderReader
from prefetch.xcache.events import FileClose, Source
from prefetch.xcache.fstream import Packet
from prefetch.xcache.gstream import CaptureReader
from prefetch.xcache.users import Login, Work

MOST_WAITING: Final = 1000
"""Datagrams of the f-stream that wait until a g-stream says whose they are."""


class Lost(NamedTuple):
    """Datagrams are missing from the numbering of a sender."""

    n_datagrams: int


class Restarted(NamedTuple):
    """The cache's server was started at `stod`, s since 1970: nothing that was open before is open now."""

    stod: int


Report = FileClose | Packet | Login | Work | Lost | Restarted


class Feed:
    """The reports of one cache in the captures of `reader`.

    `cache`: the name by which the server calls itself, where several caches send to one collector; None: all
    reports are of one cache. `check_fed` raises InputError while nobody writes captures. `sees_opens`: the
    cache has reported opens since its server was started.
    """

    def __init__(
        self,
        reader: CaptureReader | FolderReader,
        cache: str | None = None,
        *,
        check_fed: Callable[[], None] = lambda: None,
    ) -> None:
        self.sees_opens = False
        self._reader, self._cache, self._check_fed = reader, cache, check_fed
        self._n_lost = self._stod = 0
        self._lives: set[int] = set()
        self._senders: dict[tuple[int, int], str] = {}
        self._waiting: deque[Packet] = deque(maxlen=MOST_WAITING)

    def poll(self) -> Iterator[Report]:
        """Reports since the last poll. Raises InputError after them if more may be missing."""
        for event in self._reader.events():
            if isinstance(event, Source):
                yield from self._sender(event)
            elif isinstance(event, FileClose):
                if self._is_ours(event.inst or event.site or event.host):
                    yield event
            elif isinstance(event, Packet):
                yield from self._packet(event)
            else:
                name = self._senders.get((event.stod, event.server_id))
                if name is None or self._is_ours(name):
                    yield event
        if (lost := self._reader.n_lost - self._n_lost) > 0:
            yield Lost(lost)
        self._n_lost = self._reader.n_lost
        self._check_fed()

    def _is_ours(self, name: str | None) -> bool:
        return self._cache is None or name == self._cache

    def _sender(self, source: Source) -> Iterator[Report]:
        name, number = source.inst or source.site or source.host, source.key[-1]
        if self._is_ours(name):
            yield from self._life(source.stod)
        if (source.stod, number) not in self._senders:
            self._senders[source.stod, number] = name
            waiting, self._waiting = self._waiting, deque(maxlen=MOST_WAITING)
            for packet in waiting:
                yield from self._packet(packet)

    def _packet(self, packet: Packet) -> Iterator[Report]:
        name = self._senders.get((packet.stod, packet.server_id))
        if self._cache is not None and name is None:
            self._waiting.append(packet)
        elif self._is_ours(name):
            yield from self._life(packet.stod)
            if packet.stod == self._stod:
                self.sees_opens = True
                yield packet

    def _life(self, stod: int) -> Iterator[Report]:
        # By a clock that was set back a later life may begin earlier.
        if stod in self._lives:
            return
        is_first, self._stod, self.sees_opens = not self._lives, stod, False
        self._lives.add(stod)
        if not is_first:
            yield Restarted(stod)
