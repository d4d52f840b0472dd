"""TLS of a connection that is counted from its first byte, and takes no more memory than what it has to say.

The event loops' own TLS makes a connection known after its handshake only, and sets 256 KiB aside for each:
thousands of clients that shake no hands would neither be counted nor be small.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, cast

from prefetch.placement.gate import Gate, Held

_READ_BYTES = 64 * 1024


class Secured(asyncio.Protocol):
    """What a client sends, decrypted for the protocol that `make` gives once hands are shaken."""

    def __init__(self, gate: Gate, context: ssl.SSLContext, make: Callable[[Held], asyncio.Protocol]) -> None:
        self._gate, self._context, self._make = gate, context, make
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._inner: asyncio.Protocol | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it."""
        # uvloop's transports are none of asyncio's classes.
        self._raw = cast(asyncio.Transport, transport)
        self._held = self._gate.enter(self._raw)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        self._gate.leave(self._held)
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads slower than it is sent to."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It has read."""
        if self._inner is not None:
            self._inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Shake hands with it, then decrypt it; what is no TLS ends the connection."""
        self._incoming.write(data)
        try:
            inner = self._inner or self._shaken()
            while not self._raw.is_closing() and (plain := self._tls.read(_READ_BYTES)):
                inner.data_received(plain)
            self.close()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError:
            self._flush()
            self._raw.abort()

    def write(self, data: bytes) -> None:
        """Encrypt what the inner protocol answers, and send it."""
        if self._raw.is_closing():
            return
        try:
            self._tls.write(data)
        except ssl.SSLError:
            self._raw.abort()
        self._flush()

    def close(self) -> None:
        """Say that this is the end, and close when all is sent."""
        if self._raw.is_closing():
            return
        with contextlib.suppress(ssl.SSLError):  # the client's own end has not come yet; ours is written
            self._tls.unwrap()
        self._flush()
        self._raw.close()

    def _shaken(self) -> asyncio.Protocol:
        self._tls.do_handshake()
        self._flush()
        self._inner = self._make(self._held)
        self._inner.connection_made(_Encrypting(self, self._raw, self._context))
        return self._inner

    def _flush(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())


class _Encrypting(asyncio.Transport):
    """The transport that the inner protocol sees: it writes through TLS, the rest is the connection's own."""

    def __init__(self, secured: Secured, raw: asyncio.Transport, context: ssl.SSLContext) -> None:
        super().__init__({"sslcontext": context})
        self._secured, self._raw = secured, raw

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return super().get_extra_info(name) or self._raw.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data:
            self._secured.write(bytes(data))

    def close(self) -> None:
        self._secured.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()
