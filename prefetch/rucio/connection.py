"""A connection to a STOMP broker, by stomp.py: what comes of it, and its end also where a broker hangs."""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import socket
import ssl
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
LISTENER = "answers"
"""The name of the listener: before those of the library."""
_BYE = "bye"
_ASKED = "asked"
_BEAT_MS = 10_000
SILENT_S = 30.0
"""A broker that says nothing for so long is asked; for twice as long, it has gone."""
_GOODBYE_S = 2.0
_MOST_DIGITS = 15
_MOST_BEATS = 20
"""Characters of what a broker says of its heart-beats."""
_MOST_HEADER_BYTES = 2**16
_MOST_ANSWER_BYTES = 2**16
"""Of the body of what answers a message to the broker."""
_LENGTH = re.compile(rb"^content-length[ \t]*:[ \t]*(\d+)[^\n]*\n?", re.MULTILINE)
_HEADER_ENDS = re.compile(rb"\r?\n\r?\n|(?=\0)")
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
    """As stomp.Connection12, tried once, and at an end where that waits.

    `most_bytes`: of a message's body; of what is longer one byte more is kept. None: none come.
    """

    def __init__(self, at: tuple[str, int], timeout_s: int, *, most_bytes: int | None) -> None:
        transport = _Transport([at], reconnect_attempts_max=1, timeout=timeout_s, auto_decode=False)
        transport.most_bytes = most_bytes or _MOST_ANSWER_BYTES
        BaseConnection.__init__(self, transport)
        heartbeats = (_BEAT_MS, _BEAT_MS) if most_bytes else (0, 0)
        Protocol12.__init__(self, transport, heartbeats, auto_content_length=False)

    def connect(self, *login: str, headers: Mapping[str, str]) -> None:
        self.transport.start()
        Protocol12.connect(self, *login, headers=headers)

    def disconnect(self, receipt: str) -> None:
        Protocol12.disconnect(self, receipt)

    def silent_s(self) -> float:
        """How long nothing came."""
        heard_s: float = self.transport.heard_s
        return time.monotonic() - heard_s

    def ask(self) -> None:
        """Make the broker say something: not all send heart-beats."""
        self.begin(transaction=_ASKED, receipt=_ASKED)
        self.abort(_ASKED)


class _Frames:
    """Cuts what a broker sends into whole frames: of a body over `most_bytes` one byte more is kept."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._header, self._is_in_body = b"", False
        self._body, self._size, self._least = bytearray(), 0, 0

    def whole(self, content: bytes) -> bytes:
        """The frames that end in `content`, and the line ends between them. Raises OSError."""
        frames: list[bytes] = []
        while content:
            if not self._is_in_body:
                content = self._after_header(content, frames)
                continue
            least = max(0, self._least - self._size)
            end = content.find(b"\0", least)
            part = content if end < 0 else content[:end]
            self._size += len(part)
            self._body += part[: max(0, self._most_bytes + 1 - len(self._body))]
            if end < 0:
                break
            frames.append(self._frame())
            content = content[end + 1 :]
        return b"".join(frames)

    def _after_header(self, content: bytes, frames: list[bytes]) -> bytes:
        """What follows the header; line ends before it go to `frames`: they are beats."""
        held = self._header + content
        begun = held.lstrip(b"\r\n")
        if len(begun) < len(held):
            frames.append(held[: len(held) - len(begun)])
        ends = _HEADER_ENDS.search(begun)
        if (ends.start() if ends else len(begun)) > _MOST_HEADER_BYTES:
            raise OSError(f"it sends headers of more than {_MOST_HEADER_BYTES >> 10} KiB")
        self._header = begun[: ends.end()] if ends else begun
        if ends is None:
            return b""
        length = _LENGTH.search(self._header)
        if length and len(length[1]) > _MOST_DIGITS:
            raise OSError("it sends a message of impossible length")
        self._is_in_body, self._least = True, int(length[1]) if length else 0
        return begun[ends.end() :]

    def _frame(self) -> bytes:
        header, body = self._header, bytes(self._body)
        if self._size > self._most_bytes:
            command, feed, rest = _LENGTH.sub(b"", header).partition(b"\n")
            header = command + feed + b"content-length:%d\n" % len(body) + rest
        self._header, self._is_in_body = b"", False
        self._body, self._size, self._least = bytearray(), 0, 0
        return header + body + b"\0"


class _Transport(Transport):  # type: ignore[misc]
    most_bytes = _MOST_ANSWER_BYTES
    heard_s = 0.0
    """When the last bytes came, by the monotonic clock."""

    def attempt_connection(self) -> None:
        self._frames = _Frames(self.most_bytes)
        super().attempt_connection()
        self.heard_s = time.monotonic()

    def receive(self) -> bytes | None:
        while True:
            content: bytes | None = super().receive()
            if content == b"":
                # With TLS the library would take the end for a pause, and look for more without one.
                self.running = False
            if not content:
                return content
            self.heard_s = time.monotonic()
            try:
                if whole := self._frames.whole(content):
                    return whole
            except OSError as error:
                self.running = False
                self.get_listener(LISTENER).fail(str(error))
                return b""

    def disconnect_socket(self) -> None:
        with contextlib.suppress(OSError, AttributeError, ValueError):
            # With TLS the library would wait without end for the other side's goodbye.
            self.socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError, AttributeError, ValueError, KeyError):
            # Its own thread may be at the same end.
            super().disconnect_socket()


def fault(at: tuple[str, int], timeout_s: int, tls: Mapping[str, str] | None) -> str:
    """Why there is no connection to `at`, which the library does not say; empty if now there is one."""
    try:
        with socket.create_connection(at, timeout_s) as plain:
            if tls is not None:
                context = ssl.create_default_context(cafile=tls["ca_certs"] or None)
                if tls["cert_file"]:
                    context.load_cert_chain(tls["cert_file"], tls["key_file"] or None)
                context.wrap_socket(plain, server_hostname=at[0]).close()
    except (OSError, ValueError) as error:
        return str(error)
    return ""


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
        if len(frame.headers.get("heart-beat", "")) > _MOST_BEATS:
            del frame.headers["heart-beat"]  # no clock counts so far
        self._confirmed(CONNECTED)

    def on_receipt(self, frame: Any) -> None:
        self._confirmed(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.fail(f"{frame.headers.get('message', '')} {(frame.body or b'').decode(errors='replace')}")

    def on_disconnected(self) -> None:
        if not self.is_ending:
            self.fail("it closed the connection, or is silent")

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

    def fail(self, error: str) -> None:
        with self._changed:
            self.error = self.error or error
            self._changed.notify()


class Messages(Receipts):
    """And the messages that came."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self.messages: queue.Queue[Message] = queue.Queue(AT_ONCE)

    def on_message(self, frame: Any) -> None:
        headers, body = frame.headers, frame.body or b""
        if not headers.get("ack"):
            self.fail("it sends messages that cannot be acknowledged")
            return
        published = headers.get("timestamp", "")
        message = Message(
            body if len(body) <= self._most_bytes else None,
            len(body),
            int(published) if published.isdecimal() and len(published) <= _MOST_DIGITS else 0,
            headers.get("redelivered") == "true",
            headers["ack"],
        )
        while not (self.is_ending or self.error):
            with contextlib.suppress(queue.Full):  # a broker that sends much at once has to wait
                self.messages.put(message, timeout=_WAIT_S)
                return
