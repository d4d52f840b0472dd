"""How much may be evicted: what is above the target, and no more than the disk justifies."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefetch.steward.evictions import LEAST_SHARE, Budget, Marks
from prefetch.target import LeftOut
from prefetch.xcache.namespace import ServerCount

MARKS = Marks(0.5, 1.0, 60.0)
CAPACITY = 1000


class World:
    """A disk that is measured each minute."""

    capacity_bytes = CAPACITY
    measures = others_bytes = 0

    def __init__(self, used: int, *, force: bool = False, marks: Marks = MARKS) -> None:
        self.used, self.evicted, self.now = used, 0, 0.0
        self.count: ServerCount | None = None
        self.left_out = LeftOut()
        self.begin(marks, force=force)
        self.look()

    def begin(self, marks: Marks, *, force: bool = False) -> None:
        disks: Any = self
        self.budget = Budget(disks, marks, force=force, clock=lambda: self.now)

    def used_bytes(self, held_bytes: int, growing: Iterable[tuple[str, int]]) -> int:
        return self.used

    def server_count(self) -> ServerCount | None:
        return self.count

    def look(self) -> None:
        self.now += 60.0
        self.budget.measure(0, [], self.evicted, self.left_out)

    def evict(self) -> int:
        """Evict what should go, if it may; how much."""
        n_bytes = max(0, self.budget.excess_bytes) if self.budget.may_evict else 0
        self.used, self.evicted = self.used - n_bytes, self.evicted + n_bytes
        return n_bytes


@pytest.mark.parametrize(("used", "gone"), [(1000, 250), (1525, 775), (1526, 0), (10_000, 0)])
def test_a_cache_that_is_fuller_than_it_can_be_is_a_wrong_figure(used: int, gone: int) -> None:
    world = World(used)
    assert world.evict() == gone
    assert (world.budget.fault is None) == bool(gone)


def test_with_force_all_goes_that_is_above() -> None:
    world = World(10_000, force=True)
    assert world.evict() == 9250 and world.budget.fault is None


def test_a_figure_that_changes_under_it_stops_it_and_is_named() -> None:
    world = World(700)
    world.look()
    world.capacity_bytes = 100
    assert world.evict() == 0
    assert "capacity (100 B) and watermarks (0.5, 1)" in (world.budget.fault or "")


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 900), st.booleans()), max_size=200))
def test_no_hour_evicts_more_than_came_in_it_and_a_looks_room(minutes: list[tuple[int, int, bool]]) -> None:
    """Also beside a purge by the server, and while it may not evict for a time."""
    world, history = World(600), list[tuple[int, int]]()
    for arrives, purged, is_blind in minutes:
        world.used += arrives
        if world.used > CAPACITY + 300:
            world.used = max(0, world.used - purged)
        world.look()
        history.append((arrives, 0 if is_blind else world.evict()))
        came, gone = (sum(column) for column in zip(*history[-60:], strict=True))
        # What came in the minute before the hour is seen in its first look.
        before = history[-61][0] if len(history) > 60 else 0
        assert gone <= came + before + (1 + LEAST_SHARE) * (MARKS.high - MARKS.low) * CAPACITY


def test_a_burst_goes_although_a_little_of_it_is_no_file() -> None:
    """Seen beside an XCache: 6.06 MB should go, 6.02 MB may, and it stayed above its high mark for good."""
    world = World(1040)
    world.evict()
    for minute in range(30):
        world.used, world.others_bytes = world.used + 20, world.others_bytes + (minute % 5 < 2)
        world.look()
        world.evict()
    world.used += 300  # while it was blind
    world.look()
    assert world.used > CAPACITY and world.budget.fault is None
    assert world.evict() > 0


def test_a_neighbour_that_grows_all_day_gets_the_slack_of_one_hour() -> None:
    """At 8 % of what is between the watermarks an hour, slack in each would let all its growth displace."""
    world = World(900, marks=Marks(0.9, 0.95, 300.0))
    world.capacity_bytes = 100 * 10**9
    world.used = own = 94_500_000_000
    world.begin(Marks(0.9, 0.95, 300.0))
    for minute in range(24 * 60):
        world.used = own - world.evicted + int(minute / 60 * 0.08 * 5e9)
        world.others_bytes = world.used - (own - world.evicted)
        world.look()
        world.evict()
    assert world.evicted < 0.6 * 5e9


def test_what_is_evicted_and_not_free_is_neither_arrived_nor_made_up_for() -> None:
    """A snapshot, or a process that maps the file, keeps its bytes in use."""
    world, gone = World(700), 0
    world.look()
    for minute in range(60):
        arrives = 20 if minute % 3 == 0 else 0
        world.used += arrives
        world.look()
        n_bytes = max(0, world.budget.excess_bytes) if world.budget.may_evict else 0
        gone, world.evicted = gone + n_bytes, world.evicted + n_bytes
        world.others_bytes += n_bytes
        world.budget.measure(0, [], world.evicted, world.left_out)
        assert world.budget.excess_bytes <= 0 or not world.budget.may_evict or not n_bytes
    assert gone <= 400 + (MARKS.high - MARKS.low) * CAPACITY
    assert "still in use" in (world.budget.fault or "")
    world.used, world.others_bytes = world.used - world.others_bytes, 0
    world.look()
    assert world.budget.fault is None


def test_what_arrives_before_it_is_reported_is_not_what_was_evicted() -> None:
    """A burst after a few evictions, whose files are reported a few seconds later."""
    world = World(960)
    world.evicted, world.used = 100, 860
    world.look()
    for _ in range(4):
        world.now -= 50.0
        world.used, world.others_bytes = world.used + 45, world.others_bytes + 45
        world.look()
        assert "still in use" not in (world.budget.fault or ""), f"{world.others_bytes} not reported yet"
    world.others_bytes = 0
    world.look()
    assert world.budget.fault is None and world.budget.may_evict


def test_bytes_that_no_eviction_frees_are_no_measure_of_the_cache() -> None:
    world = World(700)
    world.others_bytes = 201
    world.look()
    assert not world.budget.may_evict
    assert "201 B of 1 kB on the cache's disks are not files" in (world.budget.fault or "")
    world.others_bytes, world.left_out = 0, LeftOut(2, 201, ("/store/a#", "/store/b\udcff"))
    world.look()
    assert not world.budget.may_evict
    fault = "201 B of 1 kB are in 2 files whose names no command takes ('/store/a#', '/store/b\\udcff')"
    assert fault in (world.budget.fault or "")


@pytest.mark.parametrize(("used", "advised"), [(1600, "evicts those 850 B"), (2000, "")])
def test_force_is_advised_with_what_it_evicts_and_not_where_it_empties_the_cache(
    used: int, advised: str
) -> None:
    fault = World(used).budget.fault or ""
    assert ("--force" in fault) == bool(advised) and advised in fault


def test_file_systems_that_come_later_bring_no_arrivals() -> None:
    world = World(100)
    world.look()
    world.measures, world.used = 1, 1400
    world.look()
    assert world.evict() == 0, "nothing arrived, and at the start there was room"


def test_a_server_that_counts_what_its_disk_never_had_is_told() -> None:
    world = World(700)
    for at_s, n_bytes in ((1, 900), (2, 900), (3, 700), (4, 720)):
        world.count = ServerCount(at_s, n_bytes)
        world.look()
        assert world.budget.miscounted_bytes == 0, "too early, or little enough"
    world.count = ServerCount(5, 990)
    world.look()
    assert world.budget.miscounted_bytes == 290
    world.used = 990
    world.look()
    world.count = ServerCount(6, 990)
    world.look()
    world.used = 400
    for _ in range(3):
        world.look()
        assert world.budget.miscounted_bytes == 0, "counted while the disk had it"
    world.count = None
    world.look()
    assert world.budget.miscounted_bytes == 0


@pytest.mark.parametrize("mark", [0.01, 0.95, 1.0])
def test_with_equal_watermarks_some_room_is_kept_below_them(mark: float) -> None:
    world = World(int(mark * CAPACITY), marks=Marks(mark, mark, 60.0))
    assert world.budget.high_bytes - 50 <= world.budget.target_bytes < world.budget.high_bytes
    assert world.evict() > 0 and world.budget.fault is None
    for _ in range(100):  # it comes to rest
        world.look()
        last = world.evict()
    assert (last == 0 and world.used > 0) or mark == 0.01
