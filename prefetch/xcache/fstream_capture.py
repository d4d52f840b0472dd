"""Reads f-stream datagrams that were kept as JSON lines, and pairs opens with closes.

A line is `{"remote": "ip:port", "data": "<base64 of the datagram>", …}`, as OSDF's shovelers keep them.
`remote` is where it came from: of a server beside its shoveler a loopback address, which names no server.
Datagrams count in the order they stand: a close ends an open of the same datagram or of an earlier one.
"""

import base64
import codecs
import dataclasses
import functools
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from features.common.errors import InputError
from features.common.hosts import address_and_port
from features.common.input_files import InputFile, Unpacked, plain
from prefetch.xcache import fstream
from prefetch.xcache.events import MAX_WORD_CHARS, json_object
from prefetch.xcache.fstream import Closed, Login, Opened, Packet
from prefetch.xcache.gstream import Numberings

# Base64 of the longest datagram, and what surrounds it.
_MAX_LINE_BYTES = 2**17
_SAMPLE_CHARS = 120
LONE_CLOSE = "close without its open"
_MOST_KNOWN = 100_000
"""Of more sessions and works, the oldest are forgotten."""


class Server(NamedTuple):
    """Who sent a datagram: file and user numbers mean something within one only."""

    sender: str
    stod: int
    host: str
    server_id: int


@functools.lru_cache(maxsize=1024)
def _server(remote: str, stod: int, server_id: int) -> Server:
    host, port = address_and_port(remote)
    address = f"[{host}]" if ":" in host else host  # shovelers have written it without brackets, too
    sender = f"{address}:{port}" if port else f"{host} {server_id}"
    return Server(sender, stod, host, server_id)


@dataclasses.dataclass(frozen=True)
class Access:
    """One open, with its close if that was reported. The window is that of the open; times s since 1970.

    `known_s`: when the datagram of the open was sent; `work`: what its session works for, as far as reported.
    """

    server: Server
    opened: Opened
    closed: Closed | None
    begin_s: int
    end_s: int
    known_s: int
    work: str = ""


@dataclasses.dataclass(frozen=True)
class Fault:
    """A record or line that gives no access. `reason`: the same words for the same fault."""

    reason: str
    sample: str


@dataclasses.dataclass(frozen=True)
class LoneClose(Fault):
    """A close whose open is in no capture that was read."""

    server: Server
    closed: Closed


class FstreamReader:
    """Reads captures one after the other, as one stream."""

    def __init__(self) -> None:
        self._open: dict[tuple[Server, int], Access] = {}
        self._seen: dict[tuple[Server, int], int] = {}
        self._numbers: list[tuple[int, int, int, Server]] = []
        self._known: dict[tuple[int, int, int | str], str] = {}  # sessions by user, works by session

    @property
    def n_lost(self) -> int:
        """Datagrams missing from the servers' numbering, in the order of their windows."""
        numberings = Numberings()
        for _, _, pseq, server in sorted(self._numbers, key=lambda number: number[:2]):
            numberings.note(server, pseq, fstream.PSEQ_MODULUS)
        return numberings.n_lost

    def read(self, path: Path | InputFile) -> Iterator[Access | Fault]:
        """Every access that ends in the capture at `path`, and every fault. Raises InputError."""
        try:
            with plain(path) as name, io.BufferedReader(Unpacked(name, path)) as stream:
                while line := stream.readline(_MAX_LINE_BYTES):
                    if line.strip():
                        yield from self._line(line.removeprefix(codecs.BOM_UTF8))
        except OSError as error:
            raise InputError(f"cannot read {os.fspath(path)}: {error}") from error

    def unfinished(self) -> Iterator[Access]:
        yield from map(self._with_work, self._open.values())

    def _line(self, line: bytes) -> Iterator[Access | Fault]:
        record = json_object(line) or {}
        remote, data = record.get("remote"), record.get("data")
        if not isinstance(remote, str) or len(remote) > MAX_WORD_CHARS or not isinstance(data, str):
            yield Fault("malformed line", line[:_SAMPLE_CHARS].strip().decode(errors="backslashreplace"))
            return
        try:
            datagram = base64.b64decode(data, validate=True)
            code = fstream.packet_code(datagram)
            if code in fstream.SESSION_CODES:
                self._note(datagram)
                return
            if code != fstream.CODE:
                yield Fault(f"not of the f-stream: {code}", remote)
                return
            packet = fstream.decode(datagram)
        except (InputError, ValueError) as error:
            yield Fault("malformed datagram", f"{remote}: {error}")
            return
        server = _server(remote, packet.stod, packet.server_id)
        yield from self._packet(server, packet, zlib.crc32(datagram))

    def _note(self, datagram: bytes) -> None:
        report = fstream.decode_session(datagram)
        session = report.session[-fstream.MAX_CHARS :]  # anybody can make up longer ones, to fill memory
        known: tuple[int | str, str] = (
            (report.user_id, session) if isinstance(report, Login) else (session, report.work)
        )
        place = (report.stod, report.server_id, known[0])
        self._known.pop(place, None)
        self._known[place] = known[1]
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def _with_work(self, access: Access) -> Access:
        of_server = access.server.stod, access.server.server_id
        session = self._known.get((*of_server, access.opened.user_id), "")
        return dataclasses.replace(access, work=self._known.get((*of_server, session), ""))

    def _packet(self, server: Server, packet: Packet, checksum: int) -> Iterator[Access | Fault]:
        where = f"{server.sender} {packet.stod} pseq {packet.pseq}"
        if self._seen.get((server, packet.pseq)) == checksum:
            yield Fault("datagram sent twice", where)
            return
        self._seen[server, packet.pseq] = checksum
        self._numbers.append((packet.begin_s, packet.end_s, packet.pseq, server))
        for opened in packet.opened:
            key = (server, opened.file_id)
            if key in self._open:
                yield self._with_work(self._open.pop(key))
            known_s = max(packet.begin_s, packet.end_s)
            self._open[key] = Access(server, opened, None, packet.begin_s, packet.end_s, known_s)
        for closed in packet.closed:
            access = self._open.pop((server, closed.file_id), None)
            if access is None:
                place = f"{where} file {closed.file_id}"
                yield LoneClose(LONE_CLOSE, place, server, closed)
            else:
                yield self._with_work(dataclasses.replace(access, closed=closed))
        yield from [Fault("unknown record", where)] * packet.n_unknown
        yield from [Fault("record cut short", where)] * packet.n_cut
