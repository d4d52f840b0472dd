"""A popularity series as a trace: datasets of size 1, read at most once in a unit of time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from replay.planner import IntArray
from replay.trace import Trace


def weekly_trace(names: Sequence[str], code: IntArray, unit: IntArray, *, unit_s: int) -> Trace:
    """One access, of size 1, per (dataset, unit) pair; `code` is the dataset's index in `names`.

    Unit u begins at u · `unit_s` s. Its accesses follow each other by one second, in the order of the sha256
    of `unit:name`: the order does not depend on the source, and every run has the same.
    """
    digests = [
        hashlib.sha256(f"{u}:{names[c]}".encode()).hexdigest()
        for c, u in zip(code.tolist(), unit.tolist(), strict=True)
    ]
    order = np.lexsort((np.array(digests), unit))
    week = unit[order]
    place = np.arange(week.size) - np.searchsorted(week, week)
    return Trace(week * unit_s + place, code[order].astype(np.int32), np.ones(len(names), np.int64))
