"""The cache simulator libCacheSim, as the judge of ours: its own reader, its own loop over a whole trace."""

import time
from pathlib import Path
from typing import NamedTuple

import libcachesim
import numpy as np

from replay.trace import Trace

# Our names, and the classes that implement the same there. Its LFU-DA and 2Q differ from the papers.
JUDGED = {
    "lru": libcachesim.LRU,
    "fifo": libcachesim.FIFO,
    "lfu": libcachesim.LFU,
    "sieve": libcachesim.Sieve,
    "s3fifo": libcachesim.S3FIFO,
    "gdsf": libcachesim.GDSF,
    "clairvoyant": libcachesim.Belady,
}

_MAGIC = 0x123456789ABCDEF0
_RECORD = np.dtype(
    [("time", "<u4"), ("id", "<u8"), ("size", "<i8"), ("op", "<u4"), ("ttl", "<u4"), ("next", "<i8")]
)
_READ = 2


class Verdict(NamedTuple):
    """Both miss ratios at full precision, and the CPU seconds of its loop."""

    object_miss_ratio: float
    byte_miss_ratio: float
    cpu_seconds: float


def write_lcs(trace: Trace, path: Path) -> None:
    """Write `trace` as LCS version 3, the one of its formats with 64-bit sizes."""
    n = trace.n_accesses
    size = trace.size_bytes[trace.item]
    header = np.zeros(1024, "<u8")
    header[[0, 1023]] = _MAGIC
    header[1:9] = [
        3,
        1,
        n,
        np.unique(trace.item).size,
        size.sum(),
        trace.footprint_bytes,
        trace.time_s[0],
        trace.time_s[-1],
    ]
    records = np.zeros(n, _RECORD)
    records["time"], records["id"], records["size"], records["op"] = trace.time_s, trace.item, size, _READ
    records["next"] = np.where(trace.following < n, trace.following.astype(np.int64) + 1, -1)
    with path.open("wb") as file:
        header.tofile(file)
        records.tofile(file)


def judge(policy: str, path: Path, capacity_bytes: int, *, hashpower: int = 20) -> Verdict:
    """What libCacheSim gets on the LCS file at `path`."""
    reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.LCS_TRACE)
    cache = JUDGED[policy](capacity_bytes, hashpower=hashpower)
    started = time.process_time()
    objects, in_bytes = cache.process_trace(reader)
    return Verdict(objects, in_bytes, time.process_time() - started)
