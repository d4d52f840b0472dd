"""Accesses as kernels see them, and an order of eviction that was learned."""

from typing import NamedTuple

from features.common.arrays import Ids, IntArray
from replay.kernels.trees import HorizonModels


class Accesses(NamedTuple):
    """Accesses in time order: `time_s` int64[n], `item` int32[n], `reader` int64[n]."""

    time_s: IntArray
    item: Ids
    reader: IntArray


class Order(NamedTuple):
    """An order from time `from_s` on: the value of a file is its hit rate by `models`."""

    from_s: float
    models: HorizonModels
