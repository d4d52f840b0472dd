"""Calls of the XRootD client library: bounded in time, with our errors, and a connection per thread.

An error that the server sends is the origin's (SourceUnavailable), or final (PushRejected) if trying again is
no use. Without an answer it is not known whose it is: TargetUnavailable.

The library is imported on first use, so that this room imports without it. Its threads outlive the main
thread: a program that used it ends through `sys.exit`, which lets the library's own exit handler stop them,
and must not fork afterwards.

Seen on XRootD 5.5.3: a server handles the requests of one connection one by one, and an open waits for the
origin. If all files share a connection, which is the library's default, one file whose origin is unavailable
stops all others, also those that are in the cache.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple

from features.common.errors import ConfigError, PushRejected, SourceUnavailable, TargetUnavailable, bounded
from features.common.redaction import without_tokens
from prefetch.target import ServerIdentity
from prefetch.xcache import server

_MOST = 256
# Of the process: connections that one target left behind must not come to the next.
_numbers = itertools.count()


class ThreadConnections:
    """URLs of the cache at `root://host:port`, one for each thread.

    They differ in the user's name, which no server looks at: the client library keeps a connection for each
    user and host. After a token was renewed, they have other names, as it is sent when a connection opens.
    """

    def __init__(self, url: str) -> None:
        self._scheme, _, self._host = url.partition("://")
        self._own = threading.local()

    @property
    def spare(self) -> str:
        """The cache's URL on a connection for questions, where no file is read. Raises TargetUnavailable."""
        return self._of(f"ask{server.login(self._scheme)[:4]}")

    def url(self, name: str = "") -> str:
        """The cache's URL on the connection of this thread, for file or command `name`.

        Raises TargetUnavailable if a token is in use that is expired or not for it.
        """
        login = server.login(self._scheme, name)
        if getattr(self._own, "login", None) != login:
            self.leave()
            self._own.login = login
        url: str = self._own.url
        return url

    def leave(self) -> None:
        """Use another connection from now on: a request may hold this one for long."""
        self._own.url = self._of(f"cc{next(_numbers) % _MOST}")

    def _of(self, user: str) -> str:
        return f"{self._scheme}://{user}@{self._host}"


# Else a refused connection is tried again for minutes, and timeouts are looked at every 15 s only.
_CLIENT_SETTINGS = {
    "ConnectionWindow": 5,
    "ConnectionRetry": 1,
    "StreamErrorWindow": 0,
    "TimeoutResolution": 1,
    "RequestTimeout": 120,
    # The library's own handling of a fork can deadlock; nobody here goes on using it after one.
    "RunForkHandler": 0,
}
_STAT_TIMEOUT_S, _ASK_TIMEOUT_S = 10, 3
_SERVER_ANSWERED = 400
_READ_BYTES = 8 * 1024 * 1024
_COMMAND_ACCEPTED = 3005
_NOT_FOUND = 3011
# File-system error (5.5.3) and no server (6.2.1): what a cache answers of a file that it does not hold while
# its origin is down. Of what it holds it answers itself.
_ORIGIN_REFUSES = (3005, 3014)
# XProtocol.hh: what a server will say again however often it is asked.
_FINAL = {
    3000: "invalid argument",
    3001: "missing argument",
    3002: "argument too long",
    3006: "invalid request",
    3010: "not authorised",
    _NOT_FOUND: "no such file",
    3013: "not supported",
    3016: "is a directory",
}
_AUTH_FAILED = 3030
_CLIENT_AUTH_FAILED = 204
_OVERLOADED = 3024
# The request, or the time for all requests of a file, ran out.
_EXPIRED = 206
_FOLDER, _READABLE_AND_WRITABLE = 2, 48
_WHOLE = 512
_IMPORTING = threading.Lock()
_STATISTICS = re.compile(
    rb'<statistics tod="([0-9]{1,12})" ver="([\x21-\x7e]{0,64}?)" src="([\x21-\x7e]{1,255}?):([0-9]{1,5})" '
    rb'tos="([0-9]{1,12})" pgm="[^"]*" ins="([\x21-\x7e]{0,255}?)" pid="([0-9]{1,10})"'
)


class TimeOut(TargetUnavailable):
    """No answer in time: of the cache, or of the origin that it waits for."""


class RemoteFile:
    """A file open for reading until the block ends. `deadline`: of `time.monotonic`, for all calls together.

    Every call raises PushRejected or TargetUnavailable.
    """

    def __init__(self, url: str, deadline: float) -> None:
        self._url = url
        self._deadline = deadline
        self._file = _library().File()

    def __enter__(self) -> RemoteFile:
        """Open it."""
        self._call(self._file.open, self._url, _library().flags.OpenFlags.READ)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it; a failure to close is reported only if nothing else failed."""
        status, _ = self._file.close(timeout=max(1, math.ceil(self._deadline - time.monotonic())))
        if error is None:
            _check(self._url, status)

    def size_bytes(self) -> int:
        """The file's size."""
        return int(self._call(self._file.stat, False).size)

    def read_all(self) -> int:
        """Read all of it, as a job does, and forget it; its size in bytes."""
        n_read = 0
        while data := self.read_part(n_read, _READ_BYTES):
            n_read += len(data)
        return n_read

    def read_part(self, offset: int, n_bytes: int) -> bytes:
        """`n_bytes` from `offset` on; fewer where the file ends."""
        return bytes(self._call(self._file.read, offset, n_bytes))

    def read_parts(self, parts: Iterable[tuple[int, int]]) -> list[bytes]:
        """The parts (offset, bytes), read by one request."""
        answer = self._call(self._file.vector_read, list(parts))
        return [bytes(chunk.buffer) for chunk in answer.chunks]

    def read_one_byte_at(self, offsets: Iterable[int]) -> None:
        """Read one byte at each of `offsets` in one request, so that the cache fetches those blocks."""
        self.read_parts((offset, 1) for offset in offsets)

    def _call(self, method: Callable[..., tuple[Any, Any]], *arguments: object) -> Any:
        """The library's answer in the time that is left."""
        status, answer = method(*arguments, timeout=_left(self._url, self._deadline))
        _check(self._url, status)
        return answer


def accepted(command_url: str, deadline: float) -> None:
    """Give the cache a command by opening `command_url`. The cache answers with error 3005 if it accepts."""
    file = _library().File()
    status, _ = file.open(command_url, 0, timeout=_left(command_url, deadline))
    if status.ok:
        file.close()
        raise PushRejected(f"{command_url} was opened as a file: the cache takes no commands there")
    if status.code == _SERVER_ANSWERED and status.errno == _COMMAND_ACCEPTED:
        return
    if status.code == _SERVER_ANSWERED and status.errno in _FINAL:
        remedy = "set pfc.allow_xrdpfc_command and all.export /xrdpfc_command, and authorise this client"
        raise PushRejected(f"{command_url}: {_FINAL[status.errno]}; on the cache, {remedy}")
    try:
        _check(command_url, status)
    except SourceUnavailable as error:
        # A command asks no origin.
        raise TargetUnavailable(str(error)) from None


class Stat(NamedTuple):
    """What `stat` reports of a file: whether a part of it is in the cache, or (5.8 and later) all of it."""

    size_bytes: int
    is_held: bool
    is_whole: bool


def stat(url: str, name: str) -> Stat | None:
    """What the server reports of `name`; None if neither it nor its origin has it, or the origin is down.

    A cache answers with mode 0600 for files that it holds (5.5.3, 6.2.1), and from 5.8 with a flag for whole
    ones.
    """
    status, info = _library().FileSystem(url).stat(name, timeout=_STAT_TIMEOUT_S)
    if status.code == _SERVER_ANSWERED and status.errno in (_NOT_FOUND, *_ORIGIN_REFUSES):
        return None
    _check(f"{url}/{name}", status)
    flags = int(info.flags)
    # Its own folders are readable and writable too.
    is_held = flags & (_READABLE_AND_WRITABLE | _FOLDER) == _READABLE_AND_WRITABLE
    return Stat(int(info.size), is_held, bool(flags & _WHOLE))


class Location(NamedTuple):
    """A server that a redirector names: its address as it is written, and whether it serves now."""

    address: str
    is_online: bool


def locations(url: str, name: str) -> list[Location]:
    """Where the redirector at `url` has file `name`, or with `*` all its servers; it asks them again.

    Empty if none has it. Raises PushRejected, TargetUnavailable.
    """
    refresh = _library().flags.OpenFlags.REFRESH
    status, answer = _library().FileSystem(url).locate(name, refresh, timeout=_STAT_TIMEOUT_S)
    if status.code == _SERVER_ANSWERED and status.errno == _NOT_FOUND:
        return []
    try:
        _check(f"{url}/{name}", status)
    except SourceUnavailable as error:
        raise TargetUnavailable(str(error)) from None  # a redirector asks no origin
    online = (_library().flags.LocationType.SERVER_ONLINE, _library().flags.LocationType.MANAGER_ONLINE)
    return [Location(str(location.address), location.type in online) for location in answer]


def version_of(url: str) -> str | None:
    """The server's version, as it answers; None if it does not answer in time."""
    codes = _library().flags.QueryCode
    status, answer = _library().FileSystem(url).query(codes.CONFIG, "version", timeout=_ASK_TIMEOUT_S)
    return answer.decode(errors="replace") if status.ok and answer else None


def statistics_of(url: str) -> tuple[int, ServerIdentity]:
    """The server's own clock, s since 1970, and its identity.

    Its summary statistics begin with both, on every version. Raises TargetUnavailable without an answer in
    time, PushRejected if the answer does not contain them.
    """
    codes = _library().flags.QueryCode
    status, answer = _library().FileSystem(url).query(codes.STATS, "i", timeout=_ASK_TIMEOUT_S)
    if not status.ok and status.code != _SERVER_ANSWERED:
        _check(url, status)
    match = _STATISTICS.match(answer or b"") if status.ok else None
    if match is None:
        raise PushRejected(f"{url}: the server reports neither its clock nor its start (query stats)")
    clock, version, host, port, started, instance, pid = (part.decode() for part in match.groups())
    return int(clock), ServerIdentity(host, port, instance, int(started), int(pid), version)


def _library() -> Any:
    with _IMPORTING:  # by two threads at once, the package's modules wait for each other
        return _imported()


@functools.cache
def _imported() -> Any:
    try:
        client = importlib.import_module("XRootD.client")
    except ImportError as error:
        raise ConfigError(
            "XRootD client", "not installed; `pip install xrootd`, or use a directory cache"
        ) from error
    for key, value in _CLIENT_SETTINGS.items():
        client.EnvPutInt(key, value)
    return client


def _left(url: str, deadline: float) -> int:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeOut(f"{url}: not done in time")
    return max(1, math.ceil(left_s))


def _check(url: str, status: Any) -> None:
    if status.ok:
        return
    # A server may send back the token that it was sent.
    reason = bounded(without_tokens(" ".join(str(status.message).split())), 200)
    if status.code == _CLIENT_AUTH_FAILED or (status.code, status.errno) == (_SERVER_ANSWERED, _AUTH_FAILED):
        # The door's fault, not the file's: with another keytab the same file may be had.
        raise TargetUnavailable(f"{url}: the cache does not know us: authentication failed ({reason})")
    if status.code == _SERVER_ANSWERED and status.errno in _FINAL:
        raise PushRejected(f"{url}: {_FINAL[status.errno]} ({reason})")
    if status.code == _SERVER_ANSWERED and status.errno != _OVERLOADED:
        raise SourceUnavailable(f"{url}: {reason}")
    if "TLS error" in reason:
        reason = f"{reason}; its certificate must be valid, of its host, and of a CA in X509_CERT_DIR"
    raise (TimeOut if status.code == _EXPIRED else TargetUnavailable)(f"{url}: {reason}")
