"""uvicorn's HTTP connections under bounds: how many there are, how long their headers, how slow each may be.

uvicorn bounds none of these for a client that sends slowly: its keep-alive time ends with the first byte, its
limit of headers is for h11, which is slower than httptools, and `limit_concurrency` refuses the new client.
Here, at a limit, the connection that was longest without an answer is closed: Rucio asks at once on one that
it opens, while who floods the service opens connections and is slow.
"""

import asyncio
import dataclasses
import ipaddress
import re
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SUBJECT = "subject"
"""Of a request's state: the subject of the verified certificate of its connection, or None."""
_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "emailAddress",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "userId": "UID",
}
_PART = re.compile(r"/\w+=")


def subject_of(certificate: Mapping[str, Any] | None) -> str | None:
    """The subject of what `ssl` knows of a verified certificate; None without one.

    None too for an attribute that the grid does not write, and for a value that would read as another part.
    """
    pairs = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    if not pairs or any(name not in _SHORT or _PART.search(f"/{value}") for name, value in pairs):
        return None
    return "".join(f"/{_SHORT[name]}={value}" for name, value in pairs)


HEAD_S = 10.0
"""Seconds for a TLS handshake and a request's headers, from the connection or the last answer."""
ANSWER_S = 60.0
"""Seconds for a request's body and for sending its answer, from the end of the headers."""
_SWEEP_S = 0.5
MAX_HEAD_BYTES = 16 * 1024
MAX_PIPELINED = 8


@dataclasses.dataclass(slots=True, eq=False)
class CountedConnection:
    """A counted connection: its client, and the deadline of its next step."""

    transport: asyncio.Transport
    client: str
    deadline_s: float


class Gate:
    """Connections, `most` at once, `per_client` of a client. `closed`: those it closed, by reason."""

    def __init__(self, *, most: int, per_client: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._most, self._per_client, self._now_s = most, per_client, now_s
        self._held: dict[CountedConnection, None] = {}
        self._n_of: Counter[str] = Counter()
        self._sweeper: asyncio.TimerHandle | None = None
        self.closed: Counter[str] = Counter({"full": 0, "client": 0, "slow": 0, "head": 0})

    def __len__(self) -> int:
        return len(self._held)

    def enter(self, transport: asyncio.Transport) -> CountedConnection:
        """Count a new connection; at a limit, close the one that is longest without an answer."""
        client = client_of(transport.get_extra_info("peername"))
        if self._n_of[client] >= self._per_client:
            self.close(next(held for held in self._held if held.client == client), "client")
        elif len(self._held) >= self._most:
            self.close(next(iter(self._held)), "full")
        held = CountedConnection(transport, client, self._now_s() + HEAD_S)
        self._held[held] = None
        self._n_of[client] += 1
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        return held

    def leave(self, held: CountedConnection) -> None:
        """A connection has ended; also one that was closed here."""
        if held not in self._held:
            return
        del self._held[held]
        self._n_of[held.client] -= 1
        if not self._n_of[held.client]:
            del self._n_of[held.client]

    def close(self, held: CountedConnection, reason: str) -> None:
        """End a connection at once, whatever it is still to be sent."""
        self.leave(held)
        self.closed[reason] += 1
        held.transport.abort()

    def asked(self, held: CountedConnection) -> None:
        """The headers of a request are whole."""
        held.deadline_s = self._now_s() + ANSWER_S

    def answered(self, held: CountedConnection) -> None:
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


class PipelineError(Exception):
    """A client asks more at once than it may; uvicorn answers 400."""


class HttpConnection(HttpToolsProtocol):
    """One client's HTTP. `held`: as the gate knows it; TLS sets it before the handshake."""

    held: CountedConnection | None = None

    def __init__(self, *, gate: Gate, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._gate = gate
        self._is_head, self._n_head_bytes = True, 0
        self._subject: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and see whose certificate it shows."""
        if self.held is None:
            self.held = self._gate.enter(transport)
        self._subject = subject_of(transport.get_extra_info("peercert"))
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.leave(self._here)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse it; headers that do not end end the connection."""
        if self._is_head:
            self._n_head_bytes += len(data)
        super().data_received(data)
        if self._is_head and self._n_head_bytes > MAX_HEAD_BYTES:
            self._gate.close(self._here, "head")

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise PipelineError
        super().on_message_begin()
        self.scope["state"][SUBJECT] = self._subject

    def on_headers_complete(self) -> None:
        self._is_head, self._n_head_bytes = False, 0
        self._gate.asked(self._here)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Parser: it is whole; what comes next is another's headers."""
        self._is_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._gate.answered(self._here)
        super().on_response_complete()

    @property
    def _here(self) -> CountedConnection:
        assert self.held is not None
        return self.held


class Secured(SSLProtocol):
    """asyncio's TLS, for a connection that counts from its first byte.

    A server with an `ssl` context makes connections known after their handshake only: clients that never end
    it would not be counted.
    """

    # One record; asyncio sets aside 256 KiB for each connection.
    max_size = 16 * 1024

    def __init__(self, gate: Gate, context: ssl.SSLContext, inner: HttpConnection) -> None:
        wait_s = {"ssl_handshake_timeout": HEAD_S, "ssl_shutdown_timeout": HEAD_S}
        super().__init__(inner.loop, inner, context, None, server_side=True, **wait_s)  # type: ignore[arg-type]
        self._gate, self._inner = gate, inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it, then shake hands."""
        self._inner.held = self._gate.enter(transport)  # type: ignore[arg-type]
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._inner.held is not None:
            self._gate.leave(self._inner.held)
        super().connection_lost(exc)


def connections(gate: Gate, context: ssl.SSLContext | None) -> Callable[..., asyncio.BaseProtocol]:
    """What uvicorn makes of each connection that it accepts, given its own words."""

    def protocol(**uvicorns: Any) -> asyncio.BaseProtocol:
        connection = HttpConnection(gate=gate, **uvicorns)
        return connection if context is None else Secured(gate, context, connection)

    return protocol
