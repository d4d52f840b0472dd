"""The result of a policy that caches parts of files."""

from __future__ import annotations

import numpy as np

from replay.kernels.tally import FETCHED, HIT_BYTES, HITS, REQUESTED, empty_tally
from replay.policies.policy import Served
from replay.result import Result, tallied
from replay.trace import Trace
from replay.window import Window


def summarise_parts(
    policy: str, trace: Trace, served: Served, *, capacity_bytes: int, counted: Window, seconds: float
) -> Result:
    """The Result of the accesses of the window `counted`."""
    tally = empty_tally(trace.time_s[counted.first :])
    columns = {
        HITS: served.hit,
        REQUESTED: served.asked_bytes,
        HIT_BYTES: served.hit_bytes,
        FETCHED: served.fetched_bytes,
    }
    for column, amount in columns.items():
        tally.sums[:, column] = np.add.reduceat(amount[counted.first :].astype(np.int64), tally.first[:-1])
    return tallied(
        policy,
        tally,
        capacity_bytes=capacity_bytes,
        count_from_s=counted.count_from_s,
        peak_usage_bytes=served.peak_bytes,
        seconds=seconds,
    )
