"""Limits on the answers of HTTP servers: how long they may take, and how many bytes they may have."""

import http.client
import io
import socket
import time
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from features.common.errors import ServiceError

TIMES_THE_TIMEOUT: Final = 20
"""An answer may take this many times the timeout of a single read."""
MOST_BYTES: Final = 256 * 2**20
_LEAST_S: Final = 0.01


class EndlessError(ServiceError):
    """An answer takes too long, is too long, or is compressed."""


def bounded(session: requests.Session) -> requests.Session:
    """Limit the answers of `session`, headers included, to `TIMES_THE_TIMEOUT` and `MOST_BYTES`; returns it.

    The clock starts when a request has been sent. A longer answer raises EndlessError while it is read. So
    does a compressed one, which may expand to any size; none is asked for.
    """
    if not isinstance(session.adapters.get("https://"), Adapter):
        for scheme in ("http://", "https://"):
            session.mount(scheme, Adapter())
    return session


class _Answer(http.client.HTTPResponse):
    """An answer that is read through `_Bounded`."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_Bounded(self.fp.detach(), sock))


class _Bounded(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw, self._sock, self._left_bytes = raw, sock, MOST_BYTES
        self._silence_s = sock.gettimeout() or 0.0
        self._most_s = TIMES_THE_TIMEOUT * self._silence_s
        self._until = time.monotonic() + self._most_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._silence_s:
            left_s = self._until - time.monotonic()
            self._sock.settimeout(min(self._silence_s, max(left_s, _LEAST_S)))
        try:
            n_bytes = self._raw.readinto(buffer)
        finally:
            if self._silence_s and time.monotonic() >= self._until:
                raise EndlessError(f"the answer takes longer than {self._most_s:.0f} s; ask for less")
        self._left_bytes -= n_bytes or 0
        if self._left_bytes < 0:
            raise EndlessError(f"the answer is longer than {MOST_BYTES >> 20} MiB; ask for less")
        return n_bytes

    def close(self) -> None:
        self._raw.close()
        super().close()


def _pool(pool: type, connection: type) -> type:
    """A kind of pool whose connections give `_Answer`s."""
    bounded_connection = type(connection.__name__, (connection,), {"response_class": _Answer})
    return type(pool.__name__, (pool,), {"ConnectionCls": bounded_connection})


_POOLS = {
    "http": _pool(HTTPConnectionPool, HTTPConnection),
    "https": _pool(HTTPSConnectionPool, HTTPSConnection),
}


class Adapter(HTTPAdapter):
    """What gives a session answers as of `bounded`; without a proxy, and with one that speaks HTTP."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        if proxy.lower().startswith("http"):
            manager.pool_classes_by_scheme = _POOLS
        return manager

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        request.headers["Accept-Encoding"] = "identity"
        answer = super().send(request, *args, **options)
        if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
            answer.close()
            raise EndlessError("the answer is compressed, although nobody asked for that")
        return answer
