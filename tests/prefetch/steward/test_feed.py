"""Whose reports they are, a server's restart, and reports that are missing."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import pytest

from features.errors import InputError
from prefetch.steward.feed import Feed, Lost, Report, Restarted
from prefetch.xcache.captures import FolderReader, capture_reader
from prefetch.xcache.collector import frame
from prefetch.xcache.events import FileClose
from prefetch.xcache.fstream import Packet, decode
from prefetch.xcache.gstream import CaptureReader

T = 1_700_000_000


def gstream(pseq: int, lfn: str, *, inst: str = "one", sid: int = 7, stod: int = T) -> bytes:
    header = {"code": "g", "pseq": pseq, "stod": stod, "sid": sid, "src": {"host": "h", "inst": inst}}
    numbers = {"size": 9, "blk_size": 9, "n_blks": 1, "n_blks_done": 1, "access_cnt": 1, "b_hit": 9}
    times = {"b_miss": 0, "b_bypass": 0, "attach_t": T, "detach_t": T + 5}
    record = {"event": "file_close", "lfn": lfn, "remotes": []} | numbers | times
    return "\n".join(map(json.dumps, (header | {"gs": {"type": "C"}}, record))).encode()


def fstream(pseq: int, lfn: str, *, sid: int = 7, stod: int = T) -> bytes:
    """A datagram with one open."""
    window = struct.pack(">iiQ", T, T + 1, sid)
    name = struct.pack(">qI", 9, 0) + lfn.encode() + b"\0"
    records = [(2, 0, 0, window), (1, 1, 5, name)]
    body = b"".join(struct.pack(">BBHI", k, f, 8 + len(b), n) + b for k, f, n, b in records)
    return struct.pack(">cBHi", b"f", pseq, 8 + len(body), stod) + body


def written(folder: Path, *datagrams: bytes) -> Path:
    path = folder / "gstream-000000000001-20231114T221320Z.capture.part"
    with path.open("ab") as file:
        file.writelines(frame(T, 1, datagram) for datagram in datagrams)
    return path


def told(feed: Feed) -> list[str]:
    def name(report: Report) -> str:
        if isinstance(report, FileClose):
            return report.lfn
        return f"open {report.opened[0].lfn}" if isinstance(report, Packet) else str(report)

    return [name(report) for report in feed.poll()]


def test_both_streams_come_in_the_order_received(tmp_path: Path) -> None:
    written(tmp_path, fstream(0, "/a"), gstream(1, "/a"))
    feed = Feed(capture_reader(tmp_path))
    assert told(feed) == ["open /a", "/a"] and feed.sees_opens
    assert told(feed) == []


def test_a_shared_folder_gives_each_cache_its_own(tmp_path: Path) -> None:
    """Opens name no cache: they wait until a close of the same server names it."""
    written(tmp_path, fstream(0, "/a"), fstream(0, "/b", sid=8), gstream(1, "/b", inst="two", sid=8))
    one, two = (Feed(FolderReader(tmp_path), name) for name in ("one", "two"))
    assert (told(one), told(two)) == ([], ["open /b", "/b"])
    assert (one.sees_opens, two.sees_opens) == (False, True)
    written(tmp_path, gstream(1, "/a"))
    assert (told(one), told(two)) == (["open /a", "/a"], [])


def test_a_restart_and_lost_reports_are_told(tmp_path: Path) -> None:
    written(tmp_path, gstream(1, "/a"), gstream(3, "/b"))
    feed = Feed(capture_reader(tmp_path))
    assert told(feed) == ["/a", "/b", str(Lost(1))]
    written(tmp_path, fstream(4, "/a"), fstream(6, "/b"))
    assert told(feed) == ["open /a", "open /b", str(Lost(1))]
    written(tmp_path, gstream(1, "/c", stod=T + 50), fstream(7, "/late"))
    assert told(feed) == [str(Restarted(T + 50)), "/c"]
    assert not feed.sees_opens


def test_a_capture_keeps_a_datagram_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, fstream(3, "/a\0"))
    kept = json.loads(path.read_bytes().split(b"\n")[1])
    assert decode(base64.b64decode(kept["data"])) == decode(fstream(3, "/a\0"))
    reader = CaptureReader(path)
    assert list(reader.poll()) == [] and reader.n_malformed == 0
    with path.open("ab") as file:
        for bad in ("!", base64.b64encode(b"f\0\0\x08").decode()):
            body = json.dumps({"code": "f", "data": bad}).encode() + b"\n"
            file.write(b"@@%d 1 %d\n%s" % (T, len(body), body))
    assert list(reader.events()) == [] and reader.n_malformed == 2


def test_the_newest_captures_are_enough_to_begin_with(tmp_path: Path) -> None:
    for number in range(1, 6):
        body = frame(T, 1, gstream(number, f"/{number}"))
        (tmp_path / f"gstream-{number:012d}-20231114T221320Z.capture").write_bytes(body)
    size = len(body)
    for n_bytes, first in ((10 * size, 1), (2 * size, 4), (0, 6)):
        feed = Feed(FolderReader(tmp_path, newest_bytes=n_bytes))
        names = [name for name in told(feed) if name.startswith("/")]
        assert names == [f"/{number}" for number in range(first, 6)]


def test_captures_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        told(Feed(CaptureReader(tmp_path / "none")))
