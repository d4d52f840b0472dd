"""The trace zipf10m: 10 M requests whose popularity falls as rank^-0.9, log-normal sizes, 180 days."""

from __future__ import annotations

import numpy as np

from replay.trace import Trace

DAY_S = 86400


def zipf10m(n_requests: int = 10_000_000, n_files: int = 1_000_000) -> Trace:
    """The same trace every time: 897 423 files are read, 663 298 131 593 602 bytes in all."""
    rng = np.random.default_rng(20240601)
    share = np.cumsum(np.arange(1, n_files + 1) ** -0.9)
    rank = np.searchsorted(share / share[-1], rng.random(n_requests), side="left")
    item = rng.permutation(n_files)[rank].astype(np.int32)
    size_bytes = np.clip(rng.lognormal(np.log(400e6), 1.2, n_files), 1e6, 4e9).astype(np.int64)
    return Trace(np.sort(rng.integers(0, 180 * DAY_S, n_requests)), item, size_bytes)
