"""Reads a capture of XCache's g-stream: what the cache itself reports about every closed file.

A capture repeats `@@<unix_s> <port> <length>` and a newline, then a datagram of `length` bytes. A datagram is
a JSON header line, then one JSON record per line, then NUL or a newline. Source: `xrootd.mongstream pfc …
send json fullhdr` of XRootD 5.5.3 to 6.2.1; `receiver.Receiver` writes captures. A binary datagram is kept
as one line of JSON: see `events.frame`. Numbers of datagrams show how many are missing.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from features.common.errors import InputError
from features.common.input_files import PACKED, InputFile, Unpacked, plain
from prefetch.xcache import fstream
from prefetch.xcache.events import (
    MAX_DATAGRAM_BYTES,
    FileClose,
    ReportSender,
    file_close,
    is_int,
    json_object,
)
from prefetch.xcache.rolling import PART

PSEQ_MODULUS = 1000
_FRAME = re.compile(rb"@@(\d{1,15}) (\d{1,5}) (\d{1,5})\n")
_FRAME_MAX_BYTES = 64
# A cache numbers its datagrams from 1; only a capture that was there at its start may count from 0.
_STARTED_S = 60
# Senders are named by datagrams, which anyone can make up.
MAX_SENDERS = 10_000


Event = ReportSender | FileClose | fstream.Packet | fstream.Login | fstream.Work
"""What a capture contains: the sender of a JSON datagram, followed by its closes; or a binary datagram."""


class CaptureReader:
    """Reads a capture that grows: every `poll` gives what came since the last one.

    The file stays open between polls, so that one that is renamed, archived or deleted is read to its end;
    one that takes its place is then read from its beginning. `numberings` carries the counting from one file
    of a capture to the next; `offset` is where to begin.
    """

    def __init__(
        self, path: Path | InputFile, numberings: Numberings | None = None, *, offset: int = 0
    ) -> None:
        self.n_malformed = 0
        self._path = path
        self._offset = offset
        self._numberings = numberings or Numberings()
        self._file = -1
        self._closing: Callable[[], object] | None = None

    @property
    def n_lost(self) -> int:
        return self._numberings.n_lost

    def poll(self) -> Iterator[FileClose]:
        return (event for event in self.events() if isinstance(event, FileClose))

    def events(self) -> Iterator[Event]:
        """Events since the last poll; a frame still being written is left for the next. Raises InputError."""
        try:
            is_replaced = self._closing is not None and self._is_replaced()
            yield from self._rest()
            if is_replaced:
                self.close()
                yield from self._rest()
        except OSError as error:
            raise InputError(
                f"cannot read g-stream capture {os.fspath(self._path)}: {error.strerror or error}"
            ) from error

    def close(self) -> None:
        """Close the file; the next poll opens what is then at the path, from its beginning."""
        if self._closing is not None:
            self._closing()
            self._closing, self._offset = None, 0

    def _rest(self) -> Iterator[Event]:
        if self._closing is None:
            with plain(self._path) as name:
                self._file = _opened(name, self._path)
            self._closing = weakref.finalize(self, os.close, self._file)
        end = os.fstat(self._file).st_size
        if end < self._offset:
            self._offset = 0  # truncated, and written again
        with open(self._file, "rb", closefd=False) as stream:
            stream.seek(self._offset)
            for received_t, body in self._frames(stream, end):
                yield from self._datagram(received_t, body)

    def _is_replaced(self) -> bool:
        """Whether another file is at the path; nothing there is no other file."""
        try:
            return not os.path.samestat(os.fstat(self._file), Path(self._path).stat())
        except FileNotFoundError:
            return False

    def _frames(self, stream: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
        # What is written meanwhile is for the next poll: a flood would let this one never end.
        while self._offset < end:
            line = stream.readline(MAX_DATAGRAM_BYTES)
            if not line.endswith(b"\n") and len(line) < MAX_DATAGRAM_BYTES:
                return
            frame = _FRAME.fullmatch(line) if len(line) <= _FRAME_MAX_BYTES else None
            if frame is None:
                self._offset = stream.tell()
                yield from self._unframed(line)
                continue
            length = int(frame[3])
            body = stream.read(length)
            if len(body) < length:
                return
            self._offset = stream.tell()
            yield int(frame[1]), body

    def _unframed(self, line: bytes) -> Iterator[tuple[int, bytes]]:
        # A capture cut at its head begins within a datagram; only an ident packet contains its own time.
        if not line.strip(b"\0\n"):
            return
        header = json_object(line)
        if header is not None and header.get("code") == "=" and is_int(header.get("stod")):
            yield header["stod"], line
        else:
            self.n_malformed += 1

    def _datagram(self, received_t: int, body: bytes) -> Iterator[Event]:
        lines = body.rstrip(b"\0\n").split(b"\n")
        header = json_object(lines[0])
        if header is not None and "data" in header:
            yield from self._binary(header)
            return
        source = None if header is None else ReportSender.of(header)
        if source is None:
            self.n_malformed += 1
            return
        yield source
        if not source.is_cache:
            return
        note(self._numberings, source, received_t)
        for index, line in enumerate(lines[1:]):
            record = json_object(line)
            event = None if record is None else file_close(record, source, index, received_t)
            if event is not None:
                yield event
            elif record is None or record.get("event") == "file_close":
                self.n_malformed += 1

    def _binary(self, record: dict[str, Any]) -> Iterator[Event]:
        is_packet = record.get("code") == fstream.CODE
        try:
            datagram = base64.b64decode(str(record.get("data")), validate=True)
            event: Event = fstream.decode(datagram) if is_packet else fstream.decode_session(datagram)
        except (InputError, ValueError):  # also for a text that is no ASCII
            self.n_malformed += 1
            return
        note(self._numberings, event, 0)
        yield event


def _opened(name: str, path: Path | InputFile) -> int:
    """A descriptor of the content of the plain file at `name`, unpacked by the suffix of `path`."""
    if Path(path).suffix not in PACKED:
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    with Unpacked(name, path) as packed, tempfile.TemporaryFile() as content:
        shutil.copyfileobj(packed, content, 2**20)
        content.flush()
        return os.dup(content.fileno())


def note(numberings: Numberings, datagram: Event, received_t: int) -> None:
    if isinstance(datagram, fstream.Packet):
        numberings.note((datagram.server_id, datagram.stod), datagram.pseq, fstream.PSEQ_MODULUS)
    elif isinstance(datagram, ReportSender) and datagram.pseq < PSEQ_MODULUS:
        before_first = 0 if received_t - datagram.stod <= _STARTED_S else None
        numberings.note(datagram.key, datagram.pseq, PSEQ_MODULUS, before_first=before_first)


class Numberings:
    """The gaps in each sender's numbers, which wrap from its modulus - 1 to 0.

    Gaps of the modulus or more are counted short, so `n_lost` is at least what is missing. Of more than
    `MAX_SENDERS` senders the oldest are forgotten, and what they lost is kept.
    """

    def __init__(self) -> None:
        self.n_lost = 0
        self._last: dict[Hashable, int] = {}

    def note(self, sender: Hashable, number: int, modulus: int, *, before_first: int | None = None) -> None:
        """Take the next number of `sender`, whose first one follows `before_first` where that is known.

        One that comes late is taken off `n_lost` again.
        """
        last = self._last.get(sender, before_first)
        step = 1 if last is None else (number - last) % modulus
        if step > modulus // 2:
            self.n_lost = max(0, self.n_lost - 1)
            return
        self.n_lost += max(0, step - 1)
        self._last[sender] = number
        if len(self._last) > MAX_SENDERS:
            del self._last[next(iter(self._last))]


class FolderReader:
    """Reads a collector's folder that grows: every `poll` gives what came since the last one.

    Files are read in the order of their names, each once, also while it is written. A file that was begun is
    read to its end, also if it is moved or deleted meanwhile. `newest_bytes`: begin with the newest captures
    of this size together; None: with the first.
    """

    def __init__(self, folder: Path, *, newest_bytes: int | None = None) -> None:
        self._folder = folder
        self._numberings = Numberings()
        self._done = "" if newest_bytes is None else _before_newest(folder, newest_bytes)
        self._begun: tuple[Path, CaptureReader] | None = None

    @property
    def n_lost(self) -> int:
        return self._numberings.n_lost

    def poll(self) -> Iterator[FileClose]:
        return (event for event in self.events() if isinstance(event, FileClose))

    def events(self) -> Iterator[Event]:
        """Events since the last poll, one after the other. Raises InputError if a capture cannot be read."""
        yield from self._read_on()
        for path in _captures(self._folder):
            if self._begun is None and _name(path) > self._done:
                self._begun = path, CaptureReader(InputFile(self._folder, path.name), self._numberings)
                yield from self._read_on()
            if _name(path) > self._done:
                return  # still being written, or renamed since it was listed: later files wait

    def _read_on(self) -> Iterator[Event]:
        if self._begun is None:
            return
        path, reader = self._begun
        # Looked at before reading: nothing is written to a file once it has its last name.
        is_finished = path.suffix != PART or not path.exists()
        try:
            yield from reader.events()
        except InputError:
            self._begun = None
            if path.exists():
                raise
            return  # finished or archived since it was listed, so it has another name at the next poll
        if is_finished:
            reader.close()
            self._begun, self._done = None, _name(path)


def capture_reader(path: Path) -> CaptureReader | FolderReader:
    return FolderReader(path) if path.is_dir() else CaptureReader(path)


def _captures(folder: Path) -> list[Path]:
    return sorted(folder.glob("gstream-*.capture*"), key=_name)


def _before_newest(folder: Path, n_bytes: int) -> str:
    """The name of the newest capture that is older than the newest `n_bytes`; empty if there is none."""
    for path in reversed(_captures(folder)):
        with contextlib.suppress(FileNotFoundError):
            n_bytes -= path.stat().st_size
        if n_bytes < 0:
            return _name(path)
    return ""


def _name(path: Path) -> str:
    return path.name.removesuffix(PART)
