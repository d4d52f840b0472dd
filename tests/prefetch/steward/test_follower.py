"""What reports of a cache mean: reads by jobs, files that are open, bytes on disk."""

import dataclasses
from collections.abc import Mapping, Sequence
from unittest import mock

import numpy as np
import pytest
from closes import file_close

from features.common.arrays import IntArray
from features.stream.state import task_number, user_number
from prefetch.steward.book import Book, Datasets, Listing, listed
from prefetch.steward.feed import Readers, Restarted
from prefetch.steward.follower import MOST_OPEN, Follower
from prefetch.steward.inventory import begin
from prefetch.target import CacheTarget, Held
from prefetch.xcache.events import FileClose
from prefetch.xcache.fstream import Closed, Login, Opened, Packet, Work
from replay.kernels.heuristics import LRU
from replay.steward import Steward
from replay.steward.order import HeuristicOrder

T = 1_700_000_000
BLOCK = 128 * 1024


class Reads(HeuristicOrder):
    """LRU that keeps the reads that it is told."""

    def __init__(self) -> None:
        super().__init__(LRU)
        self.reads: list[tuple[int, float, bool]] = []
        self.readers: list[int] = []

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        self.reads.append((file, at_s, is_held))
        self.readers.append(reader)
        super().read(file, reader, at_s, is_held=is_held)


class FakeDisk:
    """Every file is there with a block, unless `has` knows better; it cannot say how much of `unknown`."""

    def __init__(self) -> None:
        self.has: dict[str, int] = {}
        self.unknown: set[str] = set()
        self.shows_open: bool | None = True
        self.n_looks = 0

    def size_bytes(self, name: str, reported: int) -> int | None:
        return BLOCK if self.has.get(name, 1) else None

    def bytes_on_disk(self, file: int, name: str) -> int | None:
        self.n_looks += 1
        return None if name in self.unknown else self.has.get(name, BLOCK)

    def is_open(self, name: str) -> bool | None:
        return self.shows_open


def closed(name: str, attach: int, detach: int, *, read: int = BLOCK, size: int = BLOCK) -> FileClose:
    whole = {"size_bytes": size, "blk_size": size, "n_blks": 1, "n_blks_done": 1, "access_cnt": 1}
    return file_close(name, attach, detach, received_t=detach + 1, b_hit=read, **whole)


def listed_at(at_s: float, *held: Held) -> Listing:
    """What a cache with these files says."""
    target = mock.create_autospec(CacheTarget)
    target.inventory.return_value = held
    return listed(target, now_s=at_s)


def holding(uses: Mapping[str, int]) -> Listing:
    """What it says at `T` with a block of each of these files, which were used then."""
    return listed_at(T, *(Held(name, BLOCK, BLOCK, True, at, False) for name, at in uses.items()))


NINE = {f"/{n}": T - 500 + 10 * n for n in range(9)}


class World:
    def __init__(self, *kinds: str, test_files: Sequence[str] = ()) -> None:
        self.order = Reads()
        self.steward = Steward(self.order, capacity_bytes=100 * BLOCK)
        self.book = Book(self.steward, Datasets(), test_files=test_files)
        self.disk = FakeDisk()
        self.kinds = kinds
        self.follower = self.new_follower()

    def new_follower(self) -> Follower:
        return Follower(
            self.book, ours_last_s=60, disk=self.disk, readers=Readers(self.kinds), reports_opens=lambda: True
        )

    def begins(self, listing: Listing, *reports: FileClose) -> None:
        """A follower begins with what a cache holds, and with reports of before and since."""
        self.book = Book(self.steward, Datasets(), listing=listing)
        self.follower = self.new_follower()
        begin(listing, self.book, self.follower, reports, now_s=T + 20.0)

    def finds(self, file: int, used_s: float, *, at_s: float) -> None:
        """An inventory begun at `at_s` finds a file with a block."""
        self.follower.take_inventory(np.array([file]), np.array([BLOCK]), np.array([float(used_s)]), at_s)

    def opens(self, at: int, *names: str, first_id: int = 1, stod: int = T, user: int = 0) -> None:
        opened = tuple(
            Opened(at * 10**6, first_id + n, user, BLOCK, name, False) for n, name in enumerate(names)
        )
        self.follower.apply(Packet(stod, 0, 7, at, at + 1, opened, (), 0, 0), at + 1.5)

    def closes(self, at: int, file_id: int, *, read: int = 0, readv: int = 0) -> None:
        closed = (Closed(at * 10**6, file_id, read, readv, 0),)
        self.follower.apply(Packet(T, 0, 7, at, at + 1, (), closed, 0, 0), at + 1.5)

    def reports(self, name: str, attach: int, detach: int, *, read: int = BLOCK, size: int = BLOCK) -> None:
        self.follower.apply(closed(name, attach, detach, read=read, size=size), detach + 1.0)

    def is_victim(self, name: str) -> bool:
        return self.book.known([name])[0] in self.steward.victims(10**9, T + 999)


def test_a_read_counts_once_whichever_stream_reports_it_first() -> None:
    for close_first in (True, False):
        world = World()
        world.opens(T, "/a")
        if close_first:
            world.closes(T + 5, 1, read=BLOCK)
        world.reports("/a", T, T + 5)
        if not close_first:
            world.closes(T + 5, 1, read=BLOCK)
        assert world.order.reads == [(0, T + 0.5, False)]  # a miss: it was not on disk before
        assert world.steward.bytes_on_disk(0) == BLOCK


def test_overlapping_reads_count_each_and_the_g_stream_alone_counts_one() -> None:
    world = World()
    world.opens(T, "/a")
    world.opens(T + 10, "/a", first_id=2)
    world.closes(T + 15, 1, read=1)
    world.closes(T + 16, 2, read=1)
    world.reports("/a", T, T + 16)
    assert [at for _, at, _ in world.order.reads] == [T + 0.5, T + 10.5]
    world.reports("/a", T + 50, T + 60)
    world.reports("/b", T + 50, T + 61)
    assert [(file, at) for file, at, _ in world.order.reads[2:]] == [(0, T + 50.0), (1, T + 50.0)]


def test_touches_and_prefetches_are_no_reads_but_put_bytes_on_disk() -> None:
    world = World()
    world.opens(T, "/touched", "/fetched")
    world.closes(T + 1, 1)
    world.closes(T + 1, 2, readv=1)
    world.disk.has["/touched"] = 0
    world.reports("/touched", T, T + 1, read=0)
    world.reports("/fetched", T, T + 1, read=1)
    assert world.order.reads == []
    assert [world.steward.bytes_on_disk(file) for file in (0, 1)] == [None, BLOCK]


def test_a_read_has_the_reader_of_its_open_also_if_its_close_comes_first() -> None:
    for kinds, reader in ((("user",), user_number), (("task", "user"), task_number)):
        world = World(*kinds)
        world.follower.apply(Login(T, 7, 3, "alice.1:7@h", "alice"), T)
        world.follower.apply(Work(T, 7, "alice.1:7@h", "job"), T)
        world.reports("/a", T, T)
        assert world.order.reads == [] and set(world.follower.growing) == {0}
        world.opens(T, "/a", user=3)
        world.closes(T, 1, read=BLOCK)
        assert world.order.reads == [(0, T + 0.5, False)]
        world.follower.count_long_opens(T + 10)
        assert len(world.order.reads) == 1 and world.steward.bytes_on_disk(0) == BLOCK
        assert world.order.readers[0] % 2 == reader(0) % 2
        # An open that never comes: the close counts, by nobody.
        world.reports("/b", T, T + 20)
        world.follower.count_long_opens(T + 30)
        assert world.order.readers[1:] == [0] and world.steward.bytes_on_disk(1) == BLOCK


def test_an_open_file_is_no_victim_until_its_last_close() -> None:
    world = World()
    world.reports("/a", T - 9, T - 8)
    assert world.is_victim("/a")
    world.opens(T, "/a", "/a")
    world.closes(T + 1, 1, read=1)
    assert not world.is_victim("/a") and list(world.follower.open_files) == [0]
    world.closes(T + 2, 2, read=1)
    assert world.is_victim("/a") and list(world.follower.open_files) == []


def test_a_file_that_is_open_for_long_is_read_by_a_job() -> None:
    world = World()
    world.opens(T, "/a")
    world.follower.count_long_opens(T + 30.0)
    assert world.order.reads == []
    world.follower.count_long_opens(T + 90.0)
    world.closes(T + 95, 1, read=1)
    assert len(world.order.reads) == 1


def test_a_close_that_was_lost_ends_by_the_g_stream_and_by_a_restart() -> None:
    world = World()
    world.reports("/b", T - 9, T - 8)
    world.opens(T, "/a", "/b")
    world.reports("/a", T, T + 20)
    world.follower.count_long_opens(T + 30.0)
    assert not world.is_victim("/a")
    world.follower.count_long_opens(T + 90.0)
    assert world.is_victim("/a") and not world.is_victim("/b")
    world.follower.apply(Restarted(T + 100), T + 100.0)
    assert world.is_victim("/b")


def test_only_the_disk_says_what_is_there_and_how_large_it_is() -> None:
    world = World()
    world.reports("/a", T, T + 1)
    world.steward.removed(0)
    world.disk.has |= {"/a": 0, "/forged": 0}
    world.reports("/a", T + 1, T + 2)
    for n in range(1000):
        world.disk.has[f"/forged{n}"] = 0
        world.reports(f"/forged{n}", T + 2, T + 3, size=2**60)
    assert world.steward.bytes_on_disk(0) is None and len(world.book) == 1
    assert world.steward.used_bytes == 0
    world.disk.has["/a"] = 7
    world.reports("/a", T + 3, T + 4, size=2**62)
    assert world.steward.bytes_on_disk(0) == world.steward.used_bytes == 7


def test_a_file_whose_bytes_are_unknown_stays_as_it_was_known() -> None:
    world = World()
    world.disk.unknown = {"/a"}
    world.reports("/a", T, T + 10)
    assert world.steward.bytes_on_disk(0) is None and not world.follower.looked_since(
        np.zeros(1, int), T + 11
    )
    world.disk.unknown = set()
    world.reports("/a", T + 20, T + 30)
    world.disk.unknown, world.disk.has = {"/a"}, {"/a": 0}
    world.reports("/a", T + 40, T + 50)
    assert world.steward.bytes_on_disk(0) == BLOCK


def test_a_flood_of_closes_looks_at_a_file_once_per_step() -> None:
    world = World()
    for _ in range(500):
        world.reports("/a", T, T + 1)
    world.follower.count_long_opens(T + 2.0)
    world.follower.count_long_opens(T + 3.0)
    assert world.disk.n_looks == 2


def test_an_open_that_the_servers_process_does_not_show_ends() -> None:
    for really_open, lasts_s in ((True, 10**6), (False, 15), (None, 3601)):
        world = World()
        world.reports("/a", T - 9, T - 8)
        world.opens(T, "/a")
        world.disk.shows_open = really_open
        for after_s in (5, 15, 30, 3601, 3700):
            world.follower.count_long_opens(T + 1.5 + after_s)
            assert world.is_victim("/a") == (after_s >= lasts_s)


def test_an_open_that_is_none_holds_no_file_and_ends_no_other() -> None:
    world = World()
    world.reports("/a", T - 9, T - 8)
    world.disk.shows_open = False
    world.opens(T, "/a")
    assert world.is_victim("/a") and list(world.follower.open_files) == [0]
    world.disk.shows_open = True
    world.opens(T, "/a", first_id=2)
    world.closes(T + 1, 1)
    assert not world.is_victim("/a")


def test_forged_opens_are_followed_up_to_a_limit() -> None:
    world = World()
    world.reports("/a", T - 9, T - 8)
    for n in range(0, MOST_OPEN + 5000, 5000):
        world.opens(T, *["/a"] * 5000, first_id=n)
    assert len(world.follower._uses) == MOST_OPEN and list(world.follower.open_files) == [0]


def test_names_that_no_file_can_have_are_left_out() -> None:
    world = World()
    for name in ("", "/../etc", "/a\nb", "/xrdpfc_command/remove_file/ /a"):
        world.opens(T, name)
        world.reports(name, T, T + 1)
    assert len(world.book) == 0
    for name in ("//store//a", "store/a"):
        world.reports(name, T, T + 1)
    assert (world.book.known(["/store/a"]), len(world.book)) == ([0], 1)


def test_a_use_of_the_inventory_counts_if_it_was_not_reported() -> None:
    world = World()
    world.reports("/a", T, T + 10)
    world.finds(0, T + 10, at_s=T + 100)
    assert len(world.order.reads) == 1
    world.finds(0, T + 150, at_s=T + 200)
    assert [at for _, at, _ in world.order.reads] == [T, T + 150.0]
    looked = world.follower.looked_since(np.array([0, 0]), np.array([T + 200.0, T + 201.0]))
    assert looked.tolist() == [True, False]


@pytest.mark.parametrize("ahead_s", [0, 2, 59])
def test_a_reported_use_is_one_use_though_the_clock_of_the_cache_is_ahead(ahead_s: int) -> None:
    """By less than raises an alarm; each inventory counted the last use of each file once more."""
    world = World()
    for at_s in (T, T + 9):
        world.follower.apply(closed("/a", at_s - 5 + ahead_s, at_s + ahead_s), at_s + 1.0)
        world.follower.count_long_opens(at_s + 1.0)
    world.finds(0, T + 9 + ahead_s, at_s=T + 86_400)
    assert len(world.order.reads) == 2
    world.finds(0, T + 86_400 + 150, at_s=T + 2 * 86_400)
    assert len(world.order.reads) == 3  # nobody reported that one


def test_what_came_while_an_inventory_was_read_is_looked_up_and_what_had_gone_is_not() -> None:
    world, used = World(), {"/a": T - 500, "/b": T - 200}
    spans = {"/gone": (-900, -800), "/a": (-700, -600), "/b": (-300, -200), "/new": (-9, 1)}
    world.begins(holding(used), *(closed(name, T + first, T + last) for name, (first, last) in spans.items()))
    held = {world.book.name(file): world.steward.bytes_on_disk(file) for file in range(len(world.book))}
    assert held == {"/a": BLOCK, "/b": BLOCK, "/gone": None, "/new": BLOCK}
    # The last use of /a was not reported, that of /b was: it counts once.
    expected = [(2, T - 900), (0, T - 700), (0, T - 500), (1, T - 300), (3, T - 9)]
    assert [(file, at_s) for file, at_s, _ in world.order.reads] == expected


def test_no_report_of_a_use_to_come_and_no_clock_that_is_ahead_makes_two_uses_of_one() -> None:
    forged = dataclasses.replace(closed("/forged", T - 900, 2**62), received_t=T - 899)
    for before, ahead_s in (([forged], 0), ([], 5)):
        world, closes = World(), [closed(name, at - 5, at) for name, at in NINE.items()]
        heard = [dataclasses.replace(close, received_t=close.detach_t - ahead_s) for close in closes]
        world.begins(holding(NINE), *before, *heard)
        assert [at for file, at, _ in world.order.reads if file < 9] == [at - 5 for at in NINE.values()]


def test_a_report_that_was_received_while_the_clock_was_ahead_makes_none_after_it_news() -> None:
    """As at boot, before NTP: each use counted twice, and the file that was read last was the first to go."""
    world = World()
    first, *others = [closed(name, at - 5, at) for name, at in NINE.items()][:-1]
    world.begins(holding(NINE), dataclasses.replace(first, received_t=T + 10**6), *others)
    expected = [*((n, T - 505 + 10 * n) for n in range(8)), (8, T - 420)]
    assert [(file, at) for file, at, _ in world.order.reads] == expected


def test_a_file_that_came_while_the_past_was_read_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 MB of captures take a minute. The clock that received its report is not ahead."""
    world, listing = World(), listed_at(T)
    late = closed("/new", T + 200, T + 201)
    monkeypatch.setattr("prefetch.steward.inventory.uptime_s", lambda: listing.uptime_s + 210.0)
    begin(listing, world.book, world.follower, [late], now_s=T + 20.0)
    assert world.steward.n_held == 1


def test_few_files_of_an_inventory_are_found_as_many_are() -> None:
    """The figures and reads are the same; few files are told without arrays, which take long."""
    outcomes = []
    for at_once in (1, 100):
        world = World(test_files=["/1*"])
        for n in range(100):
            world.book.number(f"/{n}", BLOCK)
        world.reports("/7", T - 9, T - 5)
        files = np.arange(100)
        for first in range(0, 100, at_once):
            some = files[first : first + at_once]
            used_s = (T - 10 + some).astype(np.float64)
            for now_s in (T + 1.0, used_s + 12):
                world.follower.take_inventory(some, BLOCK + some, used_s, now_s)
        held = [world.steward.bytes_on_disk(file) for file in files.tolist()]
        outcomes.append((held, sorted(world.order.reads), world.steward.saved(), world.steward.used_bytes))
    assert outcomes[0] == outcomes[1]


def test_a_name_that_an_inventory_has_twice_is_one_file_with_what_was_read_last() -> None:
    twice = [Held("/a", 9, n_bytes, False, None, False) for n_bytes in (1, 2)]
    listing = listed_at(T, twice[0], Held("/b", 5, 5, True, T - 5, False), twice[1])
    assert [listing.names[0], listing.names[1]] == ["/a", "/b"] and len(listing.names) == 2
    assert listing.n_bytes.tolist() == [2, 5] and listing.used_s.tolist() == [T, T - 5]
    assert listing.newest_s == T - 5


def test_a_last_use_in_the_future_is_one_now_and_the_clock_is_told_of_it() -> None:
    listing = listed_at(T, Held("/a", 5, 5, True, T + 10**9, False))
    assert listing.used_s.tolist() == [T] and listing.newest_s == T + 10**9


def test_an_inventory_without_news_changes_nothing_where_tests_are_named() -> None:
    world = World(test_files=["/t*"])
    world.reports("/test", T, T + 10)
    world.follower.take_inventory(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), T + 50.0)
    world.finds(0, T + 60, at_s=T + 70)
    assert world.order.reads == [] and world.steward.n_held == 1


def test_datasets_are_of_the_catalogue_or_the_folder_and_kinds_are_the_models() -> None:
    added: list[tuple[int, int]] = []

    class Adding(HeuristicOrder):
        def add(self, dataset: IntArray, tier: IntArray, size_bytes: IntArray) -> None:
            added.extend(zip(dataset.tolist(), tier.tolist(), strict=True))

    catalogue = Datasets([(["/s/x/1.root", "2.root", "/s/z/3.root"], ["ds", "ds", None])])
    book = Book(Steward(Adding(LRU), capacity_bytes=1), catalogue, ["txt", "root"])
    for name in ("/s/x/1.root", "/s/y/2.root", "/s/z/3.root", "/s/z/4.txt", "/s/x/5.odd", "/s/x/1.root"):
        book.number(name)
    assert added == [(0, 1), (0, 1), (1, 1), (1, 0), (2, 32)]
    assert book.name(3) == "/s/z/4.txt"
    for name in ("/s/x/6.pool.root.1", "/s/x/\udcff.root"):
        book.number(name)
    assert added[5:] == [(2, 1), (2, 1)], "a version is no kind, as in the trace that a model learns from"
