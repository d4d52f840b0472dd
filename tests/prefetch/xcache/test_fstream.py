"""The f-stream and the records that name users: of real servers, and of nobody's making."""

import base64
import contextlib
import csv
import gzip
import json
import struct
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from monitoring import closing, fstream, opening, users

from features.common.errors import InputError
from prefetch.xcache.events import frame
from prefetch.xcache.fstream import MAX_CHARS, Closed, Login, Opened, Packet, Work, decode, decode_session
from prefetch.xcache.fstream_capture import Access, Fault, FstreamReader
from prefetch.xcache.gstream import CaptureReader

STOD = 1_700_000_000
BEGIN = STOD + 100


def packet(*records: bytes, begin: int = BEGIN, end: int = BEGIN + 10, pseq: int = 0, cut: int = 0) -> bytes:
    datagram = fstream(*records, pseq=pseq, begin=begin, end=end, stod=STOD, sid=7)
    return datagram[: len(datagram) - cut]


def line(datagram: bytes, remote: str = "10.0.0.1:40000") -> str:
    return json.dumps({"remote": remote, "version": "1", "data": base64.b64encode(datagram).decode()}) + "\n"


def read_all(tmp_path: Path, *datagrams: bytes) -> tuple[FstreamReader, list[Access], list[str]]:
    path = tmp_path / "packets.jsonl"
    path.write_text("".join(map(line, datagrams)))
    reader = FstreamReader()
    items = [*reader.read(path), *reader.unfinished()]
    faults = [item.reason for item in items if isinstance(item, Fault)]
    return reader, [item for item in items if isinstance(item, Access)], faults


def as_decoded(access: Access) -> dict[str, str]:
    """An access as the decoded file of the real packets shows it."""
    opened, closed = access.opened, access.closed
    return {
        "time": f"{opened.at_us / 1e6:.3f}",
        "win_beg": str(access.begin_s),
        "win_end": str(access.end_s),
        "lfn": opened.lfn,
        "size": str(opened.size_bytes),
        "user_id": str(opened.user_id),
        "file_id": str(opened.file_id),
        "read": str(closed.read_bytes) if closed else "",
        "readv": str(closed.readv_bytes) if closed else "",
        "close_time": f"{closed.at_us / 1e6:.3f}" if closed else "",
    }


def test_real_packets_give_the_accesses_decoded_from_them_by_others(data: Path) -> None:
    reader = FstreamReader()
    items = list(reader.read(data / "osdf_fstream_packets.jsonl.gz"))
    accesses = [as_decoded(item) for item in (*items, *reader.unfinished()) if isinstance(item, Access)]
    with gzip.open(data / "osdf_fstream_decoded.csv.gz", "rt") as stream:
        expected = list(csv.DictReader(stream))

    def place(row: dict[str, str]) -> list[str]:
        return [row["win_beg"], row["file_id"]]

    assert sorted(accesses, key=place) == sorted(expected, key=place)
    assert len(accesses) == 2219
    faults = [item.reason for item in items if isinstance(item, Fault)]
    assert set(faults) == {"close without its open"} and len(faults) == 94
    # 125-126, 140-141, 150-151 and 175-176 of one server are there, 55 and 59 of the other.
    assert reader.n_lost == 13 + 8 + 23 + 3


@pytest.mark.parametrize("tail", [b"", bytes(48), bytes(80)], ids=["bytes", "with ops", "with squares"])
def test_records_lie_in_the_middle_of_their_share_of_the_window(tail: bytes) -> None:
    session_end = struct.pack(">BBHI", 4, 0, 8, 5)
    transfer = struct.pack(">BBHIqqq", 3, 0, 32, 1, 5, 0, 0)
    decoded = decode(
        packet(opening(1), session_end, opening(2, flags=3), transfer, closing(1, tail=tail), closing(2))
    )
    at = [(BEGIN * 1000 + ms) * 1000 for ms in (1250, 3750, 6250, 8750)]
    assert decoded == Packet(
        stod=STOD,
        pseq=0,
        server_id=7,
        begin_s=BEGIN,
        end_s=BEGIN + 10,
        opened=(Opened(at[0], 1, 5, 1000, "/store/x", False), Opened(at[1], 2, 5, 1000, "/store/x", True)),
        closed=(Closed(at[2], 1, 10, 20, 0), Closed(at[3], 2, 10, 20, 0)),
        n_unknown=0,
        n_cut=0,
    )


def test_an_open_without_a_name_and_a_window_without_the_servers_id_are_read() -> None:
    short = struct.pack(">BBHHHii", 2, 0, 16, 0, 1, BEGIN, BEGIN) + struct.pack(">BBHIq", 1, 0, 16, 9, 77)
    decoded = decode(struct.pack(">cBHi", b"f", 1, 8 + len(short), STOD) + short)
    assert decoded.opened == (Opened(BEGIN * 1_000_000, 9, 0, 77, "", False),)
    assert decoded.server_id == 0


def test_an_access_has_what_its_session_works_for(tmp_path: Path) -> None:
    name = "xroot/pilot.7177:7@wn1.pic.es"
    job = "162_https://glidein.cern.ch/162/190501:101553:jdoe:crab:Muon_0"
    datagrams = [
        users(b"u", f"{name}\n&p=gsi&n=jdoe", 5, stod=STOD),
        packet(opening(1)),
        users(b"i", f"{name}\n{job}", 9, stod=STOD),
        users(b"i", "xroot/other.1:7@wn2.pic.es\nanother", 10, stod=STOD),
        users(b"i", f"{name}\n{job}", 9, stod=STOD + 1),
        packet(closing(1), opening(2), pseq=1),
    ]
    _, accesses, faults = read_all(tmp_path, *datagrams)
    assert [(access.opened.file_id, access.work) for access in accesses] == [(1, job), (2, job)]
    assert not faults
    _, (nobody, _), _ = read_all(tmp_path, datagrams[0], datagrams[1], *datagrams[3:])
    assert nobody.work == ""


def test_what_gives_no_access_is_told(tmp_path: Path) -> None:
    other = struct.pack(">cBHi", b"u", 0, 12, STOD) + bytes(4)
    unknown = struct.pack(">BBHI", 9, 0, 8, 0)
    windowless = struct.pack(">cBHi", b"f", 0, 8, STOD)
    first = packet(opening(1), unknown, pseq=1)
    reader, accesses, faults = read_all(
        tmp_path, first, first, other, windowless, b"", b"\xff" * 9, packet(closing(2), opening(3), cut=3)
    )
    assert [access.opened.file_id for access in accesses] == [1]
    assert faults == [
        "unknown record",
        "datagram sent twice",
        *["malformed datagram"] * 4,
        "close without its open",
        "record cut short",
    ]
    assert reader.n_lost == 0


def test_a_number_used_again_leaves_the_earlier_open_unfinished(tmp_path: Path) -> None:
    _, accesses, _ = read_all(tmp_path, packet(opening(1, "/a"), opening(1, "/b"), closing(1)))
    assert [(at.opened.lfn, at.closed is not None) for at in accesses] == [("/a", False), ("/b", True)]


def test_servers_and_their_lives_count_for_themselves(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(line(packet(opening(1))) + line(packet(closing(1)), "10.0.0.2:40000"))
    reader = FstreamReader()
    (fault,) = reader.read(tmp_path / "x")
    assert (fault.reason, fault.sample) == ("close without its open", f"10.0.0.2:40000 {STOD} pseq 0 file 1")
    assert len(list(reader.unfinished())) == 1


def test_a_capture_that_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(line(packet(opening(1))).encode() * 50)[:-20])
    for name in ("none", "cut.gz"):
        with pytest.raises(InputError, match=name):
            list(FstreamReader().read(tmp_path / name))


RECORDS = st.one_of(
    st.binary(max_size=60),
    st.builds(opening, st.integers(0, 3), st.text(max_size=20), size=st.integers(-(2**63), 2**63 - 1)),
    st.builds(closing, st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)),
)
DATAGRAMS = st.one_of(
    st.binary(max_size=100),
    st.builds(
        lambda records, begin, end, pseq, cut: packet(*records, begin=begin, end=end, pseq=pseq, cut=cut),
        st.lists(RECORDS, max_size=6),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
        st.integers(0, 255),
        st.integers(0, 40),
    ),
)


@settings(deadline=None)
@given(st.lists(DATAGRAMS, max_size=5))
def test_any_datagrams_give_accesses_and_faults(
    tmp_path_factory: pytest.TempPathFactory, datagrams: list[bytes]
) -> None:
    reader, accesses, faults = read_all(tmp_path_factory.mktemp("fuzz"), *datagrams)
    assert reader.n_lost >= 0
    n_opened = 0
    for datagram in datagrams:
        with contextlib.suppress(InputError):
            n_opened += len(decode(datagram).opened)
    assert len(accesses) == n_opened or "datagram sent twice" in faults
    assert not any(b"\0" in access.opened.lfn.encode() for access in accesses)


LOGIN_STOD, SERVER, HOST = 0x6B036137, 26639589911912, "26639589911912@[::ffff:127.0.0.1]"
# `xrootd.monitor all auth … dest fstat user info …`, without and with `sec.protocol unix`.
PLAIN = f"xroot/nobody.6923:{HOST}\n&R=v5.5.3&x=task-42&y=&I=4"
UNIX = (
    f"xroot/pilot.7177:{HOST}\n&p=unix&n=alice&h=[::ffff:127.0.0.1]&o=&r=&g=root&m=&R=v5.5.3&x=xrdcp&y=&I=4"
)
JOB = f"xroot/root.7136:{HOST}\ncrab:job 17"


session = partial(users, stod=LOGIN_STOD)


@pytest.mark.parametrize(("text", "user"), [(PLAIN, "nobody"), (UNIX, "alice")])
def test_a_login_has_the_name_that_was_authenticated_else_that_of_the_client(text: str, user: str) -> None:
    assert decode_session(session(b"u", text, 3)) == Login(
        LOGIN_STOD, SERVER, 3, text.partition("\n")[0], user
    )


@pytest.mark.parametrize(
    ("text", "user"),
    [
        (f"a.b:1@c/d.1:5@e.22:{HOST}", "d.1:5@e"),
        (f"x.1:{HOST}\n&R=v5&y=\n&p=gsi&n=root", "x"),
        (f"{'x' * (MAX_CHARS + 1)}.1:{HOST}", ""),
        (f".1:{HOST}", ""),
    ],
)
def test_names_that_clients_make_up_are_only_names(text: str, user: str) -> None:
    login = decode_session(session(b"u", text))
    assert isinstance(login, Login) and login.user == user and login.server_id == SERVER


@pytest.mark.parametrize("bad", [b"", b"u\1\0\x0c", session(b"f", PLAIN), session(b"u", "nobody"), b"u" * 99])
def test_what_names_no_session_is_an_input_error(bad: bytes) -> None:
    with pytest.raises(InputError):
        decode_session(bad)


@given(st.binary(max_size=200), st.sampled_from([b"u", b"i", b"f", b"\xff"]))
def test_any_bytes_give_a_name_or_an_input_error(body: bytes, code: bytes) -> None:
    for content in (body, session(code, body), session(code, b"a.1:2@" + body)):
        with contextlib.suppress(InputError):
            assert isinstance(decode_session(content), Login | Work)


def test_a_capture_keeps_names_beside_the_streams(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    # Also of another stream: a text in its header that is no ASCII would end who follows it.
    bad = [{"code": "u", "data": base64.b64encode(b"u").decode()}, {"code": "f", "data": "é"}]
    lines = [session(b"u", UNIX), *(json.dumps(header).encode() for header in bad), session(b"i", JOB)]
    path.write_bytes(b"".join(frame(1, 1, each) for each in lines))
    reader = CaptureReader(path)
    assert [type(event) for event in reader.events()] == [Login, Work]
    assert (reader.n_malformed, reader.n_lost) == (2, 0)


def test_sessions_of_any_length_that_anyone_can_make_up_take_little_memory(tmp_path: Path) -> None:
    reader, path = FstreamReader(), tmp_path / "capture.jsonl"
    long = f"{'x' * 60_000}.1:{HOST}"
    named = [session(b"u", long, 1), session(b"i", f"{long}\njob", 2)]
    lines = [{"remote": "h:1", "data": base64.b64encode(datagram).decode()} for datagram in named]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert list(reader.read(path)) == []
    assert len(reader._known) == 2 and len(str(reader._known)) < 4 * MAX_CHARS
