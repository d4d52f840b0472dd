"""Chances of a read, corrected by what came of earlier predictions.

Models overrate what looks best to them: a pass over a dataset gives thousands of files the same history, and
what was learned from one pass says little of the next. So a plan looks at what was predicted one horizon ago,
two, and so on, and at which of those files were read within the horizon: later predictions have the last read
of each file.
"""

import logging
import math
import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np

from features.common.arrays import AnyFloatArray, FloatArray, Ids, IntArray
from features.common.errors import ServiceError, StaleInputError
from features.common.jit import bare
from prefetch.plan.scores import UNKNOWN, Chances, Scores, places

_log = logging.getLogger(__name__)

LOOKS = 3
"""So many earlier predictions are looked at, each a horizon before the next."""
LATEST = 2
"""Predictions that were made more than so many horizons before the next say nothing."""
EDGES = np.array([0.003, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9])
"""Chances between which files count together."""
SMALL, TERMS = 0.1, 8
"""Of chances below it a series says, right to a billionth, how much of them is due in a part of the time."""
BELIEVED = 3.0
"""So many of the reads that are expected in each of these classes count as seen."""


ScoresAt = Callable[[int], Scores]
"""The latest predictions at a time, or StaleInputError."""
EarlierAt = Callable[[int, int], Scores]
"""The same for a time and a horizon (s): only the chances within that and the last reads are needed."""


class _Looks:
    """What `_came_of` says by time, horizon and number of files, with the time before, of one source.

    Plans look back at the same predictions later, and those of other caches do: each look is made once.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[int, int, int], tuple[int, FloatArray | None]] = {}
        self._locks: dict[int, threading.Lock] = {}

    def at_one_horizon(self, length_s: int) -> threading.Lock:
        """Held while one looks: arrays of earlier predictions may change when a later time is asked for."""
        return self._locks.setdefault(length_s, threading.Lock())


_looks = WeakKeyDictionary[ScoresAt | EarlierAt, _Looks]()
"""By what gives earlier predictions."""


def proved(
    scores_at: ScoresAt, scores: Scores, horizon: int, n_files: int, earlier_at: EarlierAt | None = None
) -> Chances:
    """The chances of `scores` within a horizon (an index), less where they promised too much before.

    What a queue names keeps its chance, and teaches nothing. No chance is raised. `earlier_at`: for
    predictions before; None: `scores_at`. Several threads may look at once.
    """
    before = earlier_at or (lambda at_s, _: scores_at(at_s))
    length_s, at_s, sums = scores.horizons_s[horizon], scores.as_of_s, np.zeros((4, EDGES.size + 1))
    later: Scores | None = scores
    looks = _looks.setdefault(earlier_at or scores_at, _Looks())
    with looks.at_one_horizon(length_s):
        for _ in range(LOOKS):
            earlier: Scores | None = None
            key = at_s, length_s, n_files
            try:
                if key not in looks.known:
                    later = later or before(at_s, length_s)
                    earlier = before(later.as_of_s - length_s, length_s)
                    counts = _came_of(earlier, later, length_s, n_files)
                    looks.known[key] = later.as_of_s - length_s, counts
            except StaleInputError:
                break
            except ServiceError as error:  # a plan needs today's predictions only
                _log.warning("no chance is corrected by what came of predictions before: %s", error)
                break
            (at_s, counts), later = looks.known[key], earlier
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
    horizon, n_jobs = earlier.horizons_s.index(length_s), earlier.n_jobs
    sums = np.zeros((4, EDGES.size + 1))
    _count(
        (earlier.raised(horizon), np.zeros(0, np.int64) if n_jobs is None else n_jobs, earlier.item),
        (places(later, n_files), later.last_read_s),
        (earlier.as_of_s, later.as_of_s, length_s),
        np.empty(TERMS),
        sums,
    )
    return sums


@bare
def _count(
    earlier: tuple[AnyFloatArray, IntArray, IntArray],
    later: tuple[Ids, IntArray],
    times_s: tuple[int, int, int],
    terms: FloatArray,
    sums: FloatArray,
) -> None:
    """Add what `_came_of` says to `sums`.

    `earlier`: each file's chance, queued jobs (empty: no queue known) and number; `later`: the entry of each
    file by number, and the last reads by entry; `times_s`: of both, and the horizon's length; `terms`: an
    array for those of the series.
    """
    (chance, n_jobs, item), (place, last_read_s), (since_s, until_s, length_s) = earlier, later, times_s
    # Reads go on as before until the next predictions, which are made at certain times only. Those after the
    # last known one may be reported late, or a site rests: they were no promise in vain.
    known_s = since_s
    for read_s in last_read_s:
        if known_s < read_s <= until_s:
            known_s = read_s
    known_share = (known_s - since_s) / length_s
    for at in range(TERMS):
        terms[at] = (TERMS - at - known_share) / (TERMS - at + 1)
    for i in range(item.size):
        if not chance[i] > 0 or (n_jobs.size and n_jobs[i]):  # no chance, or one that is no number
            continue
        if item[i] >= place.size:
            raise IndexError("predictions of a file that is none of those planned for")
        stated, entry, at = min(float(chance[i]), 1 - 1e-9), place[item[i]], 0
        while at < EDGES.size and EDGES[at] < stated:
            at += 1
        sums[0, at] += stated
        if stated < SMALL:  # most are, and logarithms take most of the time
            series = 1.0
            for term in terms:
                series = 1 + term * stated * series
            sums[1, at] += known_share * stated * series
        else:
            sums[1, at] -= math.expm1(known_share * math.log1p(-stated))
        sums[2, at] += entry != UNKNOWN and last_read_s[entry] >= since_s
        sums[3, at] += 1
