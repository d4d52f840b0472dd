"""A STOMP broker: messages to Rucio's cache consumer, and those that others publish."""

from __future__ import annotations

import dataclasses
import json
import queue
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from stomp.exception import ConnectFailedException, StompException

from features.common.arrays import pages
from features.common.errors import ConfigError, ServiceError, bounded, without_secrets
from prefetch.lfn import Did
from prefetch.rucio.connection import (
    CONNECTED,
    LISTENER,
    SILENT_S,
    Message,
    Messages,
    Receipts,
    StompConnection,
    fault,
    leave,
    subscribing,
)

Operation = Literal["add_replicas", "delete_replicas"]

# A message becomes one SQL statement with a condition a file.
FILES_PER_MESSAGE = 200
_TLS = "stomp+ssl"
_MOST_CAUSE_CHARS = 200


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


class Broker:
    """One broker; connected while something is published or followed."""

    def __init__(self, access: BrokerAccess) -> None:
        """Raises ConfigError for what is no broker's URL."""
        try:
            url = urlsplit(access.url)
            host, port = url.hostname or "", url.port or 0
        except ValueError:
            host, port = "", 0
        if not (host and port and url.scheme in ("stomp", _TLS)) or "@" in url.netloc:
            raise ConfigError(
                f"{access.section}.broker", "must be as stomp://broker.example.org:61613, without a user"
            )
        self._access, self._at = access, (host, port)
        files = {"ca_certs": access.ca_cert, "cert_file": access.cert, "key_file": access.key}
        self._tls = files if url.scheme == _TLS else None
        for file in (self._tls or {}).values():
            if file and not Path(file).is_file():
                what = "is a folder, and must be a file" if Path(file).is_dir() else "is not there"
                raise ConfigError(f"{access.section}.broker", f"its certificate {file} {what}")

    def publish(self, operation: Operation, rse: str, dids: Sequence[Did]) -> None:
        """Report to the consumer which files a cache got or lost; returns when the broker has all messages.

        Reporting twice equals once. Raises ServiceError if the broker is unavailable, refuses the login, or
        does not confirm.
        """
        listener = Receipts()
        with self._connected(listener, f"messages for {self._access.topic}") as connection:
            receipts = set()
            for number, page in enumerate(pages(dids, FILES_PER_MESSAGE)):
                receipts.add(str(number))
                # Flat: the consumer passes over what rucio-cache-client wraps messages in.
                body = {"operation": operation, "rse": rse, "files": [did._asdict() for did in page]}
                # Without a length the broker takes it as text, as Rucio's other tools do.
                connection.send(self._access.topic, json.dumps(body), "application/json", receipt=str(number))
            listener.wait(receipts, self._access.timeout_s)

    @contextmanager
    def subscribed(
        self, destinations: Sequence[str], *, client: str, most_bytes: int
    ) -> Iterator[Subscription]:
        """Receive messages of `destinations` in a `with`. The broker keeps those of topics for `client`.

        Bodies over `most_bytes` are dropped. Raises BrokerUnavailable, also in the block.
        """
        listener = Messages(most_bytes)
        is_kept = any(name.startswith("/topic/") for name in destinations)
        with self._connected(
            listener, "a subscription", {"client-id": client} if is_kept else {}, most_bytes
        ) as connection:
            for number, name in enumerate(destinations):
                connection.subscribe(
                    name, str(number), "client-individual", subscribing(name, client), receipt=str(number)
                )
            listener.wait({str(number) for number in range(len(destinations))}, self._access.timeout_s)
            yield Subscription(connection, listener)

    @contextmanager
    def _connected(
        self,
        listener: Receipts,
        what: str,
        headers: Mapping[str, str] | None = None,
        most_bytes: int | None = None,
    ) -> Iterator[Any]:
        connection = StompConnection(self._at, self._access.timeout_s, most_bytes=most_bytes)
        if self._tls is not None:
            connection.set_ssl([self._at], **{name: file or None for name, file in self._tls.items()})
        connection.set_listener(LISTENER, listener)
        try:
            connection.connect(self._access.username, self._access.password, headers=dict(headers or {}))
            listener.wait({CONNECTED}, self._access.timeout_s)
            yield connection
        except (StompException, OSError) as error:
            why = listener.error
            if not why and isinstance(error, ConnectFailedException):
                why = fault(self._at, self._access.timeout_s, self._tls)
            cause = without_secrets(why or f"{type(error).__name__} {error}", self._access.password)
            raise BrokerUnavailable(
                f"broker {self._access.url} does not take {what}: "
                f"{bounded(' '.join(cause.split()), _MOST_CAUSE_CHARS)}; "
                f"is it up, and are [{self._access.section}] broker and its login right?"
            ) from None
        finally:
            leave(connection, listener)


class Subscription:
    """Messages as they come, until they are acknowledged: what is not, the broker sends again."""

    def __init__(self, connection: StompConnection, listener: Messages) -> None:
        self._connection, self._listener = connection, listener
        self._is_asked = False

    def next(self, timeout_s: float) -> Message | None:
        """The next message; None if none comes for so long. Raises OSError once the connection is lost."""
        if self._listener.error:
            raise OSError(self._listener.error)
        self._listen()
        try:
            return self._listener.messages.get(block=timeout_s > 0, timeout=timeout_s)
        except queue.Empty:
            return None

    def _listen(self) -> None:
        silent_s = self._connection.silent_s()
        if silent_s > 2 * SILENT_S:
            raise OSError("it is silent")
        if silent_s > SILENT_S and not self._is_asked:
            self._connection.ask()
        self._is_asked = silent_s > SILENT_S

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """Let the broker forget `messages`. Raises OSError and StompException."""
        for message in messages:
            self._connection.ack(message.ticket)
