"""Datagrams as XRootD servers send them, in the name of any server: what attackers forge."""

from __future__ import annotations

import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

from waiting import eventually

from prefetch.xcache.events import ReportSender
from prefetch.xcache.gstream import CaptureReader


def opening(file_id: int, lfn: str = "/store/x", *, size: int = 1000, flags: int = 1, user: int = 5) -> bytes:
    """An f-stream record of an open; `flags` 1: with the name."""
    name = lfn.encode("utf-8", "surrogateescape")
    name += b"\0" * (8 - len(name) % 8)
    return struct.pack(">BBHIqI", 1, flags, 20 + len(name), file_id, size, user) + name


def closing(file_id: int, read: int = 10, readv: int = 20, write: int = 0, *, tail: bytes = b"") -> bytes:
    """An f-stream record of a close, and the bytes that went through it."""
    flags = {0: 0, 48: 2, 80: 6}[len(tail)]
    return struct.pack(">BBHIqqq", 0, flags, 32 + len(tail), file_id, read, readv, write) + tail


def fstream(*records: bytes, pseq: int, begin: int, end: int, stod: int, sid: int) -> bytes:
    """An f-stream datagram of `records` made from `begin` to `end`, s since 1970."""
    body = struct.pack(">BBHHHiiQ", 2, 1, 24, 0, len(records), begin, end, sid) + b"".join(records)
    return struct.pack(">cBHi", b"f", pseq % 256, 8 + len(body), stod) + body


def users(code: bytes, text: bytes | str, number: int = 1, *, stod: int) -> bytes:
    """A datagram that names a session (`u`), or its work (`i`)."""
    body = struct.pack(">I", number) + (text.encode() if isinstance(text, str) else text)
    return struct.pack(">cBHi", code, 1, 8 + len(body), stod) + body


def close(lfn: str, size: int, at_s: int, **changed: object) -> dict[str, Any]:
    """The g-stream record of a file of `size` bytes that was fetched whole and closed at `at_s`."""
    numbers = {"size": size, "blk_size": max(1, size), "n_blks": 1, "n_blks_done": 1, "access_cnt": 1}
    read = {"attach_t": at_s - 1, "detach_t": at_s, "b_hit": 0, "b_miss": size, "b_bypass": 0}
    return {"event": "file_close", "lfn": lfn, "remotes": ["origin:1094"]} | numbers | read | changed


def _sources(captures: Path) -> list[ReportSender]:
    """Who has sent the g-stream's datagrams, the last one last."""
    return [
        event
        for path in sorted(captures.glob("gstream-*"))
        for event in CaptureReader(path).events()
        if isinstance(event, ReportSender)
    ]


@dataclasses.dataclass(frozen=True)
class Sender:
    """Whom a datagram comes from, as its header says; `pseq`: of the last of its g-stream that was heard."""

    host: str
    port: int
    inst: str
    site: str
    stod: int
    sid: int
    pseq: int = 0

    @staticmethod
    def heard(captures: Path) -> Sender:
        """The server that captures name last, as everybody can read who reads them."""
        sources = eventually(lambda: _sources(captures))
        assert sources, "the server reports nothing"
        host, inst, port, stod, sid = sources[-1].key
        return Sender(host, int(port), inst, sources[-1].site, stod, sid, sources[-1].pseq)

    def gstream(self, *records: dict[str, Any], ahead: int = 1) -> bytes:
        """A g-stream datagram of `records`, `ahead` of the last one that was heard."""
        stream = {"type": "C", "tbeg": self.stod, "tend": self.stod}
        return "\n".join(map(json.dumps, (self._header("g", ahead) | {"gs": stream}, *records))).encode()

    def ident(self) -> bytes:
        """What a server says of itself when it starts, and from time to time."""
        return json.dumps(self._header("=", 1)).encode()

    def fstream(self, pseq: int, at_s: int, *records: bytes) -> bytes:
        """An f-stream datagram of `records` made in the second before `at_s`."""
        return fstream(*records, pseq=pseq, begin=at_s - 1, end=at_s, stod=self.stod, sid=self.sid)

    def login(self, number: int, user: str) -> bytes:
        """The begin of session `number`."""
        return users(b"u", f"xroot/{user}.1:{self.sid}@[::1]\n&R=v5.5.3&x=&y=&I=4", number, stod=self.stod)

    def _header(self, code: str, ahead: int) -> dict[str, Any]:
        source = {"site": self.site, "host": self.host, "port": self.port, "inst": self.inst}
        who = source | {"pgm": "xrootd", "ver": "v5.5.3"}
        return {
            "code": code,
            "pseq": (self.pseq + ahead) % 1000,
            "stod": self.stod,
            "sid": self.sid,
            "src": who,
        }
