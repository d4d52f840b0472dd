"""Files of which a planner knows nothing but what a test says."""

import numpy as np

from features.common.arrays import AnyIntArray, BoolArray, FloatArray
from prefetch.plan.scores import UNKNOWN, Files


def plain_files(n: int, **known: AnyIntArray | BoolArray | FloatArray) -> Files:
    """`n` files with the columns `known`; all others: planned by value, read whole, in no dataset."""
    unknown = np.full(n, UNKNOWN, np.int64)
    columns = {
        "is_control": np.zeros(n, np.bool_),
        "treatment": np.zeros(n, np.int64),
        "is_here": np.ones(n, np.bool_),
        "dataset": unknown,
        "tier": unknown,
        "origin": unknown,
        "read_share": np.ones(n),
        "saved_hours_per_byte": np.zeros(n),
        "barred": np.zeros(n, np.int64),
    }
    return Files(**(columns | known))  # type: ignore[arg-type]
