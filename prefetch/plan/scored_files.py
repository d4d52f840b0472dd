"""Files with their predictions and values: those on disk, and candidates that are not."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from prefetch.actions import Action
from prefetch.plan.items import Cause, Plan
from prefetch.plan.scores import NEVER_S, UNKNOWN, Files, Scores, places
from prefetch.plan.value import Objective, blended, hit_rate, recency, saved_per_hit
from replay.planner import CacheState


@dataclasses.dataclass(frozen=True, eq=False)
class ScoredFiles:
    """One entry per file. `size_bytes`: on disk, or to fetch; `last_use_s`: s since 1970, or NEVER_S.

    `probability`: of a read within the horizon that is shown; `longest`: within the longest; `value`:
    expected saving within the horizon that is shown, in the objective's unit; `density`: value per second and
    byte, blended with recency, which ranks the files of a plan; `cause`: codes of `Cause`; `n_jobs`: queued
    jobs that are known to read it.
    """

    item: IntArray
    size_bytes: IntArray
    probability: FloatArray
    longest: FloatArray
    value: FloatArray
    density: FloatArray
    was_read: BoolArray
    cause: IntArray
    n_jobs: IntArray
    last_use_s: IntArray

    def rows(self, action: Action, index: IntArray, cause: IntArray) -> Plan:
        """Plan items of the entries `index`, in that order, each with its `cause`."""
        return Plan(
            item=self.item[index],
            action=np.full(index.size, action.code, np.int64),
            rank=np.arange(1, index.size + 1, dtype=np.int64),
            cause=cause,
            probability=self.probability[index],
            value=self.value[index],
            size_bytes=self.size_bytes[index],
            was_read=self.was_read[index],
            n_jobs=self.n_jobs[index],
        )


def absent(
    state: CacheState,
    scores: Scores,
    files: Files,
    objective: Objective,
    shown: int,
    *,
    model_weight: float = 1.0,
    least: float = 0.0,
) -> ScoredFiles:
    """The candidates that are not on disk, with a probability of at least `least` at the horizon `shown`.

    With a `model_weight` of 0 only those that queued jobs will read.
    """
    is_here = np.zeros(files.n, np.bool_)
    is_here[state.item] = True
    counts = scores.never_falling[shown] >= least
    if model_weight == 0:
        counts &= scores.queued > 0
    entry = np.flatnonzero(~is_here[scores.item] & counts)
    item, size = scores.item[entry], scores.size_bytes[entry]
    judged = _Judged(
        scores.never_falling[shown, entry],
        scores.never_falling[-1, entry],
        hit_rate(scores)[entry],
        scores.queued[entry],
        scores.last_read_s[entry],
        np.where(scores.queued[entry] > 0, int(Cause.QUEUED), int(Cause.VALUE)),
    )
    gain = saved_per_hit(objective, files, item, size)
    was_read = scores.was_read[entry]
    return _valued(item, size, was_read, judged, gain, as_of_s=state.as_of_s, model_weight=model_weight)


def on_disk(
    state: CacheState,
    scores: Scores,
    files: Files,
    objective: Objective,
    shown: int,
    *,
    recent_s: int,
    model_weight: float = 1.0,
) -> ScoredFiles:
    """The files on disk.

    A file with a score keeps it, with its last use as of now. A file without one that was used within
    `recent_s` before the scores, or later, gets the mean of the files of its dataset that were read, or else
    of its tier, or else of all. Any other file without a score is worth nothing: nobody read it for longer
    than candidates are kept. Files that queued jobs will read count as such.
    """
    entry = places(scores, files.n)[state.item]
    n_jobs, last_use_s = np.append(scores.queued, 0)[entry], state.last_access_s
    known = entry != UNKNOWN
    is_new = ~known & (last_use_s >= scores.as_of_s - recent_s)
    columns = [scores.never_falling[shown], scores.never_falling[-1], hit_rate(scores)]
    values = [np.where(known, np.append(column, 0.0)[entry], 0.0) for column in columns]
    if is_new.any():
        for column, all_files in zip(values, columns, strict=True):
            column[is_new] = _siblings(scores, files, all_files, state.item[is_new])
    cause = np.where(known, int(Cause.VALUE), np.where(is_new, int(Cause.SIBLINGS), int(Cause.UNKNOWN)))
    cause[n_jobs > 0] = int(Cause.QUEUED)
    size = np.append(scores.size_bytes, 0)[entry]
    gain = saved_per_hit(objective, files, state.item, np.maximum(size, state.bytes_on_disk))
    was_read = np.ones(state.item.size, np.bool_)
    probability, longest, rate = values
    judged = _Judged(probability, longest, rate, n_jobs, last_use_s, cause)
    return _valued(
        state.item,
        state.bytes_on_disk,
        was_read,
        judged,
        gain,
        as_of_s=state.as_of_s,
        model_weight=model_weight,
    )


class _Judged(NamedTuple):
    """What is known of each file: predictions, queued jobs, last use, and codes of `Cause`."""

    probability: FloatArray
    longest: FloatArray
    rate: FloatArray
    n_jobs: IntArray
    last_use_s: IntArray
    cause: IntArray


def _valued(
    item: IntArray,
    size_bytes: IntArray,
    was_read: BoolArray,
    judged: _Judged,
    gain: FloatArray,
    *,
    as_of_s: int,
    model_weight: float,
) -> ScoredFiles:
    """The files with their values, of which a hit saves `gain`."""
    # In this order, so that files of equal chances that save their whole size are worth exactly the same.
    density = judged.rate * (gain / np.maximum(size_bytes, 1))
    # What a queued job will read is known, and a file without a last use has nothing but its rate.
    by_rate = (judged.n_jobs > 0) | (judged.last_use_s == NEVER_S)
    recent = np.where(by_rate, judged.rate, recency(as_of_s, judged.last_use_s))
    return ScoredFiles(
        item=item,
        size_bytes=size_bytes,
        probability=judged.probability,
        longest=judged.longest,
        value=judged.probability * gain,
        density=blended(density, recent, model_weight),
        was_read=was_read,
        cause=judged.cause,
        n_jobs=judged.n_jobs,
        last_use_s=judged.last_use_s,
    )


def _siblings(scores: Scores, files: Files, column: FloatArray, item: IntArray) -> FloatArray:
    """The mean of `column` over the files read of an item's dataset, else of its tier, else of all."""
    # Those on disk alone would mislead: what is read again is not among them, as it is judged anew itself.
    # A queue says nothing of the files it does not name.
    read = np.flatnonzero(scores.was_read & (scores.queued == 0))
    if not read.size:
        return np.zeros(item.size)
    mean = np.full(item.size, column[read[0]] + (column[read] - column[read[0]]).mean())
    for code in (files.tier, files.dataset):
        mean = _group_means(code[scores.item[read]], column[read], code[item], mean)
    return mean


def _group_means(group: IntArray, column: FloatArray, wanted: IntArray, default: FloatArray) -> FloatArray:
    """The mean of `column` over each wanted group; `default` where a group is unknown or empty."""
    n = 1 + int(max(group.max(initial=-1), wanted.max(initial=-1)))
    member = group >= 0
    count = np.append(np.bincount(group[member], minlength=n), 0)[wanted]
    # Sums of differences: the mean of equal values is exactly that value.
    base = column[0]
    total = np.append(np.bincount(group[member], weights=column[member] - base, minlength=n), 0.0)[wanted]
    found = (wanted >= 0) & (count > 0)
    return np.where(found, base + total / np.maximum(count, 1), default)
