"""Files in the order of their last use, as a ring of links: any file leaves or joins it in one step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import Ids
from features.common.jit import bare


class Recency(NamedTuple):
    """The neighbours of each of `m` files, int32[m + 1]: entry m is between the newest and the oldest."""

    older: Ids
    newer: Ids


def no_files(n_files: int) -> Recency:
    """Room for `n_files` files, with none in order."""
    return Recency(*(np.full(n_files + 1, n_files, np.int32) for _ in range(2)))


@bare
def oldest(recency: Recency) -> int:
    """The file that was used longest ago, of one or more."""
    return int(recency.newer[recency.newer.size - 1])


@bare
def append(recency: Recency, file: int) -> None:
    """Add a file that is not in the order, as the newest."""
    end = recency.newer.size - 1
    before = recency.older[end]
    recency.newer[before], recency.older[file] = file, before
    recency.newer[file], recency.older[end] = end, file


@bare
def unlink(recency: Recency, file: int) -> None:
    """Take a file out of the order."""
    older, newer = recency.older[file], recency.newer[file]
    recency.newer[older], recency.older[newer] = newer, older
