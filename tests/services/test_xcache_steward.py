"""The steward as a service beside a real XCache: killed, restarted, deaf, twice, and with wrong clocks."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import needed
from steward_site import Site, name_of, running
from waiting import eventually

from prefetch.steward.book import Book, Datasets
from prefetch.steward.canary import Canary, OpenFiles
from prefetch.steward.feed import Feed, Readers
from prefetch.steward.follower import Follower
from prefetch.steward.watch import CacheDisk
from prefetch.xcache.gstream import FolderReader
from replay.kernels.heuristics import LRU
from replay.steward import Steward
from replay.steward.order import HeuristicOrder

pytestmark = [pytest.mark.long, pytest.mark.service, pytest.mark.xrootd, pytest.mark.usefixtures("xrootd")]


@pytest.fixture
def site(xrootd: str) -> Iterator[Site]:
    yield from needed("a real XCache", running())


@pytest.mark.every_version
def test_killed_mid_eviction_it_goes_on_and_follows_a_cache_that_restarts(site: Site) -> None:
    """Above 20 files the cache purges by itself; before 5.8 also when it starts, to 8 in any case."""
    names = site.files("a", 34)
    site.reported(*site.read_all(names[:18]))
    with site.reading(names[0]):
        first = site.steward()
        assert eventually(lambda: len(site.held()) < 18)
        first.kill()
        first.wait()
        site.read_all(names[18:20])
        second = site.steward()
        assert f"another steward of cache 'cache' (process {second.pid})" in site.refused()
        for name in names[20:]:
            assert site.makes_room(18), site.held()
            site.read(name)
        assert eventually(lambda: 8 < len(site.held()) <= 15), site.held()
        assert name_of(names[0]) in site.held()  # the oldest of all, and open
    site.servers.restart_cache()
    if site.target.server_version().purges_at_start:
        assert eventually(lambda: len(site.held()) <= 8), site.held()

    def follows() -> bool:
        """The last reads are held, old files gone. A read that is reported late may have to come again."""
        for name in names[:8]:
            if name_of(name) not in site.held():
                site.read(name)
        return {name_of(name) for name in names[:8]} <= site.held() and len(site.held()) <= 15

    assert eventually(follows)
    site.stop(second)
    assert second.returncode == 0
    assert not site.figures_file.exists()


def test_what_was_not_reported_is_found_in_the_namespace(site: Site) -> None:
    names = site.files("b", 18)
    site.reported(*site.read_all(names[:2]))
    site.steward()
    site.stop(site.collector)
    with site.reading(names[2]):
        site.read_all(names[3:17])
        time.sleep(1.1)  # the cache tells times of use to the second
        site.read(names[17])
        time.sleep(2.5)  # its report is sent, and nobody is there
        assert eventually(lambda: "steward-blind" in site.figures.alarms)
        assert "no collector writes" in site.figures.alarms["steward-blind"] and len(site.held()) == 18
        site.collect()
        assert site.makes_room()
        assert {name_of(names[2]), name_of(names[17])} <= site.held()


def test_a_wrong_clock_is_told_and_removes_no_open_file(
    site: Site, clock_shift: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("LD_PRELOAD", str(clock_shift))
        patched.setenv("CLOCK_SHIFT_S", "-3600")
        site.servers.restart_cache()
    names = site.files("c", 20)
    site.reported(*site.read_all(names[:2]))
    with site.reading(names[0]):
        site.steward()
        site.read_all(names[2:])
        assert site.makes_room()
        assert name_of(names[0]) in site.held()
        assert eventually(lambda: "s behind ours" in site.figures.alarms.get("steward-clock", ""))


class Told(HeuristicOrder):
    """LRU that keeps who read what."""

    def __init__(self) -> None:
        super().__init__(LRU)
        self.readers: dict[int, set[int]] = {}

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        self.readers.setdefault(file, set()).add(reader)
        super().read(file, reader, at_s, is_held=is_held)


def test_reads_have_the_reader_that_the_server_reports(site: Site) -> None:
    """By what a real server sends: two users, and work that a client names; short reads, closed at once."""
    names = site.files("u", 5)
    site.read(names.pop())
    site.reported("/store/mc/u04.root")  # from its first report on, a server is known to report opens
    time.sleep(2.5)
    for user, name in zip(("alice", "alice", "bob", "carol"), names, strict=True):
        url = site.servers.cache_url.replace("//", f"//{user}@")
        subprocess.run(["xrdcp", "-f", f"{url}/{name}", "/dev/null"], check=True, capture_output=True)
    order = Told()
    steward = Steward(order, capacity_bytes=10**9)
    book = Book(steward, Datasets())
    feed = Feed(FolderReader(site.captures), site.target.identity)
    opens = OpenFiles(Path("/"))
    follower = Follower(
        book,
        ours_last_s=60,
        disk=CacheDisk(site.target, opens, Canary(site.target, opens, timeout_s=60)),
        readers=Readers(["user"]),
        reports_opens=lambda: feed.reports_opens,
    )

    def is_told() -> bool:
        for report in feed.poll():
            follower.apply(report, time.time())
        follower.count_long_opens(time.time())
        return all(order.readers.get(file) for file in book.known(names)) and len(book) == 5

    assert eventually(is_told)
    one, two, three, four = (order.readers[file] for file in book.known(names))
    assert one == two and len(one) == len(three) == len(four) == 1
    assert len(one | three | four) == 3 and 0 not in one | three | four
