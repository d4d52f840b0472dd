"""Which files belong to which server of a federation: one each, where Rucio looks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from prefetch.placement.ranges import Layout, edges, rebalanced
from replay.planner import BoolArray
from replay.ranges import server_of

NO_LAYOUT: Layout = ()


def belongs(
    names: Iterable[str], capacities: Mapping[str, int], server: str, *, layout: Layout = NO_LAYOUT
) -> BoolArray:
    """Whether each of `names` belongs to `server`, bool[n].

    `capacities`: bytes of all servers by name; `layout`: who held what before, which is changed by as
    little as can be (none: ranges in the order of the names); the form is that of `serverRanges`.
    """
    ranges = rebalanced(layout, dict(capacities))
    owners = [part.owner == server for part in ranges]
    index = server_of(names, edges(ranges))
    mine: BoolArray = np.array(owners, np.bool_)[index]
    return mine
