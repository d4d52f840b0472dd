"""Chances of a read, corrected by what came of earlier predictions.

Models overrate what looks best to them: a pass over a dataset gives thousands of files the same history, and
what was learned from one pass says little of the next. So a plan looks at what was predicted one horizon ago,
two, and so on, and at which of those files were read within the horizon. Later predictions have the last read
of each file; nothing else is asked.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from features.common.arrays import FloatArray
from prefetch.plan.scores import KEPT, UNKNOWN, Scores, places

LOOKS = 3
"""So many earlier predictions are looked at, each a horizon before the next."""
OFF = 0.1
"""Predictions that were made by this share of the horizon too early or too late say nothing."""
EDGES = np.array([0.003, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9])
"""Chances between which files count together."""
BELIEVED = 3.0
"""So many of the reads that are expected in each of these classes count as seen."""

Past = Callable[[int], Scores | None]
"""The latest predictions at a time, without what queues say; None: there are none."""


class Hindsight(NamedTuple):
    """A rising map of chances: what proved `true` of those `stated`, float64[k] each."""

    stated: FloatArray
    true: FloatArray

    def within(self, scores: Scores, horizon: int) -> FloatArray:
        """The chances of `scores` at a horizon's index, corrected where no queued job reads the file."""
        stated = scores.within(horizon)
        return np.where(scores.queued > 0, stated, np.interp(stated, self.stated, self.true))


AS_STATED = Hindsight(np.array([0.0, 1.0]), np.array([0.0, 1.0]))


@functools.lru_cache(maxsize=KEPT)
def hindsight(past_at: Past, scores: Scores, horizon: int, n_files: int) -> Hindsight:
    """What the chances of `scores` at the horizon of this index are worth, by the predictions before them."""
    length_s, later = scores.horizons_s[horizon], scores
    sums = np.zeros((3, EDGES.size + 1))
    for _ in range(LOOKS):
        earlier = past_at(later.as_of_s - length_s)
        if earlier is None or length_s not in earlier.horizons_s:
            break
        if abs(later.as_of_s - earlier.as_of_s - length_s) <= OFF * length_s:
            sums += _came_of(earlier, later, earlier.horizons_s.index(length_s), n_files)
        later = earlier
    stated, read, n = sums[:, sums[2] > 0]
    if not n.size:
        return AS_STATED
    at = stated / n
    true = np.maximum.accumulate(at * (read + BELIEVED) / (stated + BELIEVED))
    most = min(1.0, float(true[-1] / at[-1])) if at[-1] > 0 else 1.0
    return Hindsight(np.concatenate([[0.0], at, [1.0]]), np.concatenate([[0.0], true, [max(most, true[-1])]]))


def _came_of(earlier: Scores, later: Scores, horizon: int, n_files: int) -> FloatArray:
    """By class of the chances in `earlier`: their sum, the files read since, and all files, float64[3, k]."""
    entry = places(later, n_files)[earlier.item]
    was_read = (entry != UNKNOWN) & (later.last_read_s[entry] >= earlier.as_of_s)
    chance = earlier.within(horizon)
    classes = np.searchsorted(EDGES, chance)
    return np.array([np.bincount(classes, of, EDGES.size + 1) for of in (chance, was_read, None)])
