"""Whose reports they are, a server's restart, and reports that are missing."""

from pathlib import Path

import monitoring
from monitoring import Sender, close, opening

from features.common.errors import TargetUnavailable
from prefetch.steward.feed import ALARM_S, Feed, Lost, Report, Restarted, Skipped
from prefetch.target import ServerIdentity
from prefetch.xcache.events import FileClose, frame
from prefetch.xcache.fstream import Packet
from prefetch.xcache.gstream import FolderReader, capture_reader
from prefetch.xcache.rolling import Heartbeat

T = 1_700_000_000


def gstream(pseq: int, lfn: str, *, port: int = 1094, sid: int = 7, stod: int = T) -> bytes:
    return Sender("h", port, "one", "", stod, sid, pseq).gstream(close(lfn, 9, T + 5), ahead=0)


def fstream(pseq: int, lfn: str, *, sid: int = 7, stod: int = T) -> bytes:
    """A datagram with one open."""
    return monitoring.fstream(opening(5, lfn), pseq=pseq, begin=T, end=T + 1, stod=stod, sid=sid)


def written(folder: Path, *datagrams: bytes) -> Path:
    path = folder / "gstream-000000000001-20231114T221320Z.capture.part"
    with path.open("ab") as file:
        file.writelines(frame(T, 1, datagram) for datagram in datagrams)
    return path


def polled_names(feed: Feed) -> list[str]:
    def name(report: Report) -> str:
        if isinstance(report, FileClose):
            return report.lfn
        return f"open {report.opened[0].lfn}" if isinstance(report, Packet) else str(report)

    return [name(report) for report in feed.poll()]


class Server:
    """Who a server says that it is."""

    def __init__(self) -> None:
        self.started_s, self.n_asked, self.fault = T, 0, ""

    def __call__(self) -> ServerIdentity:
        self.n_asked += 1
        if self.fault:
            raise TargetUnavailable(self.fault)
        return ServerIdentity("h", "1094", "one", self.started_s, 1)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_folder_that_nobody_serves_is_believed_whole(tmp_path: Path) -> None:
    written(tmp_path, gstream(1, "/a", port=1, stod=5))
    feed = Feed(capture_reader(tmp_path), lambda: None)
    assert polled_names(feed) == ["/a"] and not feed.is_served


def test_reports_of_other_caches_are_passed_over_and_deafen_nobody(tmp_path: Path) -> None:
    """Also of one that is configured nowhere, and bears the same name on another port."""
    written(tmp_path, fstream(0, "/a"), gstream(1, "/a"))
    feed = Feed(FolderReader(tmp_path), Server())
    assert polled_names(feed) == ["open /a", "/a"]
    other = [gstream(n, "/b", port=2, sid=8, stod=T + 9) for n in range(1, 1200)]
    written(tmp_path, *other, fstream(1, "/b", sid=8, stod=T + 9), fstream(1, "/a"))
    assert polled_names(feed) == [str(Skipped(1000)), "open /a"] and feed.fault is None


def test_two_senders_in_one_name_are_told_and_the_servers_own_is_heard(tmp_path: Path) -> None:
    clock, server = Clock(), Server()
    written(tmp_path, gstream(1, "/a"))
    feed = Feed(FolderReader(tmp_path), server, clock=clock)
    assert polled_names(feed) == ["/a"] and feed.fault is None
    clock.now = 100.0
    written(tmp_path, gstream(1, "/x", stod=T + 50), gstream(1, "/x", stod=T + 60), gstream(2, "/b"))
    assert polled_names(feed) == ["/b"] and server.n_asked == 2
    assert feed.fault is not None and f"one that was started at {T + 60}" in feed.fault
    clock.now += ALARM_S
    assert feed.fault is None
    written(tmp_path, gstream(1, "/c", sid=9))
    assert polled_names(feed) == ["/c"] and feed.fault is not None and "the number 9" in feed.fault


def test_a_restart_that_the_server_confirms_is_told(tmp_path: Path) -> None:
    clock, server = Clock(), Server()
    written(tmp_path, gstream(1, "/a"), fstream(1, "/a"))
    feed = Feed(capture_reader(tmp_path), server, clock=clock)
    assert polled_names(feed) == ["/a", "open /a"]
    clock.now, server.started_s = 100.0, T + 50
    written(tmp_path, gstream(1, "/c", stod=T + 50), fstream(2, "/late"), fstream(1, "/d", stod=T + 50))
    assert polled_names(feed) == [str(Restarted(T + 50)), "/c", "open /d"] and feed.fault is None
    # A server that does not answer is believed as little as before.
    clock.now, server.fault = 200.0, "down"
    written(tmp_path, gstream(1, "/e", stod=T + 90))
    assert polled_names(feed) == []


def test_a_restart_that_is_heard_before_the_server_answers_is_no_second_sender(tmp_path: Path) -> None:
    clock, server = Clock(), Server()
    written(tmp_path, gstream(1, "/a"))
    feed = Feed(capture_reader(tmp_path), server, clock=clock)
    assert polled_names(feed) == ["/a"]
    clock.now, server.fault = 100.0, "starting"
    written(tmp_path, gstream(1, "/b", stod=T + 50))
    assert polled_names(feed) == [] and feed.fault is not None
    server.started_s, server.fault = T + 50, ""
    assert feed.refresh() == Restarted(T + 50) and feed.fault is None
    written(tmp_path, gstream(2, "/c", stod=T + 50), gstream(1, "/d", stod=T + 60))
    assert polled_names(feed) == ["/c"] and feed.fault is not None, "a third one is"


def test_what_was_not_kept_counts_as_lost(tmp_path: Path) -> None:
    written(tmp_path, gstream(1, "/a"), gstream(3, "/b"))
    beats = [Heartbeat(0, 0, False), Heartbeat(2, 3, False), Heartbeat(2, 3, False)]
    feed = Feed(capture_reader(tmp_path), Server(), check=lambda: beats.pop(0))
    assert polled_names(feed) == ["/a", "/b", str(Lost(1))]
    assert polled_names(feed) == [str(Lost(5))] and polled_names(feed) == []


def test_the_newest_captures_are_enough_to_begin_with(tmp_path: Path) -> None:
    for number in range(1, 6):
        body = frame(T, 1, gstream(number, f"/{number}"))
        (tmp_path / f"gstream-{number:012d}-20231114T221320Z.capture").write_bytes(body)
    size = len(body)
    for n_bytes, first in ((10 * size, 1), (2 * size, 4), (0, 6)):
        feed = Feed(FolderReader(tmp_path, newest_bytes=n_bytes), Server())
        names = [name for name in polled_names(feed) if name.startswith("/")]
        assert names == [f"/{number}" for number in range(first, 6)]
