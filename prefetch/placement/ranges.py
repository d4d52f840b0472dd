"""`serverRanges` while servers are silent: others stand in for them, and nothing is left to undo.

The layout with every server alive is `replay.federation.ranges.layout_of`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from replay.federation.ranges import SLOT, SPACE, Layout, Range, merged, preferences


def covered(layout: Layout, sizes: Mapping[str, float], alive: Collection[str]) -> Layout:
    """`layout` with the ranges of servers not `alive` given to those that are, by size and hash.

    It depends on who is alive, not on who died first: another death moves the dead one's ranges alone, and a
    return brings exactly the former ranges back. Nobody alive: no ranges.
    """
    owners = {part.owner for part in layout.ranges}
    stand_ins = {name: sizes[name] for name in sorted(owners & set(alive))}
    if owners == stand_ins.keys():
        return layout
    return merged(_covered(layout, stand_ins)) if stand_ins else Layout()


def wire(layout: Layout, servers: Mapping[str, tuple[str, float]]) -> dict[str, list[list[object]]]:
    """The form that Rucio reads: `servers` are address and size by id."""
    order = sorted({part.owner for part in layout.ranges})
    index = {name: i for i, name in enumerate(order)}
    return {
        "servers": [list(servers[name]) for name in order],
        "ranges": [[index[part.owner], part.upper / SPACE] for part in layout.ranges],
    }


def _covered(layout: Layout, stand_ins: Mapping[str, float]) -> Iterator[Range]:
    names = list(stand_ins)
    best = preferences(range(SPACE // SLOT), stand_ins).argmax(axis=1).tolist()
    start = 0
    for owner, upper in layout.ranges:
        if owner in stand_ins:
            yield Range(owner, upper)
        else:
            for slot in range(start // SLOT, -(-upper // SLOT)):
                yield Range(names[best[slot]], min(upper, (slot + 1) * SLOT))
        start = upper
