"""Accesses with the datasets and readers that a test chooses."""

from typing import Any

import numpy as np

from features.stream.state import Files
from replay.access_context import AccessContext
from replay.trace import Trace


def context_with(
    trace: Trace, dataset: Any = 0, reader: Any = 0, *, n_datasets: int | None = None
) -> AccessContext:
    """Files of `dataset` and accesses by `reader`: a number for each, or one for all."""
    m, datasets = trace.n_items, np.broadcast_to(dataset, trace.n_items).astype(np.int32)
    listed = np.zeros(n_datasets or int(datasets.max()) + 1, np.int64)
    files = Files(datasets, np.zeros(m, np.int32), trace.size_bytes, np.full(m, -1, np.int32), listed, np.inf)
    return AccessContext(files, listed.size, np.broadcast_to(reader, trace.n_accesses).astype(np.int64))
