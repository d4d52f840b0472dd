"""What every order keeps to: bytes asked for, files that stay, bookkeeping; and the figures of a steward."""

import math
from collections import Counter

import numpy as np
import pytest
from cases import IS_THOROUGH
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from ladders import one_split

from features.common.errors import ConfigError
from features.common.times import DAY_S
from replay.kernels.auto import N_HEURISTICS
from replay.kernels.chooser import FOLLOWED
from replay.kernels.heuristics import LRU
from replay.kernels.shadow import Inventory
from replay.kernels.trees import HorizonModels
from replay.policies.learned import Order
from replay.steward import ORDERS, Saved, Steward, new_order

HEURISTICS = [name for name in ORDERS if name != "learned"]


def steward_of(name: str, *, n_files: int = 10, size: int = 10, capacity: int = 100) -> Steward:
    """A steward of files of two datasets, all on disk, file 0 first."""
    steward = Steward(new_order(name, capacity, None), capacity_bytes=capacity)
    for k in range(n_files):
        assert steward.add(k % 2, 0, size) == k
        steward.stored(k, size, float(k))
    return steward


def test_s3fifo_passes_over_an_open_file_which_keeps_its_place() -> None:
    """File 0 fills the small queue. A file that was open is no better for it: it goes first once closed."""
    steward = steward_of("s3fifo")
    assert steward.victims(10, 100.0) == [0]
    steward.opened(0)
    assert steward.victims(10, 100.0) == [1]
    steward.closed(0)
    assert steward.victims(20, 100.0) == [0, 1]


def test_open_files_in_the_small_queue_of_s3fifo_leave_less_to_the_main_one() -> None:
    """Small has files 0 … 9, then 100 … 110, all open but the last; main has 80 bytes of its 90."""
    steward = steward_of("s3fifo", n_files=100, size=1)
    assert steward.victims(1, 100.0) == [0]
    for file in range(10, 20):
        steward.removed(file)
    for file in range(100, 111):
        steward.add(0, 0, 1)
        steward.stored(file, 1, 100.0)
    assert steward.victims(1, 100.0) == [0]
    for file in (*range(10), *range(100, 110)):
        steward.opened(file)
    assert steward.victims(1, 100.0) == [20]


@pytest.mark.parametrize("name", ORDERS)
def test_an_inventory_at_once_is_the_same_as_file_by_file(name: str) -> None:
    """Two learned orders begin within it; some files were on disk before, some uses count as no read."""
    draw, n, day = np.random.default_rng(3), 3000, float(DAY_S)
    orders = [Order(at * day, one_split("recency_s", 7200.0, -low, low)) for at, low in ((3, 9), (6, -9))]
    sizes, rounds = draw.integers(1, 1000, n), 3
    capacity = int(sizes.sum()) // 3
    stewards = [
        Steward(new_order(name, capacity, orders, n_files=n), capacity_bytes=capacity) for _ in range(2)
    ]
    for steward in stewards:
        for file in range(n):
            steward.add(file // 50, 0, int(sizes[file]))
        for file in range(0, n, 7):
            steward.stored(file, 5, 0.0)
    at_once, by_file = stewards
    for part in np.array_split(np.arange(rounds * n // 2), rounds):
        files = draw.permutation(n)[: part.size].astype(np.int64)
        at_s = np.sort(draw.uniform(part[0], part[-1], part.size)) * 9 * day / (rounds * n // 2)
        found = Inventory(files, draw.integers(0, 1000, part.size), at_s, draw.random(part.size) < 0.8)
        at_once.take_inventory(found)
        for file, n_bytes, used_s, is_read in zip(*(column.tolist() for column in found), strict=True):
            if is_read:
                by_file.read(file, 0, used_s)
            by_file.stored(file, n_bytes, used_s)
    at_once.take_inventory(Inventory(files[:0], found.n_bytes[:0], at_s[:0], found.is_read[:0]))
    assert at_once.saved() == by_file.saved() and len(at_once.saved()) == 9
    assert (at_once.used_bytes, at_once.n_held) == (by_file.used_bytes, by_file.n_held)
    assert at_once.following == by_file.following
    held = [[one.bytes_on_disk(file) for file in range(n)] for one in stewards]
    assert held[0] == held[1]
    assert at_once.victims(capacity // 2, 10 * day) == by_file.victims(capacity // 2, 10 * day)


LEAVES = st.sampled_from([-800.0, -2.0, 0.0, 37.0, 800.0])
MODELS = st.builds(
    one_split,
    st.sampled_from(["n_reads", "recency_s", "dataset_passes_per_day", "size_bytes", "tier"]),
    st.sampled_from([-1e9, 0.0, 3.0, 1e9]),
    *(LEAVES, LEAVES),
)
BYTES = st.sampled_from([0, 1, 7, 29, 2**40, 2**60, 2**63 - 1])
TIMES_S = st.sampled_from([0.0, 50.0, 1e9 - DAY_S, 1e9, 1e9 + 3600, 2.0**63])
FILES = st.integers(0, 40)
MOST_BYTES = 2**63 - 1


class Events(RuleBasedStateMachine):
    """Whatever happens in whatever order, beside a dict: a victim is on disk, neither pinned nor open, and is
    named once. Clocks run backwards, sizes are nothing or all, models are nonsense.
    """

    @initialize(
        name=st.sampled_from(ORDERS),
        capacity=st.sampled_from([0, 300, 2**62]),
        models=st.lists(MODELS, min_size=1, max_size=3),
        begin_s=st.sampled_from([-math.inf, 50.0]),
        n_files=st.sampled_from([0, 10**6]),
    )
    def begin(
        self, name: str, capacity: int, models: list[HorizonModels], begin_s: float, n_files: int
    ) -> None:
        orders = [Order(begin_s + k * 1e8, ladder) for k, ladder in enumerate(models)]
        order = new_order(name, capacity, orders, n_files=n_files)
        self.steward = Steward(order, capacity_bytes=capacity)
        self.held: dict[int, int] = {}
        self.pinned: set[int] = set()
        self.open: Counter[int] = Counter()
        self.n_files = 0

    @rule(datasets=st.lists(st.integers(0, 5), min_size=1, max_size=9), tier=st.integers(-1, 9), size=BYTES)
    def add(self, datasets: list[int], tier: int, size: int) -> None:
        for dataset in datasets:
            assert self.steward.add(dataset, tier, size - 1) == self.n_files
            self.n_files += 1

    @precondition(lambda self: self.n_files)
    @rule(file=FILES, readers=st.lists(st.integers(0, 5), min_size=1, max_size=9), at_s=TIMES_S)
    def read(self, file: int, readers: list[int], at_s: float) -> None:
        for reader in readers:
            self.steward.read(file % self.n_files, reader, at_s)

    @precondition(lambda self: self.n_files)
    @rule(files=st.lists(FILES, min_size=1, max_size=9), n_bytes=BYTES, at_s=TIMES_S)
    def store(self, files: list[int], n_bytes: int, at_s: float) -> None:
        for file in (file % self.n_files for file in files):
            self.steward.stored(file, n_bytes, at_s)
            self.held[file] = n_bytes

    @precondition(lambda self: self.n_files)
    @rule(file=FILES)
    def remove(self, file: int) -> None:
        self.steward.removed(file % self.n_files)
        self.held.pop(file % self.n_files, None)

    @precondition(lambda self: self.n_files)
    @rule(files=st.sets(FILES), everything=st.booleans(), first=st.lists(FILES))
    def plan(self, files: set[int], everything: bool, first: list[int]) -> None:
        self.pinned = set(range(self.n_files)) if everything else {f % self.n_files for f in files}
        self.steward.pin(self.pinned)
        self.steward.evict_first([f % self.n_files for f in first])

    @precondition(lambda self: self.n_files)
    @rule(file=FILES, opens=st.booleans())
    def open_or_close(self, file: int, opens: bool) -> None:
        file %= self.n_files
        (self.steward.opened if opens else self.steward.closed)(file)
        self.open[file] = max(0, self.open[file] + (1 if opens else -1))

    @rule(wanted=st.one_of(BYTES, st.integers(-5, 2**66)), now_s=TIMES_S, goes=st.booleans())
    def evict(self, wanted: int, now_s: float, goes: bool) -> None:
        found = self.steward.victims(wanted, now_s)
        free = {f: n for f, n in self.held.items() if f not in self.pinned and not self.open[f]}
        assert len(set(found)) == len(found)
        assert set(found) <= free.keys()
        total = sum(free[file] for file in found)
        assert total >= min(wanted, sum(free.values()), MOST_BYTES)
        assert not found or total - free[found[-1]] < wanted
        for file in found[: len(found) * goes]:
            self.steward.removed(file)
            del self.held[file]

    @invariant()
    def keeps_the_books(self) -> None:
        if hasattr(self, "held"):
            assert (self.steward.used_bytes, self.steward.n_held) == (sum(self.held.values()), len(self.held))


TestEvents = pytest.mark.thorough(Events.TestCase)
TestEvents.settings = settings(
    max_examples=2000 if IS_THOROUGH else 25, stateful_step_count=40, deadline=None
)


@pytest.mark.parametrize("name", HEURISTICS)
def test_pins_and_open_files_stay_and_lists_go_first(name: str) -> None:
    steward = steward_of(name)
    steward.pin([0, 1])
    steward.opened(2)
    steward.opened(2)
    steward.evict_first([7, 0, 2, 5])
    assert steward.victims(20, 100.0) == [7, 5]
    victims = steward.victims(10**6, 100.0)
    assert victims[:2] == [7, 5]
    assert sorted(victims) == [3, 4, 5, 6, 7, 8, 9]
    steward.closed(2)
    assert 2 not in steward.victims(10**6, 100.0)


def test_a_file_that_stayed_at_one_eviction_may_go_at_the_next() -> None:
    order = new_order("learned", 100, [Order(0.0, one_split("n_reads", 3.0, -2.0, 1.0))])
    steward = Steward(order, capacity_bytes=100)
    for file in range(10):
        steward.add(0, 0, 10)
        steward.stored(file, 10, 0.0)
    steward.pin([0, 1, 2, 3])
    for file in (3, 4):
        steward.opened(file)
    steward.evict_first([5])
    for stay in ({0, 1, 2, 3, 4}, {0, 1, 3}, {1, 3}, {1}):
        assert steward.victims(10**6, 100.0)[0] == 5
        assert {*range(10)} - {*steward.victims(10**6, 100.0)} == stay
        if 4 in stay:
            steward.closed(4)
            steward.pin([0, 1, 3])
        elif 0 in stay:
            steward.pin([1])
        else:
            steward.closed(3)
    steward.evict_first([])
    assert sorted(steward.victims(10**6, 100.0)) == [0, *range(2, 10)]


@pytest.mark.parametrize("name", ["lru", "auto", "learned"])
@pytest.mark.parametrize("seed", range(1000 if IS_THOROUGH else 30))
def test_lru_searches_for_victims_from_where_no_older_file_may_go(name: str, seed: int) -> None:
    """Beside a dict in the order of the last uses. The learned order has not begun: it is LRU until then."""
    draw, n_files = np.random.default_rng(seed), 12
    order = new_order(name, 10**6, [Order(1e9, one_split("n_reads", 3.0, -2.0, 1.0))])
    steward, held, stays = Steward(order, capacity_bytes=10**6), dict[int, int](), Counter[int]()
    pinned: set[int] = set()
    for _ in range(n_files):
        steward.add(0, 0, 10)
    for step in range(400):
        file, what = int(draw.integers(n_files)), draw.choice(["read", "open", "close", "go", "pin", "evict"])
        if what == "read":
            n_bytes = held.pop(file, int(draw.integers(1, 9)))
            steward.read(file, 0, float(step))
            steward.stored(file, n_bytes, float(step))
            held[file] = n_bytes
        elif what == "open":
            steward.opened(file)
            stays[file] += 1
        elif what == "close":
            steward.closed(file)
            stays[file] = max(0, stays[file] - 1)
        elif what == "go":
            steward.removed(file)
            held.pop(file, None)
        elif what == "pin":
            pinned = set(draw.choice(n_files, draw.integers(n_files), replace=False).tolist())
            steward.pin(pinned)
        else:
            steward.evict_first([file])
            first = [file] * (file in held and file not in pinned and not stays[file])
            others = [k for k in held if k not in pinned and not stays[k] and k not in first]
            n_bytes, victims, left = int(draw.integers(0, 30)), [], 0
            for victim in [*first, *others]:
                if left < n_bytes:
                    victims.append(victim)
                    left += held[victim]
            assert steward.victims(n_bytes, float(step)) == victims
        if order.followed[2] is not None:  # another order is asked in between
            followed = order.followed[2].chooser.state
            followed[FOLLOWED] = draw.integers(N_HEURISTICS)
            steward.victims(20, float(step))
            followed[FOLLOWED] = LRU


def test_the_only_file_that_may_go_is_read_and_still_goes() -> None:
    steward = steward_of("lru", n_files=3)
    steward.pin([0, 1])
    assert steward.victims(1, 100.0) == [2]
    steward.read(2, 0, 101.0)
    assert steward.victims(1, 102.0) == [2]


@pytest.mark.parametrize("name", ["lru", "auto", "learned"])
def test_turns_have_room_for_every_file(name: str) -> None:
    order = new_order(name, 10**6, [Order(1e9, one_split("n_reads", 3.0, -2.0, 1.0))])
    steward = Steward(order, capacity_bytes=10**6)
    for n in (1, 1030, 3000):
        for _ in range(n):
            steward.add(0, 0, 10)
        plain, learned, auto = order.followed
        lru = plain or (auto.heuristics[LRU] if learned is None else learned.lru)
        assert lru.turn.size == lru.queues.queue.size >= n


def test_saved_bytes_are_those_that_plain_lru_would_have_fetched_beyond_ours() -> None:
    steward = Steward(new_order("lru", 20, None), capacity_bytes=20)
    for _ in range(3):
        steward.add(0, 0, 10)
    for at_s, file in ((0.0, 0), (1.0, 1), (2.0, 2), (float(DAY_S), 0)):
        steward.read(file, 0, at_s)
        steward.stored(file, 10, at_s)  # all three stay on disk, LRU would have room for two
    assert dict(steward.saved()) == {0: Saved(30, 30), 1: Saved(10, 0)}


def test_an_order_that_cannot_be_is_named() -> None:
    with pytest.raises(ConfigError, match="no order is called 'best'; there are lru, s3fifo"):
        new_order("best", 100, None)
    for no_model in ((), None):
        with pytest.raises(ConfigError, match="learned needs a model"):
            new_order("learned", 100, no_model)
