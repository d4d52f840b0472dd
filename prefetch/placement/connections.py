"""uvicorn's HTTP connections under a gate: bounded headers, pipelines and time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from prefetch.placement.gate import Gate, Held
from prefetch.placement.tls import Secured

MAX_HEAD_BYTES = 16 * 1024
MAX_PIPELINED = 8


class PipelineError(Exception):
    """A client asks more at once than it may; uvicorn answers 400."""


class Connection(HttpToolsProtocol):
    """One client's HTTP. `held`: as the gate knows it, if TLS has made it known already."""

    def __init__(self, *, gate: Gate, held: Held | None = None, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._gate, self._held = gate, held
        self._is_head, self._n_head_bytes = True, 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it."""
        if self._held is None:
            self._held = self._gate.enter(transport)
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
        assert self._held is not None
        return self._held


def connections(gate: Gate, context: ssl.SSLContext | None) -> Callable[..., asyncio.Protocol]:
    """What uvicorn makes of each connection that it accepts, given its own words."""

    def made(**uvicorns: Any) -> asyncio.Protocol:
        if context is None:
            return Connection(gate=gate, **uvicorns)
        return Secured(gate, context, lambda held: Connection(gate=gate, held=held, **uvicorns))

    return made
