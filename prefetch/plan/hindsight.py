"""Chances of a read, corrected by what came of earlier predictions.

Models overrate what looks best to them: a pass over a dataset gives thousands of files the same history, and
what was learned from one pass says little of the next. So a plan looks at what was predicted one horizon ago,
two, and so on, and at which of those files were read within the horizon: later predictions have the last read
of each file.
"""

import functools
import logging
from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np

from features.common.arrays import FloatArray
from features.common.errors import ServiceError, StaleInputError
from prefetch.plan.scores import KEPT, UNKNOWN, Chances, Scores, places

_log = logging.getLogger(__name__)

LOOKS = 3
"""So many earlier predictions are looked at, each a horizon before the next."""
LATEST = 2
"""Predictions that were made more than so many horizons before the next say nothing."""
EDGES = np.array([0.003, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9])
"""Chances between which files count together."""
BELIEVED = 3.0
"""So many of the reads that are expected in each of these classes count as seen."""
AT_ONCE = 2**15
"""Files that are looked at together: a core's cache holds what is worked out of them."""


ScoresAt = Callable[[int], Scores]
"""The latest predictions at a time, or StaleInputError."""
_looks = WeakKeyDictionary[ScoresAt, dict[tuple[int, int, int], tuple[int, FloatArray | None]]]()
"""By time, horizon and number of files, the time before and what `_came_of` says: later plans, and
those of other caches, look back at the same predictions.
"""


@functools.lru_cache(maxsize=KEPT)
def proved(scores_at: ScoresAt, scores: Scores, horizon: int, n_files: int) -> Chances:
    """The chances of `scores` within a horizon (an index), less where they promised too much before.

    What a queue names keeps its chance, and teaches nothing. No chance is raised.
    """
    length_s, at_s, sums = scores.horizons_s[horizon], scores.as_of_s, np.zeros((4, EDGES.size + 1))
    later: Scores | None = scores
    known = _looks.setdefault(scores_at, {})
    for _ in range(LOOKS):
        earlier: Scores | None = None
        key = at_s, length_s, n_files
        try:
            if key not in known:
                later = later or scores_at(at_s)
                earlier = scores_at(later.as_of_s - length_s)
                known[key] = later.as_of_s - length_s, _came_of(earlier, later, length_s, n_files)
        except StaleInputError:
            break
        except ServiceError as error:  # a plan needs today's predictions only
            _log.warning("no chance is corrected by what came of predictions before: %s", error)
            break
        (at_s, counts), later = known[key], earlier
        if counts is None:
            break
        sums += counts
    stated, expected, read, n = sums[:, sums[0] > 0]
    return Chances(scores, horizon, stated / n, np.minimum(1, (read + BELIEVED) / (expected + BELIEVED)))


def _came_of(earlier: Scores, later: Scores, length_s: int, n_files: int) -> FloatArray | None:
    """By class of the chances in `earlier`, float64[4, k]: their sum, and the expected reads, the reads and
    the files until `later`; None: they cannot be compared.
    """
    is_near = later.as_of_s - earlier.as_of_s <= LATEST * length_s and length_s in earlier.horizons_s
    if not (is_near and later.item.size):
        return None
    # Reads go on as before until the next predictions, which are made at certain times only. Those after the
    # last known one may be reported late, or a site rests: they were no promise in vain.
    known_s = later.last_read_s[later.last_read_s <= later.as_of_s].max(initial=earlier.as_of_s)
    known_share = (known_s - earlier.as_of_s) / length_s
    horizon, place = earlier.horizons_s.index(length_s), places(later, n_files)
    every = np.arange(EDGES.size + 1)
    sums = np.zeros((4, every.size))
    for start in range(0, earlier.item.size, AT_ONCE):
        part = slice(start, start + AT_ONCE)
        chance = earlier.within(horizon, part)
        counts = np.flatnonzero((chance > 0) & (earlier.queued(part) == 0))
        chance, entry = np.minimum(chance[counts], 1 - 1e-9), place[earlier.item[part][counts]]
        was_read = (entry != UNKNOWN) & (later.last_read_s[entry] >= earlier.as_of_s)
        until = -np.expm1(known_share * np.log1p(-chance))
        classes = np.append(every, np.searchsorted(EDGES, chance))
        columns = (chance, until, was_read, np.ones(chance.size))
        sums = np.array([np.bincount(classes, np.append(*of)) for of in zip(sums, columns, strict=True)])
    return sums
