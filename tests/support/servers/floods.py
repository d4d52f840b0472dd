"""Floods of a placement service on this machine: bounded in connections and time, and only to loopback."""

import json
import resource
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from urllib.parse import urlsplit

Address = tuple[str, int]
_POST = (
    b"POST /score HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
)
_EMPTY = json.dumps({"inputs": [{}] * 10_000}, separators=(",", ":")).encode()
_BEGUN = b"GET /serverRanges HTTP/1.1\r\nx-"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00"
"""The first bytes of a TLS handshake."""
_RANGES = b"GET /serverRanges HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def address_of(url: str) -> Address:
    """Host and port of a service, which must be on loopback."""
    parts = urlsplit(url)
    assert parts.hostname == "127.0.0.1"
    return parts.hostname, parts.port or 0


def ranges_s(address: Address) -> float:
    """Seconds until a new connection has the whole answer of `/serverRanges`. Raises OSError."""
    began_s = time.monotonic()
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(_RANGES)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise ConnectionError(f"/serverRanges answers {answer[:40]!r}")
    return time.monotonic() - began_s


@contextmanager
def half_open(
    address: Address, n: int = 1100, *, source: str = "127.0.0.1", begun: bytes = _BEGUN
) -> Iterator[None]:
    """`n` connections from `source` that send what is `begun` and no more; closed ones are opened again."""
    yield from _kept(address, n, begun, source)


@contextmanager
def slow_bodies(address: Address, n: int = 100) -> Iterator[None]:
    """`n` connections that send all but the last byte of a body of 2 MiB."""
    yield from _kept(address, n, _POST % 2**21 + bytes(2**21 - 1))


@contextmanager
def score_flood(address: Address, n: int = 12) -> Iterator[None]:
    """`n` clients that ask without end to rank 10 000 empty objects."""
    yield from _asking(address, n, _POST % len(_EMPTY) + _EMPTY)


@contextmanager
def operator_flood(address: Address, n: int = 48) -> Iterator[None]:
    """`n` clients that ask without end for the operator's page."""
    yield from _asking(address, n, b"GET /operator HTTP/1.1\r\nhost: localhost\r\n\r\n")


@contextmanager
def pipelined(address: Address, n: int = 12) -> Iterator[None]:
    """`n` clients that send thousands of requests at once, without end, and read no answer."""
    yield from _asking(address, n, b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5000)


FLOODS: dict[str, Callable[..., AbstractContextManager[None]]] = {
    "half-open": half_open,
    "slow bodies": slow_bodies,
    "score": score_flood,
    "operator": operator_flood,
    "pipelined": pipelined,
}


def _kept(address: Address, n: int, sent: bytes, source: str = "127.0.0.1") -> Iterator[None]:
    allow_descriptors(n + 256)
    with ExitStack() as stack:
        stop = threading.Event()
        keeper = threading.Thread(target=_keep, args=(address, n, sent, source, stop))
        keeper.start()
        stack.callback(keeper.join)
        stack.callback(stop.set)
        yield


def _keep(address: Address, n: int, sent: bytes, source: str, stop: threading.Event) -> None:
    """Hold `n` connections and push `sent` through each; one that was closed is opened anew."""
    with selectors.DefaultSelector() as selector:
        while not stop.is_set():
            while len(selector.get_map()) < n and not stop.is_set():
                try:
                    connection = socket.create_connection(address, timeout=0.2, source_address=(source, 0))
                except OSError:
                    break
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, memoryview(sent))
            for key, events in selector.select(0.05):
                _push(selector, key, events)
            stop.wait(0.01)
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]


def _push(selector: selectors.BaseSelector, key: selectors.SelectorKey, events: int) -> None:
    connection = key.fileobj
    assert isinstance(connection, socket.socket)
    try:
        if events & selectors.EVENT_READ and not connection.recv(65536):
            raise ConnectionError
        if events & selectors.EVENT_WRITE:
            rest = key.data[connection.send(key.data) :]
            next_events = selectors.EVENT_READ | (selectors.EVENT_WRITE if rest else 0)
            selector.modify(connection, next_events, rest)
    except BlockingIOError:
        return
    except OSError:
        selector.unregister(connection)
        connection.close()


def _asking(address: Address, n: int, sent: bytes) -> Iterator[None]:
    stop = threading.Event()
    clients = [threading.Thread(target=_ask, args=(address, sent, stop)) for _ in range(n)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        stop.set()
        for client in clients:
            client.join()


def _ask(address: Address, sent: bytes, stop: threading.Event) -> None:
    """Ask again and again, and read what comes for a short time."""
    while not stop.is_set():
        try:
            with socket.create_connection(address, timeout=0.5) as connection:
                connection.sendall(sent)
                while not stop.is_set() and connection.recv(65536):
                    pass
        except OSError:
            stop.wait(0.02)


def allow_descriptors(n: int) -> None:
    """Let this process open `n` files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < n:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))
