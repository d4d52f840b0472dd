"""A STOMP broker: messages to Rucio's cache consumer, and those that others publish."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import queue
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import stomp
from stomp.connect import BaseConnection
from stomp.exception import StompException
from stomp.protocol import Protocol12
from stomp.transport import Transport

from features.common.errors import ConfigError, ServiceError, bounded
from features.common.redaction import without_secrets
from prefetch.rucio.names import Did

Operation = Literal["add_replicas", "delete_replicas"]

# A message becomes one SQL statement with a condition a file.
FILES_PER_MESSAGE = 200
_TLS = "stomp+ssl"
_TOLD_CHARS = 200
_CONNECTED, _BYE = "connected", "bye"
_BEAT_MS = 10_000
_GOODBYE_S = 2.0
_MOST_DIGITS = 15
AT_ONCE = 100
"""Messages that a broker sends before the first of them is acknowledged."""
# The library's log holds the login at DEBUG, and tracebacks of what is raised here anyway.
logging.getLogger("stomp.py").setLevel(logging.CRITICAL + 1)


@dataclasses.dataclass(frozen=True)
class BrokerAccess:
    """`url`: stomp://host:port, or stomp+ssl:// with `ca_cert`; `topic`: what the consumer listens to.

    `cert`, `key`: PEM files to log in with. `section`: of the settings that hold all this.
    """

    url: str
    topic: str = ""
    username: str = ""
    password: str = dataclasses.field(default="", repr=False)
    ca_cert: str = ""
    timeout_s: int = 60
    cert: str = ""
    key: str = ""
    section: str = "rucio"


class BrokerUnavailable(ServiceError):
    """A broker is unavailable, refuses a login or a subscription, or falls silent."""


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


class Broker:
    """One broker; connected while something is published or followed."""

    def __init__(self, access: BrokerAccess) -> None:
        """Raises ConfigError for what is no broker's URL."""
        url = urlsplit(access.url)
        if url.scheme not in ("stomp", _TLS) or not url.hostname or not url.port or "@" in url.netloc:
            raise ConfigError(
                f"{access.section}.broker", "must be as stomp://broker.example.org:61613, without a user"
            )
        for file in (access.ca_cert, access.cert, access.key):
            if file and url.scheme == _TLS and not Path(file).is_file():
                raise ConfigError(f"{access.section}.broker", f"its certificate {file} is not there")
        self._access, self._at = access, (url.hostname, url.port)
        self._is_tls = url.scheme == _TLS

    def publish(self, operation: Operation, rse: str, dids: Sequence[Did]) -> None:
        """Report to the consumer which files a cache got or lost; returns when the broker has all messages.

        Reporting twice equals once. Raises ServiceError if the broker is unavailable, refuses the login, or
        does not confirm.
        """
        listener = _Receipts()
        with self._connected(listener, f"messages for {self._access.topic}") as connection:
            receipts = set()
            for number, body in enumerate(_bodies(operation, rse, dids)):
                receipts.add(str(number))
                # Without a length the broker takes it as text, as Rucio's other tools do.
                connection.send(self._access.topic, body, "application/json", receipt=str(number))
            listener.wait(receipts, self._access.timeout_s)

    @contextmanager
    def subscribed(
        self, destinations: Sequence[str], *, client: str, most_bytes: int
    ) -> Iterator[Subscription]:
        """Follow `destinations` in the block. Of a topic the broker keeps for `client` what comes meanwhile.

        Bodies over `most_bytes` are dropped. Raises BrokerUnavailable, also in the block.
        """
        listener = _Messages(most_bytes)
        is_kept = any(name.startswith("/topic/") for name in destinations)
        with self._connected(
            listener, "a subscription", {"client-id": client} if is_kept else {}, beats=True
        ) as connection:
            for number, name in enumerate(destinations):
                connection.subscribe(
                    name, str(number), "client-individual", _subscribing(name, client), receipt=str(number)
                )
            listener.wait({str(number) for number in range(len(destinations))}, self._access.timeout_s)
            yield Subscription(connection, listener)

    @contextmanager
    def _connected(
        self, listener: _Receipts, what: str, headers: Mapping[str, str] | None = None, *, beats: bool = False
    ) -> Iterator[Any]:
        connection = self._connection(listener, beats=beats)
        try:
            connection.connect(self._access.username, self._access.password, headers=dict(headers or {}))
            listener.wait({_CONNECTED}, self._access.timeout_s)
            yield connection
        except (StompException, OSError) as error:
            told = without_secrets(listener.error or f"{type(error).__name__} {error}", self._access.password)
            raise BrokerUnavailable(
                f"broker {self._access.url} does not take {what}: "
                f"{bounded(' '.join(told.split()), _TOLD_CHARS)}; "
                f"is it up, and are [{self._access.section}] broker and its login right?"
            ) from None
        finally:
            _leave(connection, listener)

    def _connection(self, listener: _Receipts, *, beats: bool) -> Any:
        connection = _Connection(
            _Transport(
                [self._at], reconnect_attempts_max=1, timeout=self._access.timeout_s, auto_decode=False
            ),
            heartbeats=(_BEAT_MS, _BEAT_MS) if beats else (0, 0),
        )
        if self._is_tls:
            files = {
                "ca_certs": self._access.ca_cert,
                "cert_file": self._access.cert,
                "key_file": self._access.key,
            }
            connection.set_ssl([self._at], **{name: file or None for name, file in files.items()})
        connection.set_listener("receipts", listener)
        return connection


class Subscription:
    """Messages as they come, until they are acknowledged: what is not, the broker sends again."""

    def __init__(self, connection: Any, listener: _Messages) -> None:
        self._connection, self._listener = connection, listener

    def next(self, timeout_s: float) -> Message | None:
        """The next message; None if none comes for so long. Raises OSError once the connection is lost."""
        if self._listener.error:
            raise OSError(self._listener.error)
        try:
            return (
                self._listener.messages.get(timeout=timeout_s)
                if timeout_s
                else self._listener.messages.get_nowait()
            )
        except queue.Empty:
            return None

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """Let the broker forget `messages`. Raises OSError and StompException."""
        for message in messages:
            self._connection.ack(message.ticket)


class _Connection(BaseConnection, Protocol12):  # type: ignore[misc]
    """As stomp.Connection12, of a transport of our own."""

    def __init__(self, transport: Transport, heartbeats: tuple[int, int]) -> None:
        BaseConnection.__init__(self, transport)
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


def _leave(connection: Any, listener: _Receipts) -> None:
    with contextlib.suppress(StompException, OSError, AttributeError):
        if not listener.error:
            connection.disconnect(receipt=_BYE)
            listener.wait({_BYE}, _GOODBYE_S)
    listener.is_ending = True
    connection.transport.disconnect_socket()


def _subscribing(destination: str, client: str) -> dict[str, str]:
    """Headers for ActiveMQ, Artemis and RabbitMQ, each of which passes over those of the others."""
    headers = {"activemq.prefetchSize": str(AT_ONCE), "prefetch-count": str(AT_ONCE)}
    if destination.startswith("/topic/"):
        name = f"{client}{destination}"
        headers |= {"activemq.subscriptionName": name, "durable-subscription-name": name, "durable": "true"}
        headers["auto-delete"] = "false"
    return headers


class _Receipts(stomp.ConnectionListener):  # type: ignore[misc]
    """What the broker confirmed, or why it did not. The library itself would wait for it without end."""

    def __init__(self) -> None:
        self.error = ""
        self.is_ending = False
        self._got: set[str] = set()
        self._changed = threading.Condition()

    def on_connected(self, frame: Any) -> None:
        self._confirmed(_CONNECTED)

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


class _Messages(_Receipts):
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


def _bodies(operation: Operation, rse: str, dids: Sequence[Did]) -> Iterator[str]:
    """Flat messages: what rucio-cache-client wraps them in makes the consumer pass them over."""
    for first in range(0, len(dids), FILES_PER_MESSAGE):
        yield json.dumps(
            {"operation": operation, "rse": rse, "files": _files(dids[first:][:FILES_PER_MESSAGE])}
        )


def _files(dids: Iterable[Did]) -> list[dict[str, str]]:
    return [did._asdict() for did in dids]
