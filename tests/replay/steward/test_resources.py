"""A million known files fit beside their names in 600 MB; after a rehearsal a steward compiles nothing."""

import sys
import tracemalloc

import numpy as np
import pytest
from ladders import one_split
from numba.core.dispatcher import Dispatcher

from replay.kernels.shadow import Inventory
from replay.kernels.trees import no_models
from replay.policies.learned import Order
from replay.steward import Steward, new_order, rehearse

N = 2**14


MOST = {"lru": 65, "s3fifo": 60, "dataset-lru": 65, "learned": 260, "auto": 450}


@pytest.mark.parametrize("name", MOST)
def test_bytes_per_file(name: str) -> None:
    """With arrays that grow by an eighth; what threads of other tests take does not count."""
    filled(name, 1)  # compiled kernels are no memory of files
    tracemalloc.start()
    steward = filled(name, N)
    ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/replay/*")])
    tracemalloc.stop()
    assert steward.n_held == N
    assert MOST[name] / 2 < sum(trace.size for trace in ours.traces) / N < MOST[name]


def filled(name: str, n_files: int) -> Steward:
    """A steward of so many files that were read once, a hundred in a dataset."""
    orders = [Order(0.0, one_split("n_reads", 1.0, -1.0, 1.0))]
    steward = Steward(new_order(name, 10 * n_files, orders), capacity_bytes=10 * n_files)
    for k in range(n_files):
        steward.add(k // 100, 0, 10)
        steward.read(k, 0, float(k))
        steward.stored(k, 10, float(k))
    return steward


def compiled() -> int:
    """How many kernels there are, for each type of their arguments."""
    ours = [module for name, module in sys.modules.items() if name.startswith(("replay.", "features."))]
    values = {id(value): value for module in ours for value in vars(module).values()}
    return sum(len(value.signatures) for value in values.values() if isinstance(value, Dispatcher))


@pytest.mark.parametrize("name", ["auto", "learned", "lru"])
def test_a_steward_that_was_rehearsed_compiles_nothing(name: str) -> None:
    rehearse(name)
    n_compiled = compiled()
    learned = [Order(at_s, no_models()) for at_s in (0.0, 50.0)]
    steward = Steward(new_order(name, 100, learned, n_files=9), capacity_bytes=100)
    files = np.arange(5)
    steward.add(files % 2, files, 10 + files)
    read = np.array([True, False, True, False])
    steward.take_inventory(Inventory(files[:4], 10 + files[:4], np.array([20.0, 40.0, 60.0, 80.0]), read))
    steward.add(3, -1, -1)
    for at_s, file in enumerate([4, 5, 0, 4], 100):
        steward.read(file, 7 * file, float(at_s))
        steward.opened(file)
        steward.stored(file, 12, at_s + 0.5)
        steward.closed(file)
    steward.expect(2, 150.0)
    steward.pin([1])
    steward.evict_first([3])
    victims = steward.victims(40, 200.0)
    for file in victims:
        steward.removed(file)
    assert victims[0] == 3 and 1 not in victims and steward.n_held == 6 - len(victims)
    assert compiled() == n_compiled > 0
