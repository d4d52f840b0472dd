"""The control group: names, chosen by hash, that are never planned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from features.common.arrays import BoolArray

_KEY = "cachecastcontrol"
"""16 characters; the group must stay the same for as long as outcomes are compared against it."""


def is_control(dids: Sequence[str], share: float) -> BoolArray:
    """Which of `dids` (scope:name) are in the control group of about `share` of all names, bool[n]."""
    hashed = pd.util.hash_array(np.asarray(dids, dtype=object), hash_key=_KEY, categorize=False)
    chosen: BoolArray = hashed < np.uint64(min(int(share * 2**64), 2**64 - 1))
    return chosen
