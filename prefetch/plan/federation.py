"""Which files belong to which server of a federation: one each, where Rucio looks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from features.common.arrays import BoolArray
from replay.federation.ranges import layout_of


def belongs(names: Iterable[str], capacities: Mapping[str, float], server: str) -> BoolArray:
    """Whether each of `names` belongs to `server`, bool[n]; `capacities`: of all servers by name."""
    mine: BoolArray = layout_of(capacities).owners_of(names) == server
    return mine
