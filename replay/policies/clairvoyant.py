"""Belady's policy, which knows the future, over whole files: evict the farthest next access.

With files of unequal size it is no bound on hits; on bytes it lies within 1e-4 of `replay.bounds`.
"""

from __future__ import annotations

import numpy as np

from replay.kernels.farthest import Positions, add, discard, farthest, no_positions
from replay.kernels.jit import kernel
from replay.planner import BoolArray
from replay.trace import Requests, Trace


def belady(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Admit every file that fits the cache. Returns the peak usage in bytes."""
    return _run(trace, capacity_bytes, False, hit)


def clairvoyant(trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """As `belady`, but a file that would itself be the farthest is passed by. Returns the peak usage."""
    return _run(trace, capacity_bytes, True, hit)


def _run(trace: Trace, capacity: int, bypass: bool, hit: BoolArray) -> int:
    positions = no_positions(trace.n_accesses)
    requests = Requests(trace.item, trace.size_bytes, trace.following)
    return int(_belady(requests, capacity, bypass, positions, hit))


@kernel
def _belady(
    requests: Requests,
    capacity: int,
    bypass: bool,
    positions: Positions,
    hit: BoolArray,
) -> int:
    item, size, following = requests
    n = item.size
    resident = np.zeros(size.size, np.bool_)
    dead = np.empty(size.size, np.int64)
    n_dead = 0
    used = 0
    peak = 0
    for i in range(n):
        file = item[i]
        if resident[file]:
            hit[i] = True
            discard(positions, i)
        else:
            need = int(size[file])
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
                    victim = np.int64(item[last])
                resident[victim] = False
                used -= int(size[victim])
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
