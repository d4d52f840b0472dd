"""Receives XCache's g-stream, f-stream and session names by UDP, and writes a capture for `gstream`."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import TypeGuard

from features.common.errors import InputError, ServiceError
from prefetch.xcache import fstream
from prefetch.xcache.events import MAX_DATAGRAM_BYTES, Source, json_object

BINARY = (fstream.CODE, *fstream.SESSION_CODES)
"""Codes of the binary streams that captures keep."""
# Real ones have some 250.
_MAX_HEADER_BYTES = 4096
_WAKE_S = 0.2
_BUFFER_BYTES = 4 * 2**20


def listening(host: str, port: int) -> socket.socket:
    """A UDP socket that waits for datagrams, at most a moment at a time; port 0 takes any free one.

    Raises ServiceError if the port cannot be had.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        told = error.strerror if isinstance(error, OSError) else "no such port"
        raise ServiceError(f"cannot listen on UDP {host}:{port}: {told}") from error
    listener.settimeout(_WAKE_S)
    return listener


Told = Source | fstream.Packet | fstream.Login | fstream.Work
"""What a datagram says: the sender of a JSON one, or all of a binary one."""


def read_datagram(datagram: bytes) -> Told | None:
    """What `datagram` says; None for a binary one of another stream than `BINARY`.

    Of a JSON one only the header is read. Raises InputError for what no XRootD server sends.
    """
    code = fstream.stream_code(datagram)
    if code is None:
        line = datagram[: _MAX_HEADER_BYTES + 1].split(b"\n", 1)[0]
        header = json_object(line) if len(line) <= _MAX_HEADER_BYTES else None
        source = None if header is None else Source.of(header)
        if source is None:
            raise InputError("no XRootD server sends such a header")
        return source
    if code not in BINARY:
        return None
    return fstream.decode(datagram) if code == fstream.CODE else fstream.decode_session(datagram)


def is_kept(told: Told | None) -> TypeGuard[Told]:
    """Whether it is of a stream that captures keep."""
    return told.is_cache if isinstance(told, Source) else told is not None


def frame(received_s: int, port: int, datagram: bytes) -> bytes:
    """`datagram` as a capture keeps it: framed, and its ending NUL replaced by a newline.

    A binary one, of `BINARY`, becomes a JSON line, with the datagram in base64.
    """
    if (code := fstream.stream_code(datagram)) in BINARY:
        kept = {"code": code, "data": base64.b64encode(datagram).decode()}
        datagram = json.dumps(kept).encode()
    body = datagram.rstrip(b"\0\n") + b"\n"
    return b"@@%d %d %d\n%s" % (received_s, port, len(body), body)


def append(descriptor: int, framed: bytes) -> None:
    """Append one frame in one write, so that frames of several writers do not mix."""
    n_written = os.write(descriptor, framed)
    while n_written < len(framed):
        n_written += os.write(descriptor, framed[n_written:])


class Collector:
    """A thread that listens on 127.0.0.1 and appends every datagram to `path`; a context manager.

    `port` 0 takes any free one: see `port` after entering. Each frame is written before the next datagram
    is received, so a crash of this process loses none it has received. For one cache on this machine:
    `receiver.Receiver` serves several, rolls its captures and counts what is missing.
    """

    def __init__(self, path: Path, *, port: int = 0) -> None:
        self.path = path
        self.port = port
        self._stopping = threading.Event()
        self._error: OSError | None = None

    def __enter__(self) -> Collector:
        """Start listening. Raises ServiceError if the port or the file cannot be had."""
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise ServiceError(f"cannot write g-stream capture {self.path}: {error.strerror}") from error
        try:
            self._socket = listening("127.0.0.1", self.port)
        except ServiceError:
            os.close(self._file)
            raise
        self.port = self._socket.getsockname()[1]
        self._stopping.clear()
        self._thread = threading.Thread(target=self._listen, name="gstream-collector", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening. Raises ServiceError if the capture could not be written."""
        self._stopping.set()
        self._thread.join()
        self._close()
        if self._error is not None and error is None:
            raise ServiceError(f"g-stream capture {self.path} is not whole: {self._error.strerror}")

    def _listen(self) -> None:
        while True:
            try:
                datagram, sender = self._socket.recvfrom(MAX_DATAGRAM_BYTES)
            except TimeoutError:
                # Only a pause ends it: what had arrived by the end is kept.
                if self._stopping.is_set():
                    return
                continue
            if fstream.stream_code(datagram) not in (None, *BINARY):
                continue  # of a stream that nobody reads
            try:
                append(self._file, frame(int(time.time()), sender[1], datagram))
            except OSError as error:
                self._error = error
                return

    def _close(self) -> None:
        self._socket.close()
        os.close(self._file)
