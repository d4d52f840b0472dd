"""What a store of scores says of each file, as one array."""

import numpy as np

from features.common.arrays import FloatArray
from jobs.loop.evaluate.score_store import Reader, ScoreStore
from prefetch.plan.scores import UNKNOWN, places


def by_item(store: ScoreStore, scorer: str, at: int) -> FloatArray:
    """Item, size and chances by horizon, in the order of items."""
    scores = Reader(store, scorer, 1)(at)
    item = np.flatnonzero(places(scores, len(store.dids)) != UNKNOWN)
    return np.vstack([item, scores.size_bytes[item], scores.probability[:, item]])
