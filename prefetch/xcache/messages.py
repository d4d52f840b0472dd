"""What sites publish on a message broker, as captures and lines that the sources of `pull` read.

Sources: opensciencegrid/xrootd-monitoring-shoveler (`packageudp.go`: `{"remote", "version", "data"}`, `data`
is a datagram in base64) and the collectors beside it: xrootd-monitoring-collector (`DetailedCollector.py`,
`wlcg_converter.py`) and the shoveler's own (`collector/correlator.go`, `wlcg_converter.go`). They publish a
closed file in WLCG's form (`file_lfn`, `unique_id`, …) or their own (`filename`, `read`, `readv`, …), and a
cache's `file_close` with its server (`sid`: start#address#port, `server_hostname` or `hostname`), with the
g-stream's names or with longer ones. MONIT wraps a record in `data`, OpenSearch in `_source`. Rucio's Hermes
publishes `{"event_type", "payload", "created_at"}`. Nothing in a
message is trusted.
"""

import base64
import contextlib
import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

from features.common import strict_json
from features.common.errors import InputError
from prefetch.xcache import events
from prefetch.xcache.events import Datagram, ReportSender, whole
from prefetch.xcache.fstream import stream_code
from prefetch.xcache.gstream import PSEQ_MODULUS

Kind = Literal["gstream", "fstream", "closes", "rucio"]
FORMS: Final[Mapping[Kind, tuple[str, str]]] = {
    kind: (kind, ".capture" if kind == "gstream" else ".jsonl") for kind in get_args(Kind)
}
"""The files that messages become: sources xcache_gstream, xrootd_fstream and cms_aaa read them, and queues
of Rucio."""

_OF_RUCIO: Final = frozenset(
    (
        *("scope", "name", "rse", "dst-rse", "src-rse", "src-type", "rule-id", "rule_id", "activity"),
        *("account", "childscope", "childname", "childtype"),
    )
)
"""What is kept of a message of Rucio's Hermes: what it moves, creates or deletes, and where."""
_MOST_NAME_CHARS: Final = 1024
_MOVES: Final = ("transfer-", "stagein-", "deletion-done", "datasetlock_ok", "create_", "register_cnt")

_LATEST_S: Final = 10**11
"""A greater number is no time in s, but in ms."""
_NUMBERS: Final = 2**62
_NO_FILE: Final = frozenset({"missing directory", "unknown"})
"""What collectors call the file of a close without its open."""
_SHORTER: Final = {
    "file_path": "lfn",
    "block_size": "blk_size",
    "numbers_blocks": "n_blks",
    "numbers_blocks_done": "n_blks_done",
    "access_count": "access_cnt",
    "attach_time": "attach_t",
    "detach_time": "detach_t",
    "remotes_origin": "remotes",
    **{
        f"{what}_{name}_cache": f"b_{name}"
        for what in ("bytes", "block")
        for name in ("hit", "miss", "bypass")
    },
    "bytes_to_disk": "b_todisk",
    "bytes_by_prefetch": "b_prefetch",
}
"""The collectors' names of a cache event's fields, and the g-stream's."""
_IN_WLCG: Final = {
    "filename": "file_lfn",
    "filesize": "file_size",
    "write": "write_bytes",
    "server_hostname": "server_host",
    "host": "client_host",
    "user_domain": "client_domain",
    "appinfo": "app_info",
    "site": "site_name",
}
"""The collectors' own names of a closed file's fields, and WLCG's."""


_G_HEADER: Final = struct.Struct(">cBHIIIQ")
"""XrdXrootdMonGS of `XrdXrootdMonData.hh`: what all binary datagrams have, the window, and the letter of the
stream above the server's number."""
_G_SERVER: Final = 2**48 - 1


class CaptureRecord(NamedTuple):
    """What to append to the files of `kind`; `datagram`: decoded, if it was one."""

    kind: Kind
    content: bytes
    datagram: Datagram | None = None


class Refused(NamedTuple):
    """Nothing to keep: `other` is of a kind that no source reads, `malformed` of none."""

    reason: Literal["other", "malformed"]


_OTHER, _MALFORMED = Refused("other"), Refused("malformed")


def read(
    body: bytes, at_s: int, concerns: Callable[[str], bool] = lambda _: True
) -> Iterator[CaptureRecord | Refused]:
    """What a message published at `at_s` becomes: an answer per record, the same however often it is read.

    What Rucio moves or deletes at an RSE that does not concern us is `other`.
    """
    with contextlib.suppress(InputError):
        if body.startswith(b"{") and isinstance(events.read_datagram(body), ReportSender):
            yield _datagram(body, "", at_s)
            return
    try:
        records = strict_json.loads(body.rstrip(b"\0"))
    except ValueError:
        yield _OTHER if body.lstrip().startswith(b"<") else _MALFORMED  # XML: a server's summary
        return
    for record in records if isinstance(records, list) else [records]:
        yield _record(record, at_s, concerns)


def _record(record: object, at_s: int, concerns: Callable[[str], bool]) -> CaptureRecord | Refused:
    if not isinstance(record, dict):
        return _MALFORMED
    kind, payload = record.get("event_type"), record.get("payload")
    if isinstance(kind, str) and isinstance(payload, dict):
        rse = payload.get("dst-rse") or payload.get("rse")
        if isinstance(rse, str) and not concerns(rse):
            return _OTHER
        return _of_rucio(kind, payload, record.get("created_at"), at_s)
    remote, data = record.get("remote"), record.get("data")
    if isinstance(remote, str) and isinstance(data, str):
        return _packet(remote, data, at_s)
    for inner in (data, record.get("_source")):
        if isinstance(inner, dict):
            record = {"metadata": record.get("metadata"), **inner}
    if "file_lfn" in record or "filename" in record:
        return _close(record, at_s)
    if record.get("event", "file_close") == "file_close" and (
        "attach_t" in record or "attach_time" in record
    ):
        return _cache_event(record, at_s)
    return _OTHER


def _of_rucio(
    kind: str, payload: Mapping[str, Any], created_at: object, at_s: int
) -> CaptureRecord | Refused:
    if len(kind) > events.MAX_WORD_CHARS or not kind.startswith(_MOVES):
        return _OTHER
    is_text = isinstance(created_at, str) and len(created_at) <= events.MAX_WORD_CHARS
    texts = {name: text for name, text in payload.items() if name in _OF_RUCIO and isinstance(text, str)}
    short_texts = {name: text for name, text in texts.items() if len(text) <= _MOST_NAME_CHARS}
    event = {"event_type": kind, "created_at": created_at if is_text else at_s, "payload": short_texts}
    return CaptureRecord("rucio", _line(event))


def _packet(remote: str, data: str, at_s: int) -> CaptureRecord | Refused:
    try:
        datagram = base64.b64decode(data, validate=True)
    except ValueError:
        return _MALFORMED
    if (
        len(remote) > events.MAX_WORD_CHARS
        or not remote.isprintable()
        or len(datagram) > events.MAX_DATAGRAM_BYTES
    ):
        return _MALFORMED
    return _datagram(datagram, remote, at_s)


def _datagram(datagram: bytes, remote: str, at_s: int) -> CaptureRecord | Refused:
    if datagram.startswith(b"<"):
        return _OTHER
    if stream_code(datagram) == "g" and remote:
        return _binary_events(datagram, remote, at_s)
    try:
        content = events.read_datagram(datagram)
    except InputError:
        return _MALFORMED
    if not events.is_kept(content):
        return _OTHER
    if isinstance(content, ReportSender):
        port = remote.rpartition(":")[2]
        number = int(port) if port.isdecimal() and len(port) < len("100000") else 0
        return CaptureRecord("gstream", events.frame(at_s, number, datagram), content)
    return CaptureRecord(
        "fstream", _line({"remote": remote, "data": base64.b64encode(datagram).decode()}), content
    )


def _binary_events(datagram: bytes, remote: str, at_s: int) -> CaptureRecord | Refused:
    """Events of a server without `send json`: the header names no host, and gaps are not counted."""
    if len(datagram) < _G_HEADER.size:
        return _MALFORMED
    _, pseq, _, stod, _, _, ident = _G_HEADER.unpack_from(datagram)
    if ident >> 56 != ord("C"):
        return _OTHER
    host, _, port = remote.rpartition(":")
    header = {
        **{"code": "g", "pseq": PSEQ_MODULUS + pseq, "stod": stod, "sid": ident & _G_SERVER},
        "gs": {"type": "C"},
        "src": {"host": host.strip("[]"), "inst": host.strip("[]"), "port": port, "site": ""},
    }
    whole = _line(header) + datagram[_G_HEADER.size :]
    if len(whole) > events.MAX_DATAGRAM_BYTES:
        return _MALFORMED
    return CaptureRecord("gstream", events.frame(at_s, 0, whole), ReportSender.of(header))


def _cache_event(record: Mapping[str, Any], at_s: int) -> CaptureRecord | Refused:
    """The event as a datagram of its own: the collector does not say which number it had.

    It has that of its content, beyond those of caches: two messages are one event if they say the same.
    """
    event = {_SHORTER.get(name, name): whole(value) for name, value in record.items()}
    event |= {"event": "file_close", "remotes": _remotes(event.get("remotes"))}
    stod, _, address = _text(event, "sid").partition("#")
    host = _text(event, "server_hostname", "hostname", "server_ip", "addr") or address.partition("#")[0]
    header = {
        **{"code": "g", "pseq": PSEQ_MODULUS + _number(record), "sid": 0, "gs": {"type": "C"}},
        "stod": int(stod) if stod.isdecimal() and len(stod) < len(str(_LATEST_S)) else 0,
        # They do not keep the name of an instance; several servers of a site are several caches.
        "src": {"host": host, "inst": host, "site": _text(event, "site"), "port": address.rpartition("#")[2]},
    }
    source = ReportSender.of(header)
    if not host or source is None or events.file_close(event, source, 0, at_s) is None:
        return _MALFORMED
    datagram = _line(header) + _line({name: value for name, value in event.items() if name != "metadata"})
    if len(datagram) > events.MAX_DATAGRAM_BYTES:
        return _MALFORMED
    return CaptureRecord("gstream", events.frame(at_s, 0, datagram), source)


def _close(record: dict[str, Any], at_s: int) -> CaptureRecord | Refused:
    """The record in MONIT's form of WLCG's: times in ms, and one id however often it is published."""
    close = {_IN_WLCG.get(name, name): value for name, value in record.items()} | {
        name: value for name, value in record.items() if name not in _IN_WLCG
    }
    metadata = close.pop("metadata", None)
    if str(close.get("file_lfn")) in _NO_FILE:
        close["file_lfn"] = None
    close.setdefault("file_size", close.get("fize_size"))
    close.setdefault("app_info", close.get("CRAB_Workflow"))
    close.setdefault("unique_id", f"{_number(record):016x}")
    parts = [n for n in map(whole, (close.get("read"), close.get("readv"))) if isinstance(n, int)]
    if parts:
        close.setdefault("read_bytes", sum(parts))
    for name in ("start_time", "end_time"):
        at = close.get(name)
        close[name] = at * 1000 if isinstance(at, int | float) and 0 < at < _LATEST_S else at
    published = {"timestamp": at_s * 1000} | (metadata if isinstance(metadata, dict) else {})
    return CaptureRecord("closes", _line({"data": close, "metadata": published}))


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _number(record: Mapping[str, Any]) -> int:
    text = json.dumps(record, sort_keys=True).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8]) % _NUMBERS


def _remotes(value: object) -> object:
    """Collectors write an empty text, or nothing, for no origin."""
    return [] if value in ("", None) else [value] if isinstance(value, str) else value


def _text(record: Mapping[str, Any], *names: str) -> str:
    texts = (record.get(name) for name in names)
    return next(
        (str(text) for text in texts if isinstance(text, str) and text not in ("", "unresolvable")), ""
    )
