"""Eviction by frequency, with or without ageing and size: LFU, LFU-DA and GDSF are one loop."""

from functools import partial
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray
from features.common.jit import bare, inner
from replay.kernels.accesses import AHEAD, Accesses, accesses, fetch
from replay.kernels.heap import Entry, Heap, fill, push, replace
from replay.trace import IndexArray, Trace


class Value(NamedTuple):
    """What a policy orders files by: L + frequency, or L + frequency · 1e6 / size (`by_size`).

    L is the key of the last victim with `ageing`, else 0. `newcomer_may_go`: insert first, then evict, which
    may hit the new file itself; otherwise make room first.
    """

    by_size: bool
    ageing: bool
    newcomer_may_go: bool


class Files(NamedTuple):
    """State per file: accesses since it came in (0: absent), index of the last one, key."""

    frequency: IndexArray
    last: IndexArray
    key: FloatArray


def least_valuable(value: Value, trace: Trace, capacity_bytes: int, hit: BoolArray) -> int:
    """Evict the smallest key, on a tie the least recently used. Returns the peak usage in bytes."""
    m = trace.n_items
    files = Files(np.zeros(m, np.int32), np.empty(m, np.int32), np.empty(m, np.float64))
    heap = Heap(np.empty(m, np.float64), np.empty(m, np.int32), np.empty(m, np.int32))
    return int(_run(accesses(trace, capacity_bytes, hit), value, files, heap))


@bare
def _run(reads: Accesses, value: Value, files: Files, heap: Heap) -> int:
    item, size, capacity, hit = reads
    frequency, last, key = files
    n = item.size
    inflation = 0.0
    count = 0
    used = 0
    peak = 0
    for i in range(n):
        file = item[i]
        if i + AHEAD < n:
            fetch(frequency, item[i + AHEAD])
            fetch(size, item[i + AHEAD])
        need = size[file]
        if need > capacity:
            continue
        present = frequency[file] > 0
        hit[i] = present
        frequency[file] += 1
        last[file] = i
        worth = frequency[file] * 1e6 / max(need, 1) if value.by_size else float(frequency[file])
        key[file] = inflation + worth
        if present:
            continue
        used += need
        # The last victim's place at the top is left for the newcomer, which saves one pass through the heap.
        vacant = False
        while used > capacity:
            if vacant:
                count -= 1
                fill(heap, count)
            victim = _least(heap, count, files)
            vacant = not (value.newcomer_may_go and key[file] < key[victim])
            if not vacant:
                victim = int(file)
            frequency[victim] = 0
            used -= size[victim]
            if value.ageing:
                inflation = key[victim]
        if frequency[file] == 0:
            continue
        if not value.newcomer_may_go:
            key[file] = inflation + worth
        entry = Entry(key[file], i, int(file))
        if vacant:
            replace(heap, count, entry)
        else:
            push(heap, count, entry)
            count += 1
        peak = max(peak, used)
    return peak


@inner
def _least(heap: Heap, count: int, files: Files) -> int:
    """The file with the smallest current key."""
    while True:
        file = int(heap.what[0])
        if heap.tie[0] == files.last[file]:
            return file
        replace(heap, count, Entry(files.key[file], int(files.last[file]), file))


lfu = partial(least_valuable, Value(by_size=False, ageing=False, newcomer_may_go=False))
"""Least frequently used: evict the file with the fewest accesses since it came in."""
lfu_da = partial(least_valuable, Value(by_size=False, ageing=True, newcomer_may_go=False))
"""LFU with dynamic ageing (Arlitt et al., 2000): a formerly popular file does not stay forever."""
gdsf = partial(least_valuable, Value(by_size=True, ageing=True, newcomer_may_go=True))
"""Greedy-Dual-Size-Frequency (Cherkasova, 1998): favours hits over bytes; an empty file counts 1 byte."""
