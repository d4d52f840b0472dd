"""What scores say of files: chances, hits per second, and of files without a score what their siblings do."""

import functools
from collections.abc import Callable
from typing import Literal

import numpy as np

from features.common.arrays import AnyFloatArray, AnyIntArray, BoolArray, FloatArray, IntArray
from features.common.jit import bare
from prefetch.plan.scores import EVERY, KEPT, UNKNOWN, Chances, Entries, Files, Scores, places

Forecast = Literal["chance", "longest", "rate"]
"""What a file's value is made of: its chance, that at the longest horizon, and hits per second."""


def hit_rate(scores: Scores, entry: Entries = EVERY) -> FloatArray:
    """Expected hits per second on disk of each of `entry`, float64[e].

    All horizons count, however old files get in the cache: without the long ones, what a file is worth that
    is read again later would jump as the eviction age changes.
    """
    rate = _rates(scores) if scores.rate is None else scores.rate
    return rate[entry].astype(np.float64, copy=False)


@functools.lru_cache(maxsize=KEPT)
def _rates(scores: Scores) -> FloatArray:
    return best_rate(scores.probability, scores.horizons_s)


def best_rate(probability: AnyFloatArray, horizons_s: tuple[int, ...]) -> FloatArray:
    """Reads per second, float64[n]: chance of a read / expected wait for it, at the horizon where it is best.

    The wait ends with the read or the horizon. `probability`: float[k, n], raised where it falls along k;
    between horizons it rises evenly.
    """
    n = probability.shape[1]
    before, waited, best = np.zeros(n), np.zeros(n), np.zeros(n)
    last_s = 0
    for horizon_s, probable in zip(horizons_s, probability, strict=True):
        chance = np.maximum(probable, before)
        waited += (horizon_s - last_s) * (1 - (chance + before) / 2)
        np.maximum(best, chance / waited, out=best)
        before, last_s = chance, horizon_s
    return best


def forecast_of(chances: Chances, kind: Forecast) -> Callable[[Entries], FloatArray]:
    """A forecast by entry."""
    if kind == "rate":
        return functools.partial(hit_rate, chances.scores)
    return chances.of if kind == "chance" else chances.scores.longest


def of_siblings(chances: Chances, files: Files, kind: Forecast, item: IntArray) -> FloatArray:
    """The mean of a forecast over the files read of an item's dataset, else of its tier, else of all.

    It is float64[n]. Files on disk alone would mislead: what is read again is not among them, as it is judged
    anew itself. A queue says nothing of the files that it does not name.
    """
    scores, values = chances.scores, forecast_of(chances, kind)
    means, is_read = np.zeros(item.size), _teaches(scores)
    if not is_read.any():
        return means
    # Sums of differences: the mean of equal values is exactly that value.
    base = values(is_read.argmax(keepdims=True))
    groups, of_item = np.unique(files.dataset[item].astype(np.int64), return_inverse=True)
    entry = places(scores, files.n)[files.members(groups[groups >= 0])].astype(np.int64)
    entry = entry[entry != UNKNOWN]
    entry = entry[is_read[entry]]
    member = np.searchsorted(groups, files.dataset[scores.item[entry]])
    count = np.bincount(member, minlength=groups.size)[of_item]
    total = np.bincount(member, weights=values(entry) - base, minlength=groups.size)[of_item]
    has_group = count > 0
    means[has_group] = base + total[has_group] / count[has_group]
    if not has_group.all():
        means[~has_group] = _of_tiers(chances, files, kind)[files.tier[item[~has_group]]]
    return means


def _of_tiers(chances: Chances, files: Files, kind: Forecast) -> FloatArray:
    """The mean of a forecast over each tier's files read, by code, float64[t + 1]; one must have been read.

    It is the mean of all where none of a tier was read, and in the last place, that of UNKNOWN. Plans of the
    same files by the same scores share what does not depend on the horizon.
    """
    known = chances.scores.means_by_tier.setdefault(files, {})
    if kind in known:
        return known[kind]
    values, is_read = forecast_of(chances, kind)(EVERY), _teaches(chances.scores)
    count, total = sums = np.zeros((2, int(files.tier.max()) + 2))
    base = float(values[is_read.argmax()])
    _add_by_tier(files.tier, chances.scores.item, is_read, values - base, sums)
    of_all = total.sum() / count.sum()
    means = base + np.where(count > 0, total / np.maximum(count, 1), of_all)
    means[UNKNOWN] = base + of_all
    if kind != "chance":
        known[kind] = means
    return means


@bare
def _add_by_tier(
    tier: AnyIntArray, item: IntArray, is_read: BoolArray, values: FloatArray, sums: FloatArray
) -> None:
    """Add the number of files read of each tier to sums[0], and their `values` to sums[1]."""
    for entry in range(item.size):
        if is_read[entry]:
            at = tier[item[entry]]
            sums[0, at] += 1
            sums[1, at] += values[entry]


def _teaches(scores: Scores) -> BoolArray:
    """Which entries were read, and are not named by a queue."""
    return scores.was_read if scores.n_jobs is None else scores.was_read & (scores.n_jobs == 0)
