"""Which server of a site holds a file: Rucio's `serverRanges`, computed from capacities alone.

Rucio 41 hashes the name without its scope to 0 … 1, and takes the first range whose upper edge is above the
hash. A layout divides that space into ranges, each with an owner. It is a pure function of the servers' names
and capacities: planner, placement service and replay compute the same layout wherever they run, and no
history is needed (docs/adr/0009-owner-layout.md).

Slots prefer servers by weighted rendezvous hashing: a server comes first for a share of the keys that is
proportional to its weight, and if it is removed, only its keys choose another. Source: Schindelhauer and
Schomaker, "Weighted distributed hash tables" (SPAA 2005), with the logarithmic form of the score.
"""

import dataclasses
import functools
import hashlib
import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.common.arrays import FloatArray
from features.common.hashes import Words, mixed

KeyArray = Words


def key_of(text: str) -> int:
    """64 bits of the sha256 of `text`."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "little")


def keys_of(texts: Iterable[str]) -> KeyArray:
    """`key_of` of each text, uint64[n]."""
    return np.fromiter((key_of(text) for text in texts), np.uint64)


def scores(keys: KeyArray, names: Sequence[str], weights: Sequence[float]) -> FloatArray:
    """How much each key prefers each name, float[n, s]; higher is better. Weights are above 0."""
    salted = keys[:, None] ^ keys_of(names)[None, :]
    uniform = (mixed(salted) >> np.uint64(11)).astype(np.float64) + 0.5
    return np.asarray(weights, np.float64) / -np.log(uniform / 2.0**53)


OwnerArray = npt.NDArray[np.object_]

SPACE = 2**32
"""Units of the hash space: a power of two, so that an edge is the same number here, in JSON and in Rucio."""
SLOTS = 512
"""Parts of the space that are assigned whole, except where a server's share ends. With this many a change of
servers moves little more than necessary, and the list is short enough for Rucio, which reads it per file."""
SLOT = SPACE // SLOTS


class Range(NamedTuple):
    """Hashes from the range before up to `upper` (units of SPACE) belong to `owner`."""

    owner: str
    upper: int


@dataclasses.dataclass(frozen=True)
class Layout:
    """The ranges of a site, ascending up to SPACE; empty if it has no server."""

    ranges: tuple[Range, ...] = ()

    def owners_of(self, names: Iterable[str]) -> OwnerArray:
        """The server that Rucio chooses for each of `names` (dids or names); the layout must not be empty."""
        uppers, owners = self._arrays
        index = np.searchsorted(uppers, positions(names), side="right")
        # A hash just below 1 is rounded to 1.
        owner: OwnerArray = owners[np.minimum(index, owners.size - 1)]
        return owner

    @functools.cached_property
    def _arrays(self) -> tuple[FloatArray, OwnerArray]:
        uppers = np.array([part.upper for part in self.ranges], np.float64) / SPACE
        return uppers, np.array([part.owner for part in self.ranges], np.object_)


def layout_of(sizes: Mapping[str, float]) -> Layout:
    """The layout of servers with these capacities, above 0 and in any unit.

    Each server's part is proportional to its capacity, to one unit of SPACE. The order of `sizes` does not
    matter. Without servers there are no ranges.
    """
    return _layout(tuple(sorted(sizes.items())))


def covered(layout: Layout, sizes: Mapping[str, float], alive: Collection[str]) -> Layout:
    """`layout` with the ranges of servers that are not `alive` given to the others, by size and hash.

    It depends on which servers are alive, not on the order in which they stopped: if another one stops, only
    its ranges move, and when it returns, it has exactly the same ranges again. No ranges if nobody is alive.
    """
    owners = {part.owner for part in layout.ranges}
    stand_ins = {name: sizes[name] for name in sorted(owners & set(alive))}
    if owners == stand_ins.keys():
        return layout
    return merged(_covered(layout, stand_ins)) if stand_ins else Layout()


def shares(sizes: Mapping[str, float]) -> dict[str, int]:
    """SPACE divided in proportion to `sizes`; units left over go to the largest remainders, then by name."""
    # Fractions, because the rounding of floats would depend on the unit of the sizes.
    exact = {name: Fraction(sizes[name]) for name in sorted(sizes)}
    total = sum(exact.values())
    exact = {name: size * SPACE / total for name, size in exact.items()}
    whole = {name: int(share) for name, share in exact.items()}
    left = SPACE - sum(whole.values()) if whole else 0
    for name in heapq.nlargest(left, exact, key=lambda name: exact[name] - whole[name]):
        whole[name] += 1
    return whole


def positions(names: Iterable[str]) -> FloatArray:
    """Hashes of names in 0 … 1: the first 8 bytes of the name's sha256, little-endian, without its scope."""
    bare = (name.partition(":")[2] or name for name in names)
    digests = b"".join(hashlib.sha256(name.encode()).digest()[:8] for name in bare)
    return np.frombuffer(digests, "<u8") / 2.0**64


def preferences(servers: Mapping[str, float]) -> FloatArray:
    """How much each slot prefers each server (weights by name), float[slots, servers]; higher is better."""
    return scores(np.arange(SLOTS, dtype=np.uint64), list(servers), list(servers.values()))


def merged(ranges: Iterable[Range]) -> Layout:
    """A layout of ascending ranges, in which neighbours with one owner are merged."""
    neighbours: list[Range] = []
    for part in ranges:
        if neighbours and neighbours[-1].owner == part.owner:
            neighbours.pop()
        neighbours.append(part)
    return Layout(tuple(neighbours))


def _covered(layout: Layout, stand_ins: Mapping[str, float]) -> Iterator[Range]:
    names = list(stand_ins)
    best = preferences(stand_ins).argmax(axis=1).tolist()
    start = 0
    for owner, upper in layout.ranges:
        if owner in stand_ins:
            yield Range(owner, upper)
        else:
            for slot in range(start // SLOT, -(-upper // SLOT)):
                yield Range(names[best[slot]], min(upper, (slot + 1) * SLOT))
        start = upper


@functools.lru_cache(maxsize=1024)
def _layout(sizes: tuple[tuple[str, float], ...]) -> Layout:
    """Assign slots by descending preference; a server takes what the slot and its own share still have."""
    units = {name: n for name, n in shares(dict(sizes)).items() if n}
    if not units:
        return Layout()
    names, left = list(units), list(units.values())
    free = [SLOT] * SLOTS
    taken: list[list[tuple[str, int]]] = [[] for _ in range(SLOTS)]
    # The weights are shares, not sizes, so that the result does not depend on the unit.
    order = np.argsort(-preferences(units), axis=None, kind="stable")
    for pair in order.tolist():
        slot, server = divmod(pair, len(names))
        n = min(free[slot], left[server])
        if n:
            free[slot] -= n
            left[server] -= n
            taken[slot].append((names[server], n))
    return merged(_ranges(taken))


def _ranges(taken: Iterable[Iterable[tuple[str, int]]]) -> Iterator[Range]:
    upper = 0
    for parts in taken:
        for owner, n in parts:
            upper += n
            yield Range(owner, upper)
