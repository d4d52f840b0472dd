"""Reads a capture of XCache's g-stream: what the cache itself tells of every closed file.

A capture repeats `@@<unix_s> <port> <length>` and a newline, then a datagram of `length` bytes. A
datagram is a JSON header line, then one JSON record a line, then NUL or a newline. Source:
`xrootd.mongstream pfc … send json fullhdr` of XRootD 5.5.3 to 6.2.1; `collector.Collector` writes captures.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from features.errors import InputError
from prefetch.xcache.events import FileClose, Source, file_close, is_int, json_object

__all__ = ["Capture", "CaptureReader", "FileClose", "read_capture"]

MAX_DATAGRAM_BYTES = 65536
PSEQ_MODULUS = 1000
_FRAME = re.compile(rb"@@(\d{1,15}) (\d{1,5}) (\d{1,5})\n")
_FRAME_MAX_BYTES = 64
# A cache numbers its datagrams from 1; only a capture that was there at its start may count from 0.
_STARTED_S = 60


@dataclasses.dataclass(frozen=True)
class Capture:
    """The events of a capture in the order received, and its faults.

    `n_lost`: datagrams missing from the numbering; `n_malformed`: lines and frames that cannot be read.
    """

    records: tuple[FileClose, ...]
    n_lost: int
    n_malformed: int


class CaptureReader:
    """Reads a capture that grows: every `poll` gives what came since the last one."""

    def __init__(self, path: Path) -> None:
        self.n_malformed = 0
        self._path = path
        self._offset = 0
        self._numbering: dict[tuple[Any, ...], _Numbering] = {}

    @property
    def n_lost(self) -> int:
        """Datagrams missing so far; one that comes late is taken off again."""
        return sum(numbering.n_lost for numbering in self._numbering.values())

    def poll(self) -> list[FileClose]:
        """Events since the last poll; a frame still being written is left for the next one.

        Raises InputError if the capture cannot be read.
        """
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                return [
                    event
                    for received_t, body in self._frames(stream)
                    for event in self._datagram(received_t, body)
                ]
        except OSError as error:
            raise InputError(f"cannot read g-stream capture {self._path}: {error.strerror}") from error

    def _frames(self, stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
        while True:
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
        # A capture cut at its head begins within a datagram; only an ident packet tells its own time.
        if not line.strip(b"\0\n"):
            return
        header = json_object(line)
        if header is not None and header.get("code") == "=" and is_int(header.get("stod")):
            yield header["stod"], line
        else:
            self.n_malformed += 1

    def _datagram(self, received_t: int, body: bytes) -> Iterator[FileClose]:
        lines = body.rstrip(b"\0\n").split(b"\n")
        header = json_object(lines[0])
        source = None if header is None else Source.of(header)
        if source is None:
            self.n_malformed += 1
            return
        if not source.is_cache:
            return
        base = 0 if received_t - source.stod <= _STARTED_S else None
        self._numbering.setdefault(source.key, _Numbering(base)).note(source.pseq)
        for index, line in enumerate(lines[1:]):
            record = json_object(line)
            event = None if record is None else file_close(record, source, index, received_t)
            if event is not None:
                yield event
            elif record is None or record.get("event") == "file_close":
                self.n_malformed += 1


def read_capture(path: Path) -> Capture:
    """Everything in the capture at `path`. Raises InputError if it cannot be read."""
    reader = CaptureReader(path)
    records = tuple(reader.poll())
    return Capture(records, reader.n_lost, reader.n_malformed)


class _Numbering:
    """Counts the gaps in one stream's `pseq`, which wraps from 999 to 0."""

    def __init__(self, last: int | None) -> None:
        self.n_lost = 0
        self._last = last

    def note(self, pseq: int) -> None:
        step = 1 if self._last is None else (pseq - self._last) % PSEQ_MODULUS
        if step > PSEQ_MODULUS // 2:
            self.n_lost = max(0, self.n_lost - 1)
            return
        self.n_lost += max(0, step - 1)
        self._last = pseq
