"""uvicorn's HTTP connections under a gate: bounded headers, pipelines and time.

uvicorn bounds none of these for a client that sends slowly: its keep-alive time ends with the first byte, its
limit of headers is for h11, which is slower than httptools, and `limit_concurrency` refuses the new client.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from prefetch.placement.certificates import SUBJECT, subject_of
from prefetch.placement.gate import HEAD_S, Gate, Held

MAX_HEAD_BYTES = 16 * 1024
MAX_PIPELINED = 8


class PipelineError(Exception):
    """A client asks more at once than it may; uvicorn answers 400."""


class Connection(HttpToolsProtocol):
    """One client's HTTP. `held`: as the gate knows it; TLS sets it before the handshake."""

    held: Held | None = None

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
        """Count it no more."""
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
        """Parser: a request begins."""
        if len(self.pipeline) >= MAX_PIPELINED:
            raise PipelineError
        super().on_message_begin()
        self.scope["state"][SUBJECT] = self._subject

    def on_headers_complete(self) -> None:
        """Parser: its headers are whole."""
        self._is_head, self._n_head_bytes = False, 0
        self._gate.asked(self._here)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Parser: it is whole; what comes next is another's headers."""
        self._is_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Cycle: the answer was written."""
        self._gate.answered(self._here)
        super().on_response_complete()

    @property
    def _here(self) -> Held:
        assert self.held is not None
        return self.held


class Secured(SSLProtocol):
    """asyncio's TLS, for a connection that counts from its first byte.

    A server with an `ssl` context makes connections known after their handshake only: clients that never end
    it would not be counted.
    """

    # One record; asyncio sets aside 256 KiB for each connection.
    max_size = 16 * 1024

    def __init__(self, gate: Gate, context: ssl.SSLContext, inner: Connection) -> None:
        wait_s = {"ssl_handshake_timeout": HEAD_S, "ssl_shutdown_timeout": HEAD_S}
        super().__init__(inner.loop, inner, context, None, server_side=True, **wait_s)  # type: ignore[arg-type]
        self._gate, self._inner = gate, inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it, then shake hands."""
        self._inner.held = self._gate.enter(transport)  # type: ignore[arg-type]
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count it no more."""
        if self._inner.held is not None:
            self._gate.leave(self._inner.held)
        super().connection_lost(exc)


def connections(gate: Gate, context: ssl.SSLContext | None) -> Callable[..., asyncio.BaseProtocol]:
    """What uvicorn makes of each connection that it accepts, given its own words."""

    def made(**uvicorns: Any) -> asyncio.BaseProtocol:
        connection = Connection(gate=gate, **uvicorns)
        return connection if context is None else Secured(gate, context, connection)

    return made
