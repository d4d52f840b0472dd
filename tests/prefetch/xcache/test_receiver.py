"""Datagrams that are received, counted and kept in files that roll."""

import json
import socket
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.common.errors import InputError, ServiceError
from prefetch.xcache.events import frame, is_kept, read_datagram
from prefetch.xcache.gstream import MAX_SENDERS, CaptureReader, Numberings
from prefetch.xcache.receiver import COUNTS, Receiver, listening
from prefetch.xcache.rolling import Quota, RollingFiles

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner)),
    max_leaves=4,
)
HEADERS = st.fixed_dictionaries(
    {
        "code": st.sampled_from(["g", "=", "f"]),
        "pseq": VALUES | st.integers(0, 2000),
        "stod": st.integers(1, 5),
    },
    optional={"sid": st.integers(1, 3), "src": VALUES | st.just({"host": "h"}), "gs": st.just({"type": "C"})},
)
DATAGRAMS = st.one_of(
    st.binary(max_size=200), HEADERS.map(lambda header: json.dumps(header).encode() + b"\n{}\0")
)


def received(folder: Path, datagrams: list[bytes], quota_bytes: int = 10**6) -> Receiver:
    files = RollingFiles(folder, roll_bytes=10**6, roll_s=3600)
    receiver = Receiver(files, Quota(folder, quota_bytes), host="127.0.0.1", port=0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, ("127.0.0.1", receiver.port))
    receiver.run(lambda: True, report_every_s=60, report=lambda: None)
    files.close()
    return receiver


@settings(max_examples=10, deadline=None)
@given(st.lists(DATAGRAMS, max_size=20))
def test_any_datagrams_are_kept_or_counted(
    tmp_path_factory: pytest.TempPathFactory, datagrams: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("captures")
    for _ in range(2):  # the second one takes up where the first one ended
        counts = received(folder, datagrams).counts
        assert (counts["datagrams"], counts["dropped"]) == (len(datagrams), 0)
        assert counts["bytes"] == sum(map(len, datagrams))
        assert set(counts) == set(COUNTS)
        n_kept = len(datagrams) - sum(counts[name] for name in ("malformed", "other", "over_quota"))
        assert n_kept == sum(map(kept_by_captures, datagrams))
    content = b"".join(path.read_bytes() for path in folder.glob("*.capture"))
    assert content.count(b"@@") == 2 * n_kept
    assert counts["held_bytes"] == len(content)


def kept_by_captures(datagram: bytes) -> bool:
    try:
        return is_kept(read_datagram(datagram))
    except InputError:
        return False


def event(pseq: int) -> bytes:
    header = {"code": "g", "pseq": pseq, "stod": 1, "sid": 1, "src": {"host": "h"}, "gs": {"type": "C"}}
    return json.dumps(header).encode() + b"\n" + b"x" * 100 + b"\0"


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\0",
        b"\xff" * 1000,
        b"x" * 60_000,
        b"{}",
        b"[" * 60_000,
        b'{"src": ' * 5000,
        b"f\1\0\x10\0\0\0\1",
        event(1).replace(b'"h"', b'"' + b"h" * 5000 + b'"'),
        event(1).replace(b'"h"', b'"' + b"h" * 256 + b'"'),
        event(1).replace(b'"g"', b'"="'),
    ],
)
def test_what_no_reader_takes_is_counted_and_not_kept(tmp_path: Path, garbage: bytes) -> None:
    counts = received(tmp_path, [garbage] * 3 + [event(1)]).counts
    assert (counts["datagrams"], counts["malformed"] + counts["other"]) == (4, 3)
    (path,) = tmp_path.glob("*.capture")
    assert path.read_bytes().count(b"@@") == 1


def test_a_quota_sees_what_others_delete_but_does_not_look_all_the_time(tmp_path: Path) -> None:
    now = [0.0]
    old = tmp_path / "gstream-000000000001-20231114T221320Z.capture"
    old.write_bytes(b"x" * 90)
    quota = Quota(tmp_path, 100, clock=lambda: now[0])
    assert quota.admits(10) and not quota.admits(1)
    old.unlink()
    assert not quota.admits(1)
    now[0] = 1.0
    assert quota.admits(100) and not quota.admits(1)
    (tmp_path / "other").write_bytes(b"x" * 1000)
    now[0] = 2.0
    assert quota.admits(100)


@pytest.mark.parametrize("flood", [b"x", event(1)])
def test_a_file_is_finished_in_its_time_while_nothing_is_kept(tmp_path: Path, flood: bytes) -> None:
    files = RollingFiles(tmp_path, roll_bytes=10**6, roll_s=1)
    quota = Quota(tmp_path, 300)
    receiver = Receiver(files, quota, host="127.0.0.1", port=0)
    ends_at = time.monotonic() + 60
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(event(1), ("127.0.0.1", receiver.port))

        def stopping() -> bool:
            sender.sendto(flood, ("127.0.0.1", receiver.port))
            return bool(list(tmp_path.glob("*.capture"))) or time.monotonic() > ends_at

        receiver.run(stopping, report_every_s=60, report=lambda: None)
    files.close()
    assert time.monotonic() < ends_at


def test_it_ends_in_time_while_datagrams_keep_coming(tmp_path: Path) -> None:
    files = RollingFiles(tmp_path, roll_bytes=10**6, roll_s=3600)
    receiver = Receiver(files, Quota(tmp_path, 10**6), host="127.0.0.1", port=0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:

        def stopping() -> bool:
            sender.sendto(b"x", ("127.0.0.1", receiver.port))
            return receiver.counts["datagrams"] > 50

        sender.sendto(b"x", ("127.0.0.1", receiver.port))
        began = time.monotonic()
        receiver.run(stopping, report_every_s=60, report=lambda: None)
    files.close()
    assert time.monotonic() - began < 20, "less than a second for each"


def opens(pseq: int, code: bytes = b"f") -> bytes:
    """A datagram of the f-stream with its window only."""
    record = struct.pack(">BBHIiiQ", 2, 0, 24, 0, 1, 2, 7)
    return struct.pack(">cBHi", code, pseq, 8 + len(record), 1) + record


def test_the_f_stream_is_kept_beside_the_g_stream_and_counted(tmp_path: Path) -> None:
    datagrams = [opens(255), event(1), opens(2), opens(3, b"t"), opens(4)[:-1], b"f\1\0\x08\0\0\0\1"]
    counts = received(tmp_path, datagrams).counts
    assert (counts["lost"], counts["other"], counts["malformed"]) == (2, 1, 2)
    (path,) = tmp_path.glob("*.capture")
    kinds = [type(each).__name__ for each in CaptureReader(path).events()]
    assert kinds == ["Packet", "ReportSender", "Packet"]
    # What a collector misses while it is down shows when it is back.
    assert received(tmp_path, [opens(9)]).counts["lost"] == 6


NOW = 1_700_000_000


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def rolling(folder: Path, *, roll_bytes: int = 10**6, roll_s: int = 3600) -> RollingFiles:
    return RollingFiles(folder, roll_bytes=roll_bytes, roll_s=roll_s)


def test_a_file_is_finished_by_size_by_time_and_at_the_end(tmp_path: Path) -> None:
    files = rolling(tmp_path, roll_bytes=100, roll_s=60)
    for now_s, size in ((0, 60), (1, 60), (2, 40), (70, 10), (50, 10), (51, 500)):
        files.append(b"x" * size, NOW + now_s)
    files.roll(NOW + 200)
    files.append(b"last", NOW + 201)
    files.close()
    assert [(tmp_path / name).stat().st_size for name in files_in(tmp_path)] == [60, 100, 10, 10, 500, 4]
    assert files_in(tmp_path)[0] == "gstream-001700000000-20231114T221320Z.capture"


def test_without_a_frame_there_is_no_file(tmp_path: Path) -> None:
    files = rolling(tmp_path)
    files.roll(NOW)
    files.close()
    assert not files_in(tmp_path)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99999), ("x..y", 0), ("\udcff", 0)], ids=ascii)
def test_where_nobody_can_listen_is_a_service_error(host: str, port: int) -> None:
    with pytest.raises(ServiceError, match="cannot listen on UDP"):
        listening(host, port)


def test_a_folder_that_is_gone_is_a_service_error(tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    files = rolling(folder)
    folder.rmdir()
    with pytest.raises(ServiceError, match="captures"):
        files.append(b"x", NOW)
    files.close()


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=50)), max_size=12),
    st.integers(1, 120),
)
def test_nothing_is_lost_or_put_in_another_order(
    tmp_path_factory: pytest.TempPathFactory, frames: list[tuple[int, bytes]], roll_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("captures")
    files = rolling(folder, roll_bytes=roll_bytes, roll_s=60)
    framed = [(NOW + at, frame(NOW, 1, body)) for at, body in frames]
    for now_s, content in framed:
        files.append(content, now_s)
    files.close()
    written = b"".join((folder / name).read_bytes() for name in files_in(folder))
    assert written == b"".join(content for _, content in framed)


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), max_size=30), st.integers(0, 99))
def test_numbers_left_out_are_lost_ones(steps: list[int], first: int) -> None:
    """Against a plain count: the senders' steps, each of which leaves out all but one."""
    numberings, number = Numberings(), first
    numberings.note("a", number, 100)
    for step in steps:
        number += step
        numberings.note("a", number % 100, 100)
        numberings.note("other", 5, 100)
    assert numberings.n_lost == sum(steps) - len(steps)


def test_senders_that_anyone_can_make_up_take_no_more_memory() -> None:
    numberings = Numberings()
    for sender in range(MAX_SENDERS + 50):
        numberings.note(sender, 1, 256)
    assert len(numberings._last) == MAX_SENDERS


def test_lines_are_whole_and_on_the_disk_after_a_sync(tmp_path: Path) -> None:
    left = tmp_path / "closes-000000000001-20231114T221320Z.jsonl.part"
    left.write_bytes(b'{"a": 1}\n{"b"')
    files = RollingFiles(tmp_path, roll_bytes=30, roll_s=60, form=("closes", ".jsonl"))
    for number in range(4):
        files.append(b'{"number": %d}\n' % number, NOW)
        files.sync()
    assert files_in(tmp_path)[-1].endswith(".jsonl.part")
    files.close()
    assert files_in(tmp_path)[0] == left.with_suffix("").name and files.n_recovered == 1
    contents = [(tmp_path / name).read_bytes() for name in files_in(tmp_path)]
    assert contents[0] == b'{"a": 1}\n'
    assert b"".join(contents[1:]) == b"".join(b'{"number": %d}\n' % number for number in range(4))
    assert len(contents) == 3
