"""A connection to a STOMP broker, by stomp.py: what comes of it, and its end also where a broker hangs."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import stomp
from stomp.connect import BaseConnection
from stomp.exception import StompException
from stomp.protocol import Protocol12
from stomp.transport import Transport

AT_ONCE = 100
"""Messages of a destination that a broker sends before the first of them is acknowledged."""
CONNECTED = "connected"
_BYE = "bye"
_BEAT_MS = 10_000
_GOODBYE_S = 2.0
_MOST_DIGITS = 15
_MOST_WAITING = 10 * AT_ONCE
_WAIT_S = 0.05
# The library's log holds the login at DEBUG, and tracebacks of what is raised here anyway.
logging.getLogger("stomp.py").setLevel(logging.CRITICAL + 1)


class Message(NamedTuple):
    """A message of a subscription. `body`: None if it is larger than was to be kept.

    `published_ms`: when the broker got it, since 1970, 0 if it does not say; `is_again`: the broker sends it
    once more; `ticket`: what acknowledges it.
    """

    body: bytes | None
    size_bytes: int
    published_ms: int
    is_again: bool
    ticket: str


class StompConnection(BaseConnection, Protocol12):  # type: ignore[misc]
    """As stomp.Connection12, tried once, and at an end where that waits. `beats`: notice a silent broker."""

    def __init__(self, at: tuple[str, int], timeout_s: int, *, beats: bool) -> None:
        transport = _Transport([at], reconnect_attempts_max=1, timeout=timeout_s, auto_decode=False)
        BaseConnection.__init__(self, transport)
        heartbeats = (_BEAT_MS, _BEAT_MS) if beats else (0, 0)
        Protocol12.__init__(self, transport, heartbeats, auto_content_length=False)

    def connect(self, *login: str, headers: Mapping[str, str]) -> None:
        self.transport.start()
        Protocol12.connect(self, *login, headers=headers)

    def disconnect(self, receipt: str) -> None:
        Protocol12.disconnect(self, receipt)


class _Transport(Transport):  # type: ignore[misc]
    def receive(self) -> bytes | None:
        content: bytes | None = super().receive()
        if content == b"":
            # With TLS the library would take the end for a pause, and look for more without one.
            self.running = False
        return content

    def disconnect_socket(self) -> None:
        with contextlib.suppress(OSError, AttributeError, ValueError):
            # With TLS the library would wait without end for the other side's goodbye.
            self.socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError, AttributeError, ValueError, KeyError):
            # Its own thread may be at the same end.
            super().disconnect_socket()


def leave(connection: Any, listener: Receipts) -> None:
    with contextlib.suppress(StompException, OSError, AttributeError):
        if not listener.error:
            connection.disconnect(receipt=_BYE)
            listener.wait({_BYE}, _GOODBYE_S)
    listener.is_ending = True
    connection.transport.disconnect_socket()


def subscribing(destination: str, client: str) -> dict[str, str]:
    """Headers for ActiveMQ, Artemis and RabbitMQ, each of which passes over those of the others."""
    headers = {"activemq.prefetchSize": str(AT_ONCE), "prefetch-count": str(AT_ONCE)}
    if destination.startswith("/topic/"):
        name = f"{client}{destination}"
        headers |= {"activemq.subscriptionName": name, "durable-subscription-name": name, "durable": "true"}
        headers["auto-delete"] = "false"
    return headers


class Receipts(stomp.ConnectionListener):  # type: ignore[misc]
    """What the broker confirmed, or why it did not. The library itself would wait for it without end."""

    def __init__(self) -> None:
        self.error = ""
        self.is_ending = False
        self._got: set[str] = set()
        self._changed = threading.Condition()

    def on_connected(self, frame: Any) -> None:
        self._confirmed(CONNECTED)

    def on_receipt(self, frame: Any) -> None:
        self._confirmed(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self._fail(f"{frame.headers.get('message', '')} {(frame.body or b'').decode(errors='replace')}")

    def on_disconnected(self) -> None:
        if not self.is_ending:
            self._fail("it closed the connection, or is silent")

    def wait(self, receipts: set[str], timeout_s: float) -> None:
        """Until all `receipts` are there. Raises OSError."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while missing := receipts - self._got:
                left_s = deadline - time.monotonic()
                if self.error or left_s <= 0:
                    raise OSError(f"{len(missing)} of {len(receipts)} answers are missing. {self.error}")
                self._changed.wait(left_s)

    def _confirmed(self, receipt: str) -> None:
        with self._changed:
            self._got.add(receipt)
            self._changed.notify()

    def _fail(self, error: str) -> None:
        with self._changed:
            self.error = self.error or error
            self._changed.notify()


class Messages(Receipts):
    """And the messages that came."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self.messages: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        headers, body = frame.headers, frame.body or b""
        if not headers.get("ack"):
            self._fail("it sends messages that cannot be acknowledged")
            return
        while self.messages.qsize() >= _MOST_WAITING and not (self.is_ending or self.error):
            time.sleep(_WAIT_S)  # a broker that sends more than was asked for has to wait
        published = headers.get("timestamp", "")
        self.messages.put(
            Message(
                body if len(body) <= self._most_bytes else None,
                len(body),
                int(published) if published.isdecimal() and len(published) <= _MOST_DIGITS else 0,
                headers.get("redelivered") == "true",
                headers["ack"],
            )
        )
