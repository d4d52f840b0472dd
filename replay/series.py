"""A popularity series as a trace: whole datasets of one size, read at most once in a unit of time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from replay.trace import Trace

Ints = npt.NDArray[np.int64]


def weekly_trace(names: Sequence[str], code: Ints, unit: Ints, *, unit_s: int) -> Trace:
    """One access, of size 1, per (dataset, unit) pair: `code` is the dataset's place in `names`.

    A unit begins at unit · `unit_s` s; its accesses follow each other by a second, in the order of the sha256
    of `unit:name`, so that no source's order is preferred and every run has the same.
    """
    digests = [
        hashlib.sha256(f"{u}:{names[c]}".encode()).hexdigest()
        for c, u in zip(code.tolist(), unit.tolist(), strict=True)
    ]
    order = np.lexsort((np.array(digests), unit))
    week = unit[order]
    place = np.arange(week.size) - np.searchsorted(week, week)
    return Trace(week * unit_s + place, code[order].astype(np.int32), np.ones(len(names), np.int64))
