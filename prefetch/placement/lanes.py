"""Bounds of what requests may take at once: turns of work, and bytes of bodies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from features.errors import CachecastError

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class BusyError(CachecastError):
    """There is no room for another request; worth asking again."""


class SlowError(CachecastError):
    """A body did not come in time."""


class GoneError(CachecastError):
    """The client has left before its body was whole."""


class Lane:
    """Requests of one kind: `at_once` at work; at work or waiting `most`, of one client `per_client`."""

    def __init__(self, *, at_once: int, most: int, per_client: int) -> None:
        self._turn, self._most, self._per_client = asyncio.Semaphore(at_once), most, per_client
        self._n_of: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for as long as the block runs. Raises BusyError."""
        if self._n_of.total() >= self._most or self._n_of[client] >= self._per_client:
            raise BusyError("too many such requests at once; ask again")
        self._n_of[client] += 1
        try:
            async with self._turn:
                yield
        finally:
            self._n_of[client] -= 1
            if not self._n_of[client]:
                del self._n_of[client]


class Bodies:
    """Bodies of requests, `most_bytes` in all; those up to `small_bytes` are always taken."""

    def __init__(self, *, most_bytes: int, small_bytes: int, within_s: float) -> None:
        self._most, self._small, self._within_s = most_bytes, small_bytes, within_s
        self.n_bytes = 0

    @asynccontextmanager
    async def whole(self, receive: Receive, length: int) -> AsyncIterator[bytes]:
        """A body of `length` bytes, counted until the block ends. Raises BusyError, SlowError, GoneError."""
        body = bytearray()
        try:
            await self._fill(body, receive, length)
            yield bytes(body)
        finally:
            self.n_bytes -= len(body)

    async def _fill(self, body: bytearray, receive: Receive, length: int) -> None:
        try:
            async with asyncio.timeout(self._within_s):
                while len(body) < length:
                    self._take(body, await receive(), length)
        except TimeoutError:
            raise SlowError(f"the body did not come within {self._within_s:.0f} s") from None

    def _take(self, body: bytearray, message: MutableMapping[str, Any], length: int) -> None:
        if message["type"] == "http.disconnect":
            raise GoneError("the client has left")
        part = message.get("body", b"")
        if length > self._small and self.n_bytes + len(part) > self._most:
            raise BusyError("too many bodies at once; ask again")
        body += part
        self.n_bytes += len(part)
