"""Decodes the monitoring records by which an XRootD server names its clients: `u`, and `i` for their work.

A datagram is a header, a number, then text: `PROTOCOL/USER.PID:SERVER@HOST`, the name of the session, and
after a line break what is known of it. Records of `u` come at the login, with the authenticated name if the
server asks for one and has `auth` in `xrootd.monitor`; records of `i` when a client says what it works for
(CMSSW: its job). Seen on 5.5.3 with `xrootd.monitor all auth … dest fstat user info …`. Nothing in a datagram
is trusted.
"""

from __future__ import annotations

import dataclasses
import re
import struct
from typing import Final

from features.common.errors import InputError

LOGIN: Final = "u"
WORK: Final = "i"
CODES: Final = (LOGIN, WORK)

MAX_CHARS: Final = 1024
"""Of a user's name or of a work; what is longer names nobody."""
_HEADER = struct.Struct(">cBHiI")
_SESSION = re.compile(r"(?:[^/]*/)?(?P<user>.*)\.\d{1,10}:(?P<server>\d{1,15})@.*", re.DOTALL)
_AUTHENTICATED = re.compile(r"&p=[^&]+&n=(?P<name>[^&]+)")


@dataclasses.dataclass(frozen=True)
class Login:
    """A session of `user` began; empty: nobody is named. `user_id`: as in the f-stream's `Opened`."""

    stod: int
    server_id: int
    user_id: int
    session: str
    user: str


@dataclasses.dataclass(frozen=True)
class Work:
    """A session works for `work` from now on."""

    stod: int
    server_id: int
    session: str
    work: str


def decode(datagram: bytes) -> Login | Work:
    """What a datagram of `u` or `i` says. Raises InputError if it is none, or names no session.

    A name that the server has authenticated goes before the one that the client calls itself.
    """
    if len(datagram) < _HEADER.size:
        raise InputError(f"not a monitoring datagram: {len(datagram)} bytes")
    code, _, length, stod, number = _HEADER.unpack_from(datagram)
    text = datagram[_HEADER.size : length].rstrip(b"\0").decode("utf-8", "backslashreplace")
    session, _, told = text.partition("\n")
    found = _SESSION.fullmatch(session)
    if chr(code[0]) not in CODES or found is None:
        raise InputError(f"not a datagram that names a session: {datagram[:1]!r}")
    if code == WORK.encode():
        return Work(stod, int(found["server"]), session, _bounded(told))
    authenticated = _AUTHENTICATED.match(told)
    user = found["user"] if authenticated is None else authenticated["name"]
    return Login(stod, int(found["server"]), number, session, _bounded(user))


def _bounded(name: str) -> str:
    return name if len(name) <= MAX_CHARS else ""
