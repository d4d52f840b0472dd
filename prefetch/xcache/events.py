"""Datagrams of caches: their senders and `file_close` records, and how captures keep them.

Nothing in a datagram is trusted.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from typing import Any, Final, TypeGuard

from features.common import strict_json
from features.common.errors import InputError
from features.common.hosts import names_a_server, plain_address
from prefetch.xcache import fstream

MAX_DATAGRAM_BYTES: Final = 65535
"""No UDP datagram is longer, nor is a line of a capture."""

MAX_WORD_CHARS: Final = 255
"""Most characters of a host's name, and of the other names of a sender."""

_INT64_MAX = 2**63 - 1
_REQUIRED = {"size_bytes": "size"} | {
    field: field
    for field in (
        *("blk_size", "n_blks", "n_blks_done", "access_cnt"),
        *("attach_t", "detach_t", "b_hit", "b_miss", "b_bypass"),
    )
}
_SINCE_5_7_2 = ("b_todisk", "b_prefetch")


@dataclasses.dataclass(frozen=True)
class FileClose:
    """One `file_close` event: all overlapping opens of one file, sent at the last close.

    Times (`_t`) are s since 1970, `b_*` bytes. `b_todisk` (fetched and written to disk) and `b_prefetch` are
    None before XRootD 5.7.2; `b_hit` and `b_miss` do not say what was fetched: reads of a block that is
    still coming count as hits. `access_cnt`: events of the file since it came to the disk. `remotes` are the
    origins asked: empty for a pure hit. `index` is the record's place in its datagram.
    """

    lfn: str
    size_bytes: int
    blk_size: int
    n_blks: int
    n_blks_done: int
    access_cnt: int
    attach_t: int
    detach_t: int
    remotes: tuple[str, ...]
    b_hit: int
    b_miss: int
    b_bypass: int
    b_todisk: int | None
    b_prefetch: int | None
    host: str
    inst: str
    site: str
    stod: int
    pseq: int
    index: int
    received_t: int
    port: str = ""

    @property
    def address(self) -> str:
        """The server's host in its one form, as settings name it."""
        return plain_address(self.host.removeprefix("[").removesuffix("]"))

    @property
    def sender(self) -> str:
        """What the server calls itself: its instance, else its site, else its host; empty for none."""
        return self.inst or self.site or (self.address if names_a_server(self.address) else "")

    @property
    def read_bytes(self) -> int:
        return self.b_hit + self.b_miss + self.b_bypass

    @property
    def disk_bytes(self) -> int:
        """Bytes of the file on disk at the close; the last block may be short, where the size is known."""
        return min(self.size_bytes or _INT64_MAX, self.n_blks_done * self.blk_size)

    @property
    def is_ours(self) -> bool:
        """At most one byte per block was read: a touch or prefetch, or a job reading a file of few bytes."""
        return self.read_bytes <= self.n_blks

    @property
    def complete(self) -> bool:
        return self.size_bytes == 0 or self.n_blks_done >= self.n_blks

    @property
    def event_id(self) -> str:
        """32 hex digits, the same whenever the event is read and different for every other event."""
        datagram = self.host, self.inst, self.stod, self.pseq
        place = *datagram, self.index, self.lfn, self.attach_t, self.detach_t
        return hashlib.sha256(json.dumps(place).encode()).hexdigest()[:32]


@dataclasses.dataclass(frozen=True)
class ReportSender:
    """The sender of a datagram; `key` identifies one numbering in one life of one cache."""

    key: tuple[Any, ...]
    is_cache: bool
    host: str
    inst: str
    site: str
    stod: int
    pseq: int

    @property
    def server(self) -> tuple[Any, ...]:
        return self.key[:3]

    @staticmethod
    def of(header: dict[str, Any]) -> ReportSender | None:
        """The sender that a header line names, or None if the header is malformed."""
        who, stream = header.get("src"), header.get("gs")
        numbers: dict[str, Any] = {field: whole(header.get(field)) for field in ("stod", "pseq", "sid")}
        if not isinstance(who, dict) or not all(map(is_int, numbers.values())):
            return None
        host, inst, site, port = (_word(whole(who.get(field))) for field in ("host", "inst", "site", "port"))
        if max(map(len, (host, inst, site, port))) > MAX_WORD_CHARS:
            return None
        is_cache = header.get("code") == "g" and isinstance(stream, dict) and stream.get("type") == "C"
        key = (host, inst, port, numbers["stod"], numbers["sid"])
        return ReportSender(key, is_cache, host, inst, site, numbers["stod"], numbers["pseq"])


def file_close(record: dict[str, Any], source: ReportSender, index: int, received_t: int) -> FileClose | None:
    """The event in one record line, or None if it is of another kind or malformed."""
    lfn, remotes = record.get("lfn"), record.get("remotes")
    if record.get("event") != "file_close" or not isinstance(lfn, str) or not isinstance(remotes, list):
        return None
    if not all(isinstance(remote, str) for remote in remotes):
        return None
    numbers: dict[str, Any] = {ours: whole(record.get(theirs)) for ours, theirs in _REQUIRED.items()}
    later: dict[str, Any] = {field: whole(record.get(field)) for field in _SINCE_5_7_2}
    if not all(map(is_int, [*numbers.values(), *(value for value in later.values() if value is not None)])):
        return None
    return FileClose(
        lfn=lfn,
        remotes=tuple(remotes),
        host=source.host,
        port=source.key[2],
        inst=source.inst,
        site=source.site,
        stod=source.stod,
        pseq=source.pseq,
        index=index,
        received_t=received_t,
        **numbers,
        **later,
    )


def whole(value: object) -> object:
    """`8.0` is 8, as programs write it that copy JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_int(value: object) -> bool:
    """Whether `value` is a count or time that fits 64 bits; booleans and floats are not."""
    return type(value) is int and 0 <= value <= _INT64_MAX


def _word(value: object) -> str:
    return str(value) if isinstance(value, str | int) else ""


def json_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object in `line`; None if `strict_json` does not accept it."""
    try:
        value = strict_json.loads(line.rstrip(b"\0"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


BINARY = (fstream.CODE, *fstream.SESSION_CODES)
"""Codes of the binary streams that captures keep."""
# Real ones have some 250.
_MAX_HEADER_BYTES = 4096

Datagram = ReportSender | fstream.Packet | fstream.Login | fstream.Work
"""A decoded datagram: the sender of a JSON one, or all of a binary one."""


def read_datagram(datagram: bytes) -> Datagram | None:
    """Decode `datagram`; None for a binary one of another stream than `BINARY`.

    Of a JSON one only the header is read. Raises InputError for what no XRootD server sends.
    """
    code = fstream.stream_code(datagram)
    if code is None:
        line = datagram[: _MAX_HEADER_BYTES + 1].split(b"\n", 1)[0]
        header = json_object(line) if len(line) <= _MAX_HEADER_BYTES else None
        sender = None if header is None else ReportSender.of(header)
        if sender is None:
            raise InputError("no XRootD server sends such a header")
        return sender
    if code not in BINARY:
        return None
    return fstream.decode(datagram) if code == fstream.CODE else fstream.decode_session(datagram)


def is_kept(datagram: Datagram | None) -> TypeGuard[Datagram]:
    """Whether it is of a stream that captures keep."""
    return datagram.is_cache if isinstance(datagram, ReportSender) else datagram is not None


def frame(received_s: int, port: int, datagram: bytes) -> bytes:
    """`datagram` as a capture keeps it: framed, ended by a newline; a binary one is JSON, in base64."""
    if (code := fstream.stream_code(datagram)) in BINARY:
        record = {"code": code, "data": base64.b64encode(datagram).decode()}
        datagram = json.dumps(record).encode()
    body = datagram.rstrip(b"\0\n") + b"\n"
    return b"@@%d %d %d\n%s" % (received_s, port, len(body), body)
