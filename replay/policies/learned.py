"""An order of eviction that was learned."""

from typing import NamedTuple

from replay.kernels.trees import HorizonModels


class Order(NamedTuple):
    """An order from time `from_s` on: the value of a file is its hit rate by `models`."""

    from_s: float
    models: HorizonModels
