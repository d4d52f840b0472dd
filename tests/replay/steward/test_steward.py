"""What every order keeps to: bytes asked for, files that stay, bookkeeping; and the figures of a steward."""

from __future__ import annotations

import random

import numpy as np
import pytest

from features.errors import ConfigError
from features.times import DAY_S
from replay.steward import ORDERS, Saved, Steward, new_order

HEURISTICS = [name for name in ORDERS if name != "learned"]


def steward_of(name: str, *, n_files: int = 10, size: int = 10, capacity: int = 100) -> Steward:
    """A steward of files of two datasets, all on disk, file 0 first."""
    steward = Steward(new_order(name, capacity, None), capacity_bytes=capacity)
    for k in range(n_files):
        assert steward.add(k % 2, 0, size) == k
        steward.stored(k, size, float(k))
    return steward


@pytest.mark.parametrize("name", HEURISTICS)
def test_victims_reach_the_bytes_asked_for_and_change_nothing(name: str) -> None:
    steward = steward_of(name)
    assert steward.victims(0, 100.0) == []
    first = steward.victims(25, 100.0)
    assert len(first) == 3
    assert steward.victims(25, 100.0) == first
    assert (steward.used_bytes, steward.n_held) == (100, 10)
    assert sorted(steward.victims(10**6, 100.0)) == list(range(10))
    for file in first:
        steward.removed(file)
        steward.removed(file)
    assert (steward.used_bytes, steward.n_held) == (70, 7)
    assert not set(steward.victims(10**6, 100.0)) & set(first)


@pytest.mark.parametrize("name", HEURISTICS)
def test_pins_and_open_files_stay_and_lists_go_first(name: str) -> None:
    steward = steward_of(name)
    steward.pin([0, 1])
    steward.opened(2)
    steward.opened(2)
    steward.evict_first([7, 0, 2, 5])
    assert steward.victims(20, 100.0) == [7, 5]
    found = steward.victims(10**6, 100.0)
    assert found[:2] == [7, 5]
    assert sorted(found) == [3, 4, 5, 6, 7, 8, 9]
    steward.closed(2)
    assert 2 not in steward.victims(10**6, 100.0)
    steward.closed(2)
    steward.pin([1])
    assert sorted(steward.victims(10**6, 100.0)) == [0, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("name", HEURISTICS)
@pytest.mark.parametrize("seed", range(3))
def test_any_events_keep_the_books(name: str, seed: int) -> None:
    """Whatever happens in whatever order: what is on disk, and only that, can be a victim, once."""
    draw = random.Random(seed)
    steward = Steward(new_order(name, 300, None), capacity_bytes=300)
    held: dict[int, int] = {}
    kept: list[int] = []
    for step in range(3000):
        what, file = draw.random(), draw.randrange(60)
        if step < 60:
            steward.add(step % 7, 0, draw.randrange(-1, 30))
        elif what < 0.5:
            steward.read(file, draw.randrange(5), float(step))
        elif what < 0.75:
            held[file] = draw.randrange(0, 30)
            steward.stored(file, held[file], float(step))
        elif what < 0.85:
            steward.removed(file)
            held.pop(file, None)
        elif what < 0.9:
            kept = draw.sample(range(60), 10)
            steward.pin(kept)
        else:
            wanted = draw.randrange(200)
            found = steward.victims(wanted, float(step))
            free = {file: n for file, n in held.items() if file not in kept}
            assert len(set(found)) == len(found)
            assert set(found) <= set(free)
            total = sum(free[file] for file in found)
            assert total >= min(wanted, sum(free.values()))
            assert not found or total - free[found[-1]] < wanted
            for file in found[::2]:
                steward.removed(file)
                del held[file]
        assert steward.used_bytes == sum(held.values())
        assert steward.n_held == len(held)


def test_more_files_than_there_was_room_for() -> None:
    for name in HEURISTICS:
        steward = steward_of(name, n_files=3000, capacity=10**6)
        steward.pin(range(0, 3000, 2))
        assert sorted(steward.victims(10**6, 9999.0)) == list(range(1, 3000, 2))


def test_saved_bytes_are_those_that_plain_lru_would_have_fetched_beyond_ours() -> None:
    steward = Steward(new_order("lru", 20, None), capacity_bytes=20)
    for _ in range(3):
        steward.add(0, 0, 10)
    for at_s, file in ((0.0, 0), (1.0, 1), (2.0, 2), (float(DAY_S), 0)):
        steward.read(file, 0, at_s)
        steward.stored(file, 10, at_s)  # all three stay on disk, LRU would have room for two
    assert dict(steward.saved()) == {0: Saved(30, 30), 1: Saved(10, 0)}


def test_files_that_were_there_before_are_on_lrus_disk_too() -> None:
    steward = steward_of("lru")
    steward.read(3, 0, 50.0)
    assert steward.saved()[0] == Saved(0, 0)


def test_an_order_that_cannot_be_is_named() -> None:
    with pytest.raises(ConfigError, match="no order is called 'best'; there are lru, s3fifo"):
        new_order("best", 100, None)
    for no_model in ((), None):
        with pytest.raises(ConfigError, match="learned needs a model"):
            new_order("learned", 100, no_model)


def test_s3fifo_keeps_what_is_read_twice_and_lets_a_scan_pass() -> None:
    steward = Steward(new_order("s3fifo", 100, None), capacity_bytes=100)
    for k in range(30):
        steward.add(0, 0, 10)
        if k < 10:
            steward.stored(k, 10, 0.0)
    for _ in range(2):
        for k in range(5):
            steward.read(k, 0, 1.0)
    for k in range(10, 30):
        steward.read(k, 0, 2.0)
        for gone in steward.victims(10, 2.0):
            steward.removed(gone)
        steward.stored(k, 10, 2.0)
    assert not set(range(5)) - {k for k in range(30) if k in steward.victims(10**6, 3.0)}
    assert set(steward.victims(50, 3.0)).isdisjoint(range(5))


def test_dataset_lru_lets_the_longest_unread_dataset_go() -> None:
    steward = steward_of("dataset-lru")
    steward.read(1, 0, 20.0)
    assert steward.victims(50, 21.0) == [0, 2, 4, 6, 8]
    steward.read(4, 0, 22.0)
    assert steward.victims(60, 23.0) == [3, 5, 7, 9, 1, 0]


def test_a_number_beyond_the_known_ones_is_refused() -> None:
    steward = steward_of("lru")
    for act in (lambda: steward.read(10, 0, 1.0), lambda: steward.stored(10, 1, 1.0)):
        with pytest.raises(IndexError):
            act()


def test_an_empty_spare_list_of_numpy_is_no_index() -> None:
    steward = steward_of("lru")
    steward.pin(np.zeros(0, np.int64).tolist())
    assert steward.victims(10, 1.0) == [0]
