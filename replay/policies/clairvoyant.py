"""Belady's policy, which knows the future, for whole files: evict the file with the farthest next access.

With files of different sizes it is no bound on hits; its bytes are within 1e-4 of `replay.bounds`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray
from features.common.jit import bare
from replay.kernels.accesses import Accesses, accesses
from replay.kernels.farthest import Positions, add, discard, farthest, no_positions
from replay.trace import IndexArray, Trace


class Residents(NamedTuple):
    """`resident`: per file; `dead`: a stack of the resident files that are never read again."""

    resident: BoolArray
    dead: IndexArray


def clairvoyant(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Admit every file that fits the cache. Returns the peak usage in bytes."""
    return _replay(trace, capacity_bytes, False, hit)


def clairvoyant_bypass(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Like `clairvoyant`, but bypass a file whose own next access is the farthest; the peak usage."""
    return _replay(trace, capacity_bytes, True, hit)


def _replay(trace: Trace, capacity: int, bypass: bool, hit: BoolArray) -> int:
    m = trace.n_items
    residents = Residents(np.zeros(m, np.bool_), np.empty(m, np.int32))
    positions = no_positions(trace.n_accesses)
    return int(_run(accesses(trace, capacity, hit), trace.following, bypass, positions, residents))


@bare
def _run(
    reads: Accesses, following: IndexArray, bypass: bool, positions: Positions, residents: Residents
) -> int:
    item, size, capacity, hit = reads
    resident, dead = residents
    n = item.size
    n_dead = 0
    used = 0
    peak = 0
    for i in range(n):
        file = item[i]
        if resident[file]:
            hit[i] = True
        else:
            need = size[file]
            if need > capacity:
                continue
            while used + need > capacity:
                if n_dead > 0:
                    n_dead -= 1
                    victim = dead[n_dead]
                else:
                    last = farthest(positions)
                    if bypass and following[i] >= last:
                        break
                    discard(positions, last)
                    victim = item[last]
                resident[victim] = False
                used -= size[victim]
            if used + need > capacity:
                continue
            resident[file] = True
            used += need
            peak = max(peak, used)
        if following[i] < n:
            add(positions, int(following[i]))
        else:
            dead[n_dead] = file
            n_dead += 1
    return peak
