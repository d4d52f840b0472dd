"""Bounds of what clients may take at once: connections, places in a queue, turns of work, and time.

Rucio asks at once on a connection that it opens; who floods the service opens connections and is slow. So at
a limit it is the connection that was longest without an answer that is closed, never the new one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from features.common.errors import CachecastError

HEAD_S = 10.0
"""Seconds for a TLS handshake and a request's headers, from the connection or the last answer."""
ANSWER_S = 60.0
"""Seconds for a request's body and for sending its answer, from the end of the headers."""
_SWEEP_S = 0.5


class Held:
    """A counted connection: its client, and the deadline of its next step."""

    __slots__ = ("client", "deadline_s", "transport")

    def __init__(self, transport: asyncio.Transport, client: str, deadline_s: float) -> None:
        self.transport, self.client, self.deadline_s = transport, client, deadline_s


class Gate:
    """The connections of one service: `most` at once, and `per_client` of one client.

    `closed`: number of connections that it closed, by reason: full, client (its limit), slow or head.
    """

    def __init__(self, *, most: int, per_client: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._most, self._per_client, self._now_s = most, per_client, now_s
        self._held: dict[Held, None] = {}
        self._n_of: Counter[str] = Counter()
        self._sweeper: asyncio.TimerHandle | None = None
        self.closed: Counter[str] = Counter({"full": 0, "client": 0, "slow": 0, "head": 0})

    def __len__(self) -> int:
        return len(self._held)

    def enter(self, transport: asyncio.Transport) -> Held:
        """Count a new connection; at a limit, close the one that is longest without an answer."""
        client = client_of(transport.get_extra_info("peername"))
        if self._n_of[client] >= self._per_client:
            self.close(next(held for held in self._held if held.client == client), "client")
        elif len(self._held) >= self._most:
            self.close(next(iter(self._held)), "full")
        held = Held(transport, client, self._now_s() + HEAD_S)
        self._held[held] = None
        self._n_of[client] += 1
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return held

    def leave(self, held: Held) -> None:
        """A connection has ended; also one that was closed here."""
        if held not in self._held:
            return
        del self._held[held]
        self._n_of[held.client] -= 1
        if not self._n_of[held.client]:
            del self._n_of[held.client]

    def close(self, held: Held, reason: str) -> None:
        """End a connection at once, whatever it is still to be sent."""
        self.leave(held)
        self.closed[reason] += 1
        held.transport.abort()

    def asked(self, held: Held) -> None:
        """The headers of a request are whole."""
        held.deadline_s = self._now_s() + ANSWER_S

    def answered(self, held: Held) -> None:
        """An answer was written: the connection is now the last one to be closed."""
        held.deadline_s = self._now_s() + HEAD_S
        if held in self._held:
            del self._held[held]
            self._held[held] = None

    def _sweep(self) -> None:
        now_s = self._now_s()
        for held in [held for held in self._held if held.deadline_s <= now_s]:
            self.close(held, "slow")
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(_SWEEP_S, self._sweep) if self._held else None


def client_of(peer: tuple[str, int] | None) -> str:
    """The client of a peer: an IPv4 address, or the /64 of an IPv6 one, all of which a host may have."""
    host = peer[0] if peer else ""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class RefusedError(CachecastError):
    """A request that is not handed on; `status` is its answer's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class GoneError(CachecastError):
    """The client has left before its body was whole."""


class Lane:
    """Requests of one kind: `at_once` at work; with those that wait `most`, of one client `per_client`.

    What limits a server by clients elsewhere limits rates; here it is what is held at once.
    """

    def __init__(self, *, at_once: int, most: int, per_client: int) -> None:
        self.turn, self._most, self._per_client = asyncio.Semaphore(at_once), most, per_client
        self._n_of: Counter[str] = Counter()

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """Count a request for as long as the block runs; `turn` is its work's. Raises RefusedError."""
        if self._n_of.total() >= self._most or self._n_of[client] >= self._per_client:
            raise RefusedError(503, "too many such requests at once; ask again")
        self._n_of[client] += 1
        try:
            yield
        finally:
            self._n_of[client] -= 1
            if not self._n_of[client]:
                del self._n_of[client]


async def whole_body(receive: Receive, length: int, *, within_s: float) -> bytes:
    """A body of `length` bytes. Raises RefusedError, GoneError."""
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            while len(body) < length:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError("the client has left")
                body += message.get("body", b"")
    except TimeoutError:
        raise RefusedError(408, f"the body did not come within {within_s:.0f} s") from None
    return bytes(body)
