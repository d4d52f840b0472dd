"""Memory per known file on disk: a million of them must fit beside their names in 600 MB."""

from __future__ import annotations

import tracemalloc

import pytest
from ladders import one_split

from replay.policies.learned import Order
from replay.steward import Steward, new_order

N = 2**14


MOST = {
    "lru": 60,
    "s3fifo": 60,
    "dataset-lru": 65,
    "learned": 260,
    "auto": 450,
}


@pytest.mark.parametrize("name", MOST)
def test_bytes_per_file(name: str) -> None:
    """With arrays that grow by an eighth."""
    filled(name, 1)  # compiled kernels are no memory of files
    tracemalloc.start()
    steward = filled(name, N)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert steward.n_held == N
    assert used / N < MOST[name]


def filled(name: str, n_files: int) -> Steward:
    """A steward of so many files that were read once, a hundred in a dataset."""
    orders = [Order(0.0, one_split("n_reads", 1.0, -1.0, 1.0))]
    steward = Steward(new_order(name, 10 * n_files, orders), capacity_bytes=10 * n_files)
    for k in range(n_files):
        steward.add(k // 100, 0, 10)
        steward.read(k, 0, float(k))
        steward.stored(k, 10, float(k))
    return steward
