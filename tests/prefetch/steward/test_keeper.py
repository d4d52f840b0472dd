"""A steward beside a folder and beside a real XCache: what it evicts, keeps, and learns anew."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import xcache_server
from daemons import needed
from waiting import PATIENCE_S, eventually

from features.common.errors import ServiceError, TargetUnavailable
from jobs.local_site.demo.site import MARKS
from jobs.local_site.demo.xcache import XCache
from jobs.local_site.local.daemon import Daemon
from prefetch.directory import DirectoryTarget
from prefetch.push.attempt import PushLimits
from prefetch.steward import canary
from prefetch.steward import keeper as keeper_module
from prefetch.steward.book import Book, Datasets, listed
from prefetch.steward.canary import OpenFiles
from prefetch.steward.evictions import Marks
from prefetch.steward.feed import Feed
from prefetch.steward.figures import Evicted
from prefetch.steward.fill import DataDisks
from prefetch.steward.keeper import PLANNED, Keeper, Limits
from prefetch.steward.lists import Lists
from prefetch.steward.watch import LiveCache
from prefetch.target import CacheTarget
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.gstream import capture_reader
from replay.steward import Steward, new_order

SIZE = 128 * 1024
CAPACITY = 20 * SIZE
LIMITS = Limits(Marks(0.5, 1.0, 60.0), PushLimits(attempts=1, evict_guard_s=0, timeout_s=10, breaker=3), 60.0)
# Half of what lies between the watermarks stays free until more is known.
TARGET = 15 * SIZE


@dataclasses.dataclass
class World:
    """A cache, and how a job reads a file through it."""

    target: CacheTarget
    origin: Path
    root: Path
    gstream: Path
    read: Callable[[str], object]
    lists: Lists = dataclasses.field(default_factory=lambda: Lists((), ()))
    journal_fault: str = ""
    answers: threading.Event = dataclasses.field(default_factory=threading.Event)
    server: Daemon | None = None

    def __post_init__(self) -> None:
        self.answers.set()

    def files(self, what: str, n_files: int) -> list[str]:
        names = [f"/store/{what}/{number:02}.root" for number in range(n_files)]
        for name in names:
            path = self.origin / name[1:]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * SIZE)
        return names

    def read_files(self, what: str, n_files: int) -> list[str]:
        """New files, each read once."""
        names = self.files(what, n_files)
        for name in names:
            self.read(name)
        return names

    def steward(
        self, usage: DataDisks | None = None, meanwhile: Callable[[], object] = lambda: None
    ) -> Keeper:
        """`meanwhile`: what happens between the walk and the beginning."""
        steward = Steward(new_order("lru", CAPACITY, None), capacity_bytes=CAPACITY)
        listing = listed(self.target, now_s=time.time())
        meanwhile()
        return Keeper(
            LiveCache(
                self.target,
                Feed(capture_reader(self.gstream), self.target.identity),
                usage or DataDisks(CAPACITY, self.root),
                OpenFiles(self.root),
            ),
            Book(steward, Datasets(), listing=listing),
            listing,
            lists=self._listed,
            limits=LIMITS,
        )

    def held(self, names: list[str]) -> list[str]:
        return [name for name in names if self.target.confirm(name).held is not None]

    def until_closed(self, names: list[str]) -> None:
        """A server closes its file on disk some time after the job that read it."""
        opens = OpenFiles(self.root)
        assert eventually(lambda: not any(map(opens.has, names)))

    def until(self, keeper: Keeper, so: Callable[[], bool]) -> None:
        ends = time.monotonic() + PATIENCE_S
        while not so() and time.monotonic() < ends:
            keeper.step(0.2)
        assert so(), (keeper.figures(), keeper.alarms)

    def _listed(self, _times_s: Sequence[float]) -> Lists:
        self.answers.wait(60)
        if self.journal_fault:
            raise ServiceError(self.journal_fault)
        return self.lists


class Empty(DataDisks):
    """A disk that shows nothing of its files, as a file system does that keeps small ones in its inodes."""

    def used_bytes(self, held_bytes: int, growing: Iterable[tuple[str, int]]) -> int:
        return 0


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A folder, or a real server where a test asks for one."""
    if getattr(request, "param", "directory") == "directory":
        origin = tmp_path / "origin"
        origin.mkdir()
        folder = DirectoryTarget("xc", origin, tmp_path / "cache")
        folder.gstream.touch()
        yield World(folder, origin, folder.namespace, folder.gstream, folder.read)
        return
    for site, capture in needed("a real XCache", xcache_server.running()):
        target = XCacheTarget("xc", site.cache_url, site.namespace, capture)
        read = XCache(site, capture, MARKS).read_and_settle
        yield World(target, site.origin_root, site.namespace, capture, read, server=site.cache)


def test_a_disk_that_is_mounted_after_the_walk_is_walked_again(world: World, tmp_path: Path) -> None:
    """As at boot: no report tells of what lies there, and the next inventory is due in a day."""
    world.read_files("m", 5)
    world.gstream.write_text("")
    held, aside = world.root / "store", tmp_path / "not mounted"
    held.rename(aside)
    with world.steward(meanwhile=lambda: aside.rename(held)) as keeper:
        world.until(keeper, lambda: keeper.figures().held_files == 5)


@pytest.mark.parametrize(
    "world", ["directory", pytest.param("xcache", marks=pytest.mark.service)], indirect=True
)
def test_the_oldest_go_until_there_is_room_but_no_pin_and_evictions_first(world: World) -> None:
    names = world.read_files("a", 6)
    world.until_closed(names)
    time.sleep(1.1)  # reads of one second have no order among them
    names += world.read_files("b", 13)
    world.lists = Lists({names[0]}, [names[17]])
    world.until_closed(names)
    with world.steward() as keeper:
        world.until(keeper, lambda: keeper.figures().held_files == 15)
        figures = keeper.figures()
        assert (figures.evicted_files, figures.evicted_bytes, figures.kept) == (4, 4 * SIZE, 0)
        assert figures.used_bytes == figures.target_bytes == TARGET and not keeper.alarms
        assert figures.evicted_bytes_hour == 4 * SIZE and figures.high_bytes == CAPACITY
        order = f"next in the order {figures.following}"
        assert figures.last_hour == {PLANNED: Evicted(1, SIZE), order: Evicted(3, 3 * SIZE)}
        assert [eviction.reason for eviction in figures.newest if eviction.name == names[17]] == [PLANNED]
        assert {eviction.name for eviction in figures.newest} == set(names) - set(world.held(names))
        gone = set(names) - set(world.held(names))
        assert names[0] not in gone and names[17] in gone and len(gone) == 4
        assert gone - {names[17]} <= set(names[1:6])
        # Fetched again, it is a miss of ours, and none of plain LRU, which holds 20 files. Reports are to the
        # second: two reads of a file within one are one.
        time.sleep(2.5)
        world.read(names[18])
        world.read(names[17])
        world.until(keeper, lambda: keeper.figures().saved_bytes == -SIZE)
        assert list(keeper.saved()) == [int(time.time() // 86400)]


def test_evictions_that_end_between_two_looks_are_not_made_up_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow cache: nothing beyond the target goes."""
    evict = world.target.evict

    def slow(*arguments: Any, **named: Any) -> Any:
        time.sleep(0.2)
        return evict(*arguments, **named)

    monkeypatch.setattr(world.target, "evict", slow)
    world.read_files("s", 19)
    with world.steward() as keeper:
        until = time.monotonic() + PATIENCE_S
        while keeper.figures().held_files > 15 and time.monotonic() < until:
            keeper.step(0.05)
            time.sleep(0.3)
        keeper.step(1.0)
        assert (keeper.figures().held_files, keeper.figures().evicted_files) == (15, 4)


def test_figures_are_by_inventory_until_the_disk_is_measured(world: World) -> None:
    world.read_files("a", 3)
    with world.steward(usage=Empty(CAPACITY, world.root)) as keeper:
        assert keeper.figures().used_bytes == 3 * SIZE
        keeper.step(0.0)
        assert (keeper.figures().used_bytes, keeper.figures().held_files) == (0, 3)


def test_nothing_is_evicted_while_pins_are_unknown(world: World) -> None:
    names = world.read_files("d", 17)
    world.journal_fault = "push journal: unavailable"
    with world.steward() as keeper:
        keeper.step(0.2)  # measures: before, it reports its inventory
        world.until(keeper, lambda: keeper.figures().used_bytes == 17 * SIZE)
        keeper.step(0.2)
        assert keeper.alarms == {"steward-lists": "push journal: unavailable"}
        assert len(world.held(names)) == 17
        world.journal_fault = ""
        world.until(keeper, lambda: keeper.figures().held_files == 15)
        assert not keeper.alarms


def test_the_alarm_of_the_journal_stands_while_it_is_asked_again(world: World) -> None:
    """The next try of a cut network takes a minute, in which a report and `status` would call all well."""
    world.journal_fault = "push journal: unavailable"
    with world.steward() as keeper:
        world.until(keeper, lambda: "steward-lists" in keeper.alarms)
        world.answers.clear()
        for _ in range(3):
            keeper.step(0.1)
            assert keeper.alarms == {"steward-lists": "push journal: unavailable"}
        world.lists = Lists((), (), fault="as of before")
        world.journal_fault = ""
        world.answers.set()
        world.until(keeper, lambda: keeper.alarms == {"steward-lists": "as of before"})


def test_more_than_the_high_watermark_is_told_and_pins_are_why(world: World) -> None:
    names = world.read_files("e", 22)
    world.lists = Lists(set(names), ())
    with world.steward() as keeper:
        world.until(keeper, lambda: "each file is pinned" in keeper.alarms.get("steward-outrun", ""))
        assert "more than its high watermark" in keeper.alarms["steward-outrun"]
        assert len(world.held(names)) == 22
        world.lists = Lists((), ())
        world.until(keeper, lambda: "steward-outrun" not in keeper.alarms)


def test_a_steward_is_credited_with_nothing_while_it_evicts_nothing_though_it_should(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache holds more than plain LRU would: each read is a hit that LRU would not have had."""
    names, gained, is_told = world.read_files("i", 22), list[int](), list[bool]()
    world.lists = Lists(set(names), ())
    with world.steward() as keeper:
        world.until(keeper, lambda: "steward-outrun" in keeper.alarms)
        for idle_s in (60.0, 0.0):
            monkeypatch.setattr(keeper_module, "IDLE_S", idle_s)
            keeper.step(0.0)
            before = keeper.figures().saved_bytes
            time.sleep(2.5)
            for name in names:
                world.read(name)
            keeper.step(0.2)
            keeper.step(0.2)
            gained.append(keeper.figures().saved_bytes - before)
            is_told.append(keeper.figures().acts)
    assert gained[0] > 0 and gained[1] == 0
    assert is_told == [True, False]


@pytest.mark.parametrize("spots_show_it", [True, False])
def test_after_a_purge_of_its_own_a_new_inventory_comes_before_further_evictions(
    world: World, monkeypatch: pytest.MonkeyPatch, spots_show_it: bool
) -> None:
    """Eight files went, and four had to go: without an inventory, the other four are taken for held.

    Files that had gone in a row are a purge also where no spot shows one.
    """
    if not spots_show_it:
        monkeypatch.setattr("prefetch.steward.watch.Watch.spot_check", lambda *_: True)
    names = world.read_files("p", 19)
    world.journal_fault = "wait"
    with world.steward() as keeper:
        keeper.step(0.2)  # measures: before, it reports its inventory
        world.until(keeper, lambda: keeper.figures().used_bytes == 19 * SIZE)
        for name in names[:8]:
            world.target.evict(name, timeout_s=10)
        assert len(world.held(names)) == 11
        world.journal_fault = ""
        world.until(keeper, lambda: keeper.figures().held_files == 11)
        assert (keeper.figures().evicted_files, len(world.held(names))) == (0, 11)


def test_nothing_goes_for_what_is_under_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that takes its time has two files too many: looks in the meantime find no others."""
    evict, ends, names = world.target.evict, threading.Event(), list[str]()

    def slow(name: str, *, timeout_s: float) -> None:
        names.append(name)
        ends.wait(20)
        evict(name, timeout_s=timeout_s)

    monkeypatch.setattr(world.target, "evict", slow)
    world.read_files("u", 17)
    with world.steward() as keeper:
        world.until(keeper, lambda: len(names) == 2)
        for _ in range(5):
            keeper.step(0.1)
        assert len(names) == 2
        ends.set()
        world.until(keeper, lambda: keeper.figures().held_files == 15)


def test_a_cache_that_refuses_is_left_alone_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = world.read_files("f", 17)
    tries: list[str] = []

    def evict(name: str, *, timeout_s: float) -> None:
        tries.append(name)
        raise TargetUnavailable("Connection refused")

    with world.steward() as keeper:
        with monkeypatch.context() as patched:
            patched.setattr(world.target, "evict", evict)
            world.until(keeper, lambda: "steward-cache" in keeper.alarms)
            n_tries = len(tries)
            for _ in range(5):
                keeper.step(0.1)
            assert len(tries) == n_tries <= 2 * LIMITS.push.parallel
            assert "3 times in a row: Connection refused" in keeper.alarms["steward-cache"]
        assert len(world.held(names)) == 17


@pytest.mark.service
@pytest.mark.parametrize("world", ["xcache"], indirect=True)
def test_a_stopped_server_is_an_alarm_of_the_cache_until_it_is_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canary, "EVERY_S", 1.0)
    world.read_files("i", 3)
    with world.steward() as keeper:
        world.until(keeper, lambda: keeper.figures().held_files == 3)
        world.server.stop()
        world.until(keeper, lambda: list(keeper.alarms) == ["steward-cache"])
        assert "the cache does not answer" in keeper.alarms["steward-cache"] and not keeper.figures().acts
        world.server.start()
        world.until(keeper, lambda: not keeper.alarms and keeper.figures().acts)
