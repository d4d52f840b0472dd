"""Belady's policy, which knows the future, for whole files: evict the file with the farthest next access.

With files of different sizes it is no bound on hits; its bytes are within 1e-4 of `replay.bounds`.
"""

from __future__ import annotations

from functools import partial
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


def farthest_goes(bypass: bool, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the file with the farthest next access until the new one fits. Returns the peak usage in bytes.

    `bypass`: a file whose own next access is the farthest is read past the cache.
    """
    m = trace.n_items
    residents = Residents(np.zeros(m, np.bool_), np.empty(m, np.int32))
    positions = no_positions(trace.n_accesses)
    return int(_run(accesses(trace, capacity_bytes, hit), trace.following, bypass, positions, residents))


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


clairvoyant = partial(farthest_goes, False)
"""Every file that fits the cache is admitted."""
clairvoyant_bypass = partial(farthest_goes, True)
"""Files that would be evicted first are not admitted."""
