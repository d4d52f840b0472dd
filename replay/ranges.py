"""Which server of a federation holds a file: Rucio's `serverRanges`, weighted by capacity.

Rucio 41 hashes the name without its scope, and takes the first range whose upper edge is above that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def upper_edges(capacities: Sequence[int]) -> FloatArray:
    """Upper edges in 0 … 1 of the ranges of servers with these capacities, in their order; the last is 1."""
    edges = np.cumsum(np.asarray(capacities, np.float64))
    edges /= edges[-1]
    return edges


def positions(names: Iterable[str]) -> FloatArray:
    """Where names fall in 0 … 1: the first 8 bytes of the sha256 of the name without scope, little-endian."""
    bare = (name.partition(":")[2] or name for name in names)
    digests = b"".join(hashlib.sha256(name.encode()).digest()[:8] for name in bare)
    return np.frombuffer(digests, "<u8") / 2.0**64


def server_of(names: Iterable[str], edges: FloatArray) -> npt.NDArray[np.int64]:
    """Index of the server that holds each name."""
    index: npt.NDArray[np.int64] = np.searchsorted(edges, positions(names), side="right")
    # A hash next to 1 rounds to 1.
    return np.minimum(index, edges.size - 1)
