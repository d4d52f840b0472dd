"""Which part of a site's names each of its servers holds: `serverRanges`, changed by as little as can be.

A layout cuts the hash space, 0 … `SPACE`, into ranges with an owner each; a server's ranges together are its
share by size. `rebalanced` moves it to other servers or sizes; `covered` stands in for servers that are away,
and has nothing to undo when they return. `SPACE` is a power of two, so that an edge is the same number here,
in JSON and in Rucio.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from prefetch.placement.rendezvous import scores
from replay.ranges import FloatArray, server_of

SPACE = 2**32
CELL = SPACE // 1024
"""What is dealt out of an absent server's share at once: fine enough for balance, few enough for a reply."""


class Range(NamedTuple):
    """Hashes from the range before up to `upper` belong to `owner`."""

    owner: str
    upper: int


Layout = tuple[Range, ...]


class _Piece(NamedTuple):
    start: int
    end: int
    owner: str


def shares(sizes: Mapping[str, float]) -> dict[str, int]:
    """`SPACE` divided by sizes, to the last unit (largest remainders, then by name)."""
    total = sum(sizes.values())
    exact = {name: sizes[name] / total * SPACE for name in sorted(sizes)}
    whole = {name: int(share) for name, share in exact.items()}
    left = SPACE - sum(whole.values())
    for name in heapq.nlargest(left, exact, key=lambda name: exact[name] - whole[name]):
        whole[name] += 1
    return whole


def rebalanced(layout: Layout, sizes: Mapping[str, float]) -> Layout:
    """`layout` changed so that each server holds its share by `sizes` (above 0), and others hold nothing.

    What moves is the least that can: what servers hold above their share. No servers: no ranges.
    """
    if not sizes:
        return ()
    target = shares(sizes)
    pieces = _pieces(layout or (Range("", SPACE),))
    kept, released = _released(pieces, target)
    held = _held(kept)
    missing = {name: target[name] - held.get(name, 0) for name in target}
    return _merged([*kept, *_granted(released, kept, missing)])


def covered(layout: Layout, sizes: Mapping[str, float], alive: Collection[str]) -> Layout:
    """`layout` with the ranges of servers not `alive` dealt out to those that are, by size and hash.

    It depends on who is alive, not on who died first: another death moves the dead one's ranges alone, and a
    return brings exactly the former ranges back. Nobody alive: no ranges.
    """
    stand_ins = sorted(set(alive) & {part.owner for part in layout})
    if not stand_ins:
        return ()
    pieces = []
    for piece in _pieces(layout):
        if piece.owner in alive:
            pieces.append(piece)
            continue
        cells = range(piece.start // CELL, -(-piece.end // CELL))
        ranking = scores(np.array(cells, np.uint64), stand_ins, [sizes[name] for name in stand_ins])
        for cell, best in zip(cells, ranking.argmax(axis=1).tolist(), strict=True):
            start, end = max(piece.start, cell * CELL), min(piece.end, (cell + 1) * CELL)
            pieces.append(_Piece(start, end, stand_ins[best]))
    return _merged(pieces)


def owner_of(layout: Layout, name: str) -> str:
    """The server that holds file `name`, as Rucio chooses it; `layout` has a range."""
    return layout[int(server_of([name], edges(layout))[0])].owner


def edges(layout: Layout) -> FloatArray:
    """The upper edges in 0 … 1."""
    return np.array([part.upper for part in layout], np.float64) / SPACE


def wire(layout: Layout, servers: Mapping[str, tuple[str, float]]) -> dict[str, list[list[object]]]:
    """The form that Rucio reads: `servers` are address and size by id."""
    order = sorted({part.owner for part in layout})
    index = {name: i for i, name in enumerate(order)}
    return {
        "servers": [list(servers[name]) for name in order],
        "ranges": [[index[part.owner], part.upper / SPACE] for part in layout],
    }


def _pieces(layout: Layout) -> list[_Piece]:
    starts = [0, *(part.upper for part in layout)]
    return [_Piece(start, part.upper, part.owner) for start, part in zip(starts, layout, strict=False)]


def _held(pieces: Iterable[_Piece]) -> dict[str, int]:
    held: dict[str, int] = {}
    for piece in pieces:
        held[piece.owner] = held.get(piece.owner, 0) + piece.end - piece.start
    return held


def _released(pieces: Sequence[_Piece], target: Mapping[str, int]) -> tuple[list[_Piece], list[_Piece]]:
    """What servers keep, and what they give away: the smallest ranges first, which keeps ranges few."""
    excess = {name: max(0, n - target.get(name, 0)) for name, n in _held(pieces).items()}
    kept, released = [], []
    for piece in sorted(pieces, key=lambda piece: (piece.end - piece.start, piece.start)):
        n = min(piece.end - piece.start, excess[piece.owner])
        excess[piece.owner] -= n
        if n:
            released.append(piece._replace(start=piece.end - n))
        if piece.start < piece.end - n:
            kept.append(piece._replace(end=piece.end - n))
    return kept, released


def _granted(released: Sequence[_Piece], kept: Sequence[_Piece], missing: dict[str, int]) -> list[_Piece]:
    """Released pieces given to servers that miss some: to a neighbour if it does, else by name."""
    before = {piece.end: piece.owner for piece in kept}
    after = {piece.start: piece.owner for piece in kept}
    granted: list[_Piece] = []
    for piece in sorted(released):
        start = piece.start
        while start < piece.end:
            near = (before.get(start, ""), after.get(piece.end, ""))
            receiver = next((name for name in near if missing.get(name)), "") or _first(missing)
            n = min(piece.end - start, missing[receiver])
            granted.append(_Piece(start, start + n, receiver))
            before[start + n] = receiver
            missing[receiver] -= n
            start += n
    return granted


def _first(missing: Mapping[str, int]) -> str:
    return min(name for name, n in missing.items() if n)


def _merged(pieces: Iterable[_Piece]) -> Layout:
    ranges: list[Range] = []
    for piece in sorted(pieces):
        if ranges and ranges[-1].owner == piece.owner:
            ranges.pop()
        ranges.append(Range(piece.owner, piece.end))
    return tuple(ranges)
