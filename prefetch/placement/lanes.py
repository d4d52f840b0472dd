"""Bounds of what requests may take at once: places, turns of work, and the time of a body."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from features.common.errors import CachecastError

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
