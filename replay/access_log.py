"""A trace as the kernels of the XCache read it: accesses in time order, and the order of their closes."""

from __future__ import annotations

import numpy as np

from features.common.arrays import IntArray
from replay.config import CacheConfig
from replay.kernels.disk import AccessLog
from replay.trace import IndexArray, Trace


def access_log(trace: Trace, config: CacheConfig) -> AccessLog:
    """The accesses of `trace` for a cache with `config`; without blocks, files are read whole."""
    read = trace.read_bytes
    if read is None or config.block_bytes is None:
        read = np.zeros(0, np.int64)
    if trace.close_s is None:
        rank: IndexArray = np.zeros(0, np.int32)
        return AccessLog(trace.time_s, trace.item, read, rank, trace.time_s, trace.item)
    order = _by_close(trace.close_s)
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return AccessLog(trace.time_s, trace.item, read, rank, trace.close_s[order], trace.item[order])


def _by_close(close_s: IntArray) -> IntArray:
    """Indices of the accesses in the order of their closes; accesses with equal closes keep their order.

    Time and index are packed into one number, since sorting numbers is several times faster than an argsort.
    """
    index_bits = int(close_s.size).bit_length()
    first = int(close_s.min())
    time_bits = (int(close_s.max()) - first).bit_length()
    if time_bits + index_bits > 62:
        return np.argsort(close_s, kind="stable")
    packed = ((close_s - first) << index_bits) | np.arange(close_s.size)
    packed.sort()
    packed &= (1 << index_bits) - 1
    return packed
