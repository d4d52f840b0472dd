"""Messages of brokers: each form that shovelers and collectors publish, and what nobody should."""

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefetch.xcache.fstream import Packet
from prefetch.xcache.messages import CaptureRecord, Refused, read

AT = 1_772_400_000
NUMBERS = {"size": 4096, "blk_size": 1024, "n_blks": 4, "n_blks_done": 4, "access_cnt": 2}
TIMES = {"attach_t": AT - 60, "detach_t": AT - 2}
EVENT = {
    **{"event": "file_close", "lfn": "/store/a.root", **NUMBERS, **TIMES, "remotes": ["o.example.org:1094"]},
    **{"b_hit": 0, "b_miss": 4096, "b_bypass": 0},
}
PLACE = {"sid": f"{AT - 900}#192.0.2.7#40000", "server_ip": "192.0.2.7", "server_hostname": "xc7.example.org"}
LONG = {
    **{"event": "file_close", "file_path": "/store/a.root", "size": 4096, "block_size": 1024},
    **{"numbers_blocks": 4.0, "numbers_blocks_done": 4, "access_count": 2, "site": "T2_XY", "vo": "noVO"},
    **{"attach_time": AT - 60, "detach_time": AT - 2, "remotes_origin": "", **PLACE},
}


def answers(message: object) -> list[CaptureRecord | Refused]:
    return list(read(message if isinstance(message, bytes) else json.dumps(message).encode(), AT))


def only(message: object) -> Any:
    (answer,) = answers(message)
    return answer


def packet(datagram: bytes, remote: str = "192.0.2.7:40000") -> dict[str, str]:
    return {"remote": remote, "version": "1.4.0", "data": base64.b64encode(datagram).decode()}


def json_datagram(**more: object) -> bytes:
    header = {"code": "g", "pseq": 3, "stod": AT - 900, "sid": 7, "src": {"host": "h", "port": 1094}}
    return "\n".join(map(json.dumps, (header | {"gs": {"type": "C"}} | more, EVENT))).encode() + b"\0"


def binary(code: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">cBHi", code, 9, 8 + len(body), AT - 900) + body


F_STREAM = binary(b"f", struct.pack(">BBHI", 2, 0, 24, 1) + struct.pack(">iiQ", AT - 60, AT, 5))


def body_of(record: CaptureRecord) -> list[dict[str, Any]]:
    lines = record.content.splitlines()
    return [json.loads(line) for line in (lines[1:] if record.kind == "gstream" else lines)]


def test_datagrams_in_a_shovelers_packets() -> None:
    record = only(packet(json_datagram()))
    assert (record.kind, record.datagram.host, record.datagram.pseq) == ("gstream", "h", 3)
    assert record.content.startswith(b"@@%d 40000 " % AT) and body_of(record)[1] == EVENT
    assert only(json_datagram()).content.startswith(b"@@%d 0 " % AT)  # as it is, without a packet
    record = only(packet(F_STREAM, "[2001:db8::1]:40000"))
    assert record.kind == "fstream" and isinstance(record.datagram, Packet)
    assert body_of(record) == [{"remote": "[2001:db8::1]:40000", "data": base64.b64encode(F_STREAM).decode()}]


def test_events_with_a_binary_header_are_those_of_their_sender() -> None:
    ident = ord("C") << 56 | 7
    events = "\n".join(map(json.dumps, (EVENT, EVENT | {"lfn": "/store/b.root"}))).encode() + b"\n\0"
    gist = only(packet(binary(b"g", struct.pack(">IIQ", AT - 5, AT, ident) + events), "[2001:db8::7]:40000"))
    header, *records = body_of(gist)
    assert (header["src"]["host"], header["stod"], header["sid"]) == ("2001:db8::7", AT - 900, 7)
    assert [record["lfn"] for record in records] == ["/store/a.root", "/store/b.root"]


@pytest.mark.parametrize(
    ("event", "host"),
    [
        (EVENT | PLACE | {"from": "192.0.2.7:40000"}, "xc7.example.org"),
        (EVENT | PLACE | {"server_hostname": ""}, "192.0.2.7"),
        (
            {k: v for k, v in EVENT.items() if k not in {"event", "remotes"}}
            | {"hostname": "xc7", "port": 4},
            "xc7",
        ),
        (LONG | {"block_hit_cache": 0, "block_miss_cache": 4096, "block_bypass_cache": 0}, "xc7.example.org"),
        (
            LONG | {"bytes_hit_cache": 0.0, "bytes_miss_cache": 4096, "bytes_bypass_cache": 0},
            "xc7.example.org",
        ),
        (
            {
                "data": LONG
                | {"bytes_hit_cache": 0, "bytes_miss_cache": 4096, "bytes_bypass_cache": 0, "metadata": {}}
            },
            "xc7.example.org",
        ),
        ({"_source": EVENT | PLACE}, "xc7.example.org"),
    ],
)
def test_a_caches_event_of_a_collector_is_one_of_its_g_stream(event: dict[str, Any], host: str) -> None:
    written = only(event)
    header, record = body_of(written)
    assert written.kind == "gstream" and (header["src"]["host"], header["src"]["inst"]) == (host, host)
    assert record.items() >= {"event": "file_close", "lfn": "/store/a.root", **NUMBERS, **TIMES}.items()
    assert (record["b_hit"], record["b_miss"], record["b_bypass"]) == (0, 4096, 0)
    assert only(event) == written
    inner = event.get("data") or event.get("_source") or event
    other = only(inner | {"access_cnt" if "access_cnt" in inner else "access_count": 3})
    assert body_of(other)[0]["pseq"] != header["pseq"] >= 1000


WLCG = {
    **{"file_lfn": "/store/a.root", "unique_id": "5f1c", "file_size": 4096, "read_bytes": 100},
    **{"operation": "read", "server_host": "se1.example.org", "server_domain": "example.org"},
    **{"start_time": AT - 60, "end_time": AT},
}
OWN = {
    **{"filename": "/store/a.root", "filesize": 4096, "read": 40, "readv": 60, "write": 0, "site": "EDGE"},
    **{"server_hostname": "se1.example.org", "start_time": (AT - 60) * 1000, "end_time": AT * 1000},
    **{"host": "wn1.example.org", "user_domain": "example.org", "appinfo": "x"},
}


def test_a_closed_file_is_in_monits_form() -> None:
    published = {"metadata": {"timestamp": AT * 1000 + 7, "type": "aaa-ng"}}
    (line,) = body_of(only(WLCG | published))
    assert line == {
        **published,
        "data": WLCG | {"start_time": (AT - 60) * 1000, "end_time": AT * 1000, "app_info": None},
    }
    assert body_of(only({"data": WLCG, **published})) == [line]
    (line,) = body_of(only(OWN))
    data = line["data"]
    assert line["metadata"] == {"timestamp": AT * 1000}
    expected = {"file_lfn": "/store/a.root", "file_size": 4096, "read_bytes": 100, "write_bytes": 0}
    expected |= {"server_host": "se1.example.org", "client_host": "wn1.example.org", "site_name": "EDGE"}
    assert data.items() >= (expected | {"start_time": (AT - 60) * 1000, "end_time": AT * 1000}).items()
    assert body_of(only(OWN)) == [line]
    assert body_of(only(OWN | {"read": 41}))[0]["data"]["unique_id"] != data["unique_id"]


def test_what_is_unknown_stays_so() -> None:
    lone = {**OWN, "filename": "missing directory", "filesize": "-1"}
    assert body_of(only(lone))[0]["data"]["file_lfn"] is None
    assert "read_bytes" not in body_of(only({"filename": "/a", "write": 5}))[0]["data"]


def test_an_array_is_its_records() -> None:
    kinds = [
        getattr(each, "kind", None) or each.reason
        for each in answers([WLCG, 5, {"TPC": "http"}, EVENT | PLACE])
    ]
    assert kinds == ["closes", "malformed", "other", "gstream"]
    assert answers([]) == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"<statistics/>", "other"),
        (packet(b"<statistics/>"), "other"),
        (packet(json_datagram(gs={"type": "P"})), "other"),
        (packet(binary(b"=", b"....text")), "other"),
        (packet(binary(b"g", struct.pack(">IIQ", AT - 5, AT, ord("T") << 56) + b"{}\n\0")), "other"),
        (packet(binary(b"g", b"....text")), "malformed"),
        ({"TPC": "http", "Src": "a"}, "other"),
        ({}, "other"),
        (b"", "malformed"),
        (b"\xff\xfe\0\1", "malformed"),
        (b"{" * 100_000, "malformed"),
        (b"[" * 100_000, "malformed"),
        (b'{"a": "\\ud800"}', "malformed"),
        (b'{"file_lfn": 1' + b"0" * 10_000 + b"}", "malformed"),
        (b'"text"', "malformed"),
        (packet(b"no datagram"), "malformed"),
        (packet(binary(b"f", b"....")), "malformed"),
        (packet(F_STREAM, "x" * 300), "malformed"),
        (packet(F_STREAM, "a\nb:1"), "malformed"),
        (packet(b"x" * 70_000), "malformed"),
        ({"remote": "h:1", "data": "%%%"}, "malformed"),
        (EVENT, "malformed"),
        (EVENT | PLACE | {"size": -1}, "malformed"),
        (EVENT | PLACE | {"lfn": None}, "malformed"),
        (EVENT | PLACE | {"remotes": [1]}, "malformed"),
        (EVENT | PLACE | {"server_hostname": "h" * 300}, "malformed"),
        (EVENT | PLACE | {"lfn": "x" * 70_000}, "malformed"),
    ],
)
def test_what_nobody_reads_is_refused(message: object, reason: str) -> None:
    assert only(message) == Refused(reason)  # type: ignore[arg-type]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(sorted({*EVENT, *LONG, *WLCG, *OWN, *PLACE, "metadata", "data", "_source", "remote"}))


@given(
    st.sampled_from([EVENT | PLACE, LONG, WLCG, OWN, packet(F_STREAM)]),
    st.dictionaries(NAMES, VALUES, max_size=4),
)
def test_no_value_raises_and_all_that_is_kept_is_whole_lines(
    record: dict[str, Any], forged: dict[str, Any]
) -> None:
    for answer in answers(record | forged):
        if isinstance(answer, CaptureRecord):
            assert answer.content.endswith(b"\n")
            assert answer.kind == "gstream" or answer.content.count(b"\n") == 1
        assert answer == only(record | forged)


@given(st.binary(max_size=200))
def test_no_bytes_raise(body: bytes) -> None:
    answers(body)
    answers(packet(body))


def test_rucio_s_messages_are_kept_short_with_the_time_at_which_they_were_written() -> None:
    """A request's payload has a time of its own, and its reason may be long."""
    fields = {"scope": "cms", "name": "f", "dst-rse": "EDGE"}
    payload = fields | {"created_at": "2020-01-01", "reason": "x" * 9999}
    message = {"event_type": "transfer-done", "payload": payload, "created_at": "2026-03-01 00:00:00.1"}
    assert json.loads(only(message).content) == message | {"payload": fields}
    oddities: tuple[object, ...] = (None, 7, "x" * 9999, {})
    for odd in oddities:
        assert json.loads(only(message | {"created_at": odd}).content)["created_at"] == AT
    huge = message | {"payload": payload | {"name": "x" * 9999, "dst-rse": ["EDGE"]}}
    assert json.loads(only(huge).content)["payload"] == {"scope": "cms"}
    for kind in ("rule_ok", "email", "transfer-" + "x" * 9999, ""):
        assert only(message | {"event_type": kind}) == Refused("other")
    for record in (message | {"event_type": 7}, message | {"payload": "{"}, {"event_type": "transfer-done"}):
        assert only(record) == Refused("other")
