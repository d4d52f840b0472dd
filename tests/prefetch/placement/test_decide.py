"""Where datasets go: held ones to who holds them, hot ones to as many as they need, the rest by hash."""

import numpy as np

from prefetch.placement.snapshot import NOBODY, NOWHERE, Supply, placed
from replay.ranges import keys_of, scores

N = 5000
KEYS = keys_of(f"cms:/P{i}/E/AOD" for i in range(N))
SUPPLY = Supply(("A", "B", "C"), (1.0, 1.0, 2.0), (100.0, 100.0, 200.0))
NOBODY_HOLDS = np.zeros((N, 3))
LITTLE, OFTEN = np.full(N, 1.0), np.full(N, 1.0)


def rows(
    held: np.ndarray = NOBODY_HOLDS, demand: np.ndarray = LITTLE, reads: np.ndarray = OFTEN
) -> np.ndarray:
    return placed(KEYS, held, demand, reads, SUPPLY, min_reads=0.1)


def test_what_nobody_holds_goes_by_hash_and_size_as_the_service_would_choose() -> None:
    first = rows()[:, 0]
    assert (first == scores(KEYS, SUPPLY.sites, SUPPLY.weights).argmax(axis=1)).all()
    assert abs((first == 2).mean() - 0.5) < 0.03


def test_who_holds_most_comes_first() -> None:
    held = np.random.default_rng(1).random((N, 3))
    first = rows(held)[:, 0]
    best = held.max(axis=1)
    assert (best - held[np.arange(N), first] < 1e-3).all()


def test_a_hot_dataset_goes_to_as_many_sites_as_its_readers_need() -> None:
    held = np.tile([0.9, 0.5, 0.1], (N, 1))
    for demand, sites in ((50.0, [0]), (100.0, [0]), (101.0, [0, 1]), (201.0, [0, 1, 2]), (1e9, [0, 1, 2])):
        expected = sites + [NOBODY] * (5 - len(sites))
        assert (rows(held, np.full(N, demand)) == expected).all()


def test_what_nobody_holds_or_reads_goes_nowhere() -> None:
    reads = np.where(np.arange(N) % 2, 0.05, 0.5)
    held = NOBODY_HOLDS.copy()
    held[1] = [0.0, 0.3, 0.0]
    decided = rows(held, reads=reads)
    assert decided[1, 0] == 1
    assert (decided[3::2, 0] == NOWHERE).all()
    assert (decided[::2, 0] < 3).all()
