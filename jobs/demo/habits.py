"""The reads of two caches side by side, those of a site whose users have habits, and their replay."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from jobs.demo.site import Marks
from jobs.simulate import workload
from replay.access_context import story
from replay.config import CacheConfig
from replay.engine import simulate
from replay.policies import run_policy
from replay.read import LoadedTrace
from replay.result import Result
from replay.steward import EvictionOrder, new_order
from replay.steward.replayed import Replayed
from replay.trace import Trace
from replay.workload import generate

READS: Final = 1800

_GENERATED: Final = 12_000
"""Reads of the generated site, of which the last ones are taken."""
_SCALE: Final = 5e-5
"""Of sizes: an AOD file has about 100 kB."""
_PAGE_BYTES: Final = 4096
_READS_PER_CHECK: Final = 12
"""Of XCache's disk by itself, as often as a steward looks at it."""


def reads(seed: int) -> Trace:
    """Reads in their order, one a second, with the names of the files."""
    made = generate(workload.load("site", seed=seed, accesses=_GENERATED)).accesses(raw=True)
    last = made.slice(made.num_rows - READS)
    names = last["name"].combine_chunks().dictionary_encode()
    item = names.indices.to_numpy()
    size_bytes = np.zeros(len(names.dictionary), np.int64)
    size_bytes[item] = last["size_bytes"].to_numpy()
    pages = np.maximum(1, np.round(size_bytes * _SCALE / _PAGE_BYTES)).astype(np.int64)
    return Trace(np.arange(item.size), item, pages * _PAGE_BYTES, names.dictionary.cast(pa.string()))


def names_read(trace: Trace) -> list[str]:
    """The name of the file of each read."""
    names = _names(trace)
    return [names[file] for file in trace.item.tolist()]


def sizes(trace: Trace) -> dict[str, int]:
    """The size of each file."""
    return dict(zip(_names(trace), trace.size_bytes.tolist(), strict=True))


def replay(trace: Trace, marks: Marks, order: str, held_bytes: int) -> Result:
    """The reads through a cache whose steward follows `order` and holds up to `held_bytes` at each read."""
    told = story(LoadedTrace(trace, 0, pa.table({}), ()))

    def live(_held_bytes: int) -> EvictionOrder:
        return new_order(order, marks.high_bytes, None)  # as a live cache's steward makes it

    return run_policy(order, trace, held_bytes, policy=Replayed(told, live))


def replay_purge(trace: Trace, marks: Marks) -> Result:
    """The reads through an XCache that purges by itself."""
    return simulate(trace, CacheConfig(*marks, purge_interval_s=_READS_PER_CHECK))


def _names(trace: Trace) -> list[str]:
    assert trace.names is not None
    names: list[str] = trace.names.to_pylist()
    return names
