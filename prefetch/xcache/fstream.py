"""Decodes one datagram of XRootD's binary monitoring: files opened and closed, and who opened a session.

A datagram of the f-stream (`f`) is a header, then records, each with its own length; the first gives the
window in which they were made. Numbers are big-endian. Source: `XrdXrootdMonData.hh` and
`XrdXrootdMonFile.cc` of XRootD 5 (`xrootd.monitor … fstat …`), and datagrams of XRootD 5 caches.

A datagram of `u` (a login) or `i` (what a client works for, for example CMSSW its job) is a header, a number,
then text: `PROTOCOL/USER.PID:SERVER@HOST`, the name of the session, and after a line break what is known of
it: with `u` the authenticated name, if the server asks for one and has `auth` in `xrootd.monitor`. Seen on
5.5.3 with `xrootd.monitor all auth … dest fstat user info …`. Nothing in a datagram is trusted.
"""

import dataclasses
import re
import struct
from typing import Final, NamedTuple

from features.common.errors import InputError

CODE: Final = "f"
PSEQ_MODULUS: Final = 256
"""A server numbers its f-stream datagrams by one byte, apart from its other streams."""

_CLOSE, _OPEN, _TIME, _TRANSFER, _DISCONNECT = range(5)
_HAS_NAME, _FOR_WRITING = 1, 2
_US: Final = 1_000_000
_HEADER = struct.Struct(">cBHi")
_RECORD = struct.Struct(">BBHI")
_WINDOW = struct.Struct(">iiQ")
_SIZE = struct.Struct(">q")
_USER = struct.Struct(">I")
_BYTES = struct.Struct(">qqq")


class Opened(NamedTuple):
    """A file opened. `at_us`: µs since 1970; `lfn` is empty where the server does not report names."""

    at_us: int
    file_id: int
    user_id: int
    size_bytes: int
    lfn: str
    for_writing: bool


class Closed(NamedTuple):
    """A file closed, and the bytes that went through it. `at_us`: µs since 1970."""

    at_us: int
    file_id: int
    read_bytes: int
    readv_bytes: int
    write_bytes: int


@dataclasses.dataclass(frozen=True)
class Packet:
    """One f-stream datagram. `stod`: start of the server; the window is `begin_s` to `end_s`, s since 1970.

    `n_unknown`: records of a kind nobody knows; `n_cut`: 1 if the datagram ends within a record, and those
    that are too short for their kind.
    """

    stod: int
    pseq: int
    server_id: int
    begin_s: int
    end_s: int
    opened: tuple[Opened, ...]
    closed: tuple[Closed, ...]
    n_unknown: int
    n_cut: int


class _Raw(NamedTuple):
    kind: int
    flags: int
    number: int
    body: bytes


def packet_code(datagram: bytes) -> str:
    """The letter of a datagram's stream: `f`, `u` for users, `=` for a server, … Raises InputError."""
    if len(datagram) < _HEADER.size or not 0x20 < datagram[0] < 0x7F:
        raise InputError(f"not a monitoring datagram: {len(datagram)} bytes")
    return chr(datagram[0])


def stream_code(datagram: bytes) -> str | None:
    """As `packet_code`; None if it is no binary monitoring datagram, whose header gives its own length."""
    if len(datagram) < _HEADER.size or _HEADER.unpack_from(datagram)[2] != len(datagram):
        return None
    return packet_code(datagram) if 0x20 < datagram[0] < 0x7F else None


def decode(datagram: bytes) -> Packet:
    """The records of an f-stream datagram. Raises InputError if its header or its window cannot be read.

    Records carry no time: the opens and closes of a datagram are taken to be spread evenly over its window,
    each in the middle of its share.
    """
    if packet_code(datagram) != CODE:
        raise InputError(f"not an f-stream datagram: {datagram[:1]!r}")
    _, pseq, length, stod = _HEADER.unpack_from(datagram)
    raws, cut = _raws(datagram[_HEADER.size : length])
    if not raws or raws[0].kind != _TIME or len(raws[0].body) < _WINDOW.size - _SIZE.size:
        raise InputError("f-stream datagram without the time of its records")
    begin_s, end_s, server_id = _WINDOW.unpack(raws[0].body[: _WINDOW.size].ljust(_WINDOW.size, b"\0"))
    cut = cut or length > len(datagram)
    events = [raw for raw in raws[1:] if raw.kind in (_OPEN, _CLOSE)]
    opened, closed, short = _timed(events, begin_s, max(end_s, begin_s))
    return Packet(
        stod=stod,
        pseq=pseq,
        server_id=server_id & 0xFFFFFFFFFFFF,
        begin_s=begin_s,
        end_s=end_s,
        opened=tuple(opened),
        closed=tuple(closed),
        n_unknown=sum(raw.kind > _DISCONNECT for raw in raws),
        n_cut=int(cut) + short,
    )


def _raws(records: bytes) -> tuple[list[_Raw], bool]:
    """The records as they follow each other, and whether the last one is cut off."""
    raws, at, end = list[_Raw](), 0, len(records)
    while at + _RECORD.size <= end:
        kind, flags, size, number = _RECORD.unpack_from(records, at)
        if size < _RECORD.size or at + size > end:
            return raws, True
        raws.append(_Raw(kind, flags, number, records[at + _RECORD.size : at + size]))
        at += size
    return raws, at < end


def _timed(events: list[_Raw], begin_s: int, end_s: int) -> tuple[list[Opened], list[Closed], int]:
    opened, closed, n_short = list[Opened](), list[Closed](), 0
    for i, raw in enumerate(events):
        at_us = begin_s * _US + round((2 * i + 1) * (end_s - begin_s) * _US / (2 * len(events)))
        if raw.kind == _OPEN and len(raw.body) >= _SIZE.size:
            opened.append(_opened(raw, at_us))
        elif raw.kind == _CLOSE and len(raw.body) >= _BYTES.size:
            closed.append(Closed(at_us, raw.number, *_BYTES.unpack_from(raw.body)))
        else:
            n_short += 1
    return opened, closed, n_short


def _opened(raw: _Raw, at_us: int) -> Opened:
    (size_bytes,) = _SIZE.unpack_from(raw.body)
    user_id, name = 0, b""
    if raw.flags & _HAS_NAME and len(raw.body) >= _SIZE.size + _USER.size:
        (user_id,) = _USER.unpack_from(raw.body, _SIZE.size)
        name = raw.body[_SIZE.size + _USER.size :].split(b"\0", 1)[0]
    lfn = name.decode("utf-8", "backslashreplace")
    return Opened(at_us, raw.number, user_id, size_bytes, lfn, bool(raw.flags & _FOR_WRITING))


LOGIN: Final = "u"
WORK: Final = "i"
SESSION_CODES: Final = (LOGIN, WORK)

MAX_CHARS: Final = 1024
"""Most characters of a user's name or a work; a longer one counts as no name."""
_NUMBERED = struct.Struct(">cBHiI")
_SESSION = re.compile(r"(?:[^/]*/)?(?P<user>.*)\.\d{1,10}:(?P<server>\d{1,15})@.*", re.DOTALL)
_AUTHENTICATED = re.compile(r"&p=[^&]+&n=(?P<name>[^&]+)")


@dataclasses.dataclass(frozen=True)
class Login:
    """The login of a session. `user`: empty if no name is given; `user_id`: as in `Opened`."""

    stod: int
    server_id: int
    user_id: int
    session: str
    user: str


@dataclasses.dataclass(frozen=True)
class Work:
    """From now on the session works for `work`, for example a job."""

    stod: int
    server_id: int
    session: str
    work: str


def decode_session(datagram: bytes) -> Login | Work:
    """The login or work in a datagram of `u` or `i`. Raises InputError for another, or without a session.

    A name that the server authenticated counts before the one that the client gives itself.
    """
    if len(datagram) < _NUMBERED.size:
        raise InputError(f"not a monitoring datagram: {len(datagram)} bytes")
    code, _, length, stod, number = _NUMBERED.unpack_from(datagram)
    text = datagram[_NUMBERED.size : length].rstrip(b"\0").decode("utf-8", "backslashreplace")
    session, _, details = text.partition("\n")
    match = _SESSION.fullmatch(session)
    if chr(code[0]) not in SESSION_CODES or match is None:
        raise InputError(f"not a datagram that names a session: {datagram[:1]!r}")
    if code == WORK.encode():
        return Work(stod, int(match["server"]), session, _bounded(details))
    authenticated = _AUTHENTICATED.match(details)
    user = match["user"] if authenticated is None else authenticated["name"]
    return Login(stod, int(match["server"]), number, session, _bounded(user))


def _bounded(name: str) -> str:
    return name if len(name) <= MAX_CHARS else ""
