"""Sends messages to Rucio's cache consumer, through the STOMP broker of the site's Rucio."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import stomp
from stomp.exception import StompException

from features.common.errors import ConfigError, ServiceError, bounded
from features.common.redaction import without_secrets
from prefetch.rucio.names import Did

Operation = Literal["add_replicas", "delete_replicas"]

# A message becomes one SQL statement with a condition a file.
FILES_PER_MESSAGE = 200
_TLS = "stomp+ssl"
_TOLD_CHARS = 200
_CONNECTED = "connected"
# The library's log holds the login at DEBUG, and tracebacks of what is raised here anyway.
logging.getLogger("stomp.py").setLevel(logging.CRITICAL + 1)


@dataclasses.dataclass(frozen=True)
class BrokerAccess:
    """`url`: stomp://host:port, or stomp+ssl:// with `ca_cert`; `topic`: what the consumer listens to."""

    url: str
    topic: str
    username: str = ""
    password: str = dataclasses.field(default="", repr=False)
    ca_cert: str = ""
    timeout_s: int = 60


class Broker:
    """One broker; connected while something is published."""

    def __init__(self, access: BrokerAccess) -> None:
        """Raises ConfigError for what is no broker's URL."""
        url = urlsplit(access.url)
        if url.scheme not in ("stomp", _TLS) or not url.hostname or not url.port or "@" in url.netloc:
            raise ConfigError("rucio.broker", "must be as stomp://broker.example.org:61613, without a user")
        self._access, self._at = access, (url.hostname, url.port)
        self._is_tls = url.scheme == _TLS

    def publish(self, operation: Operation, rse: str, dids: Sequence[Did]) -> None:
        """Report to the consumer which files a cache got or lost; returns when the broker has all messages.

        Reporting twice equals once. Raises ServiceError if the broker is unavailable, refuses the login, or
        does not confirm.
        """
        listener = _Receipts()
        connection = self._connection(listener)
        try:
            connection.connect(self._access.username, self._access.password)
            listener.wait({_CONNECTED}, self._access.timeout_s)
            receipts = set()
            for number, body in enumerate(_bodies(operation, rse, dids)):
                receipts.add(str(number))
                # Without a length the broker takes it as text, as Rucio's other tools do.
                connection.send(self._access.topic, body, "application/json", receipt=str(number))
            listener.wait(receipts, self._access.timeout_s)
        except (StompException, OSError) as error:
            told = without_secrets(listener.error or f"{type(error).__name__} {error}", self._access.password)
            raise ServiceError(
                f"broker {self._access.url} does not take messages for {self._access.topic}: "
                f"{bounded(' '.join(told.split()), _TOLD_CHARS)}; "
                "is it up, and are [rucio] broker and its login right?"
            ) from None
        finally:
            listener.is_ending = True
            with contextlib.suppress(StompException, OSError):
                connection.disconnect()
            connection.transport.disconnect_socket()

    def _connection(self, listener: _Receipts) -> Any:
        connection = stomp.Connection12(
            [self._at],
            reconnect_attempts_max=1,
            timeout=self._access.timeout_s,
            auto_content_length=False,
        )
        if self._is_tls:
            connection.set_ssl([self._at], ca_certs=self._access.ca_cert or None)
        connection.set_listener("receipts", listener)
        return connection


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
        self._fail(f"{frame.headers.get('message', '')} {frame.body or ''}")

    def on_disconnected(self) -> None:
        if not self.is_ending:
            self._fail("it closed the connection")

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


def _bodies(operation: Operation, rse: str, dids: Sequence[Did]) -> Iterator[str]:
    """Flat messages: what rucio-cache-client wraps them in makes the consumer pass them over."""
    for first in range(0, len(dids), FILES_PER_MESSAGE):
        yield json.dumps(
            {"operation": operation, "rse": rse, "files": _files(dids[first:][:FILES_PER_MESSAGE])}
        )


def _files(dids: Iterable[Did]) -> list[dict[str, str]]:
    return [did._asdict() for did in dids]
