"""Files with what the plan needs to judge them: those on disk, and candidates that are not."""

from __future__ import annotations

import dataclasses

import numpy as np

from prefetch.actions import Action
from prefetch.plan.items import Cause, FloatArray, Plan
from prefetch.plan.scores import UNKNOWN, Files, Scores, places
from prefetch.plan.value import Objective, hit_rate, saved_per_hit
from replay.planner import BoolArray, CacheState, IntArray


@dataclasses.dataclass(frozen=True, eq=False)
class Valued:
    """One entry per file. `size_bytes`: on disk, or to fetch; `density`: value per second and byte of that.

    `cause`: codes of `Cause`, why it is worth so; `longest`: probability within the longest horizon;
    `n_jobs`: queued jobs that are known to read it.
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


def absent(state: CacheState, scores: Scores, files: Files, objective: Objective, shown: int) -> Valued:
    """The candidates that are not on disk."""
    is_here = np.zeros(files.n, np.bool_)
    is_here[state.item] = True
    entry = np.flatnonzero(~is_here[scores.item])
    item, size = scores.item[entry], scores.size_bytes[entry]
    gain = saved_per_hit(objective, files, item, size)
    probability = scores.never_falling[shown, entry]
    return Valued(
        item=item,
        size_bytes=size,
        probability=probability,
        longest=scores.never_falling[-1, entry],
        value=probability * gain,
        density=hit_rate(scores)[entry] * gain / np.maximum(size, 1),
        was_read=scores.was_read[entry],
        cause=np.where(scores.queued[entry] > 0, int(Cause.QUEUED), int(Cause.VALUE)),
        n_jobs=scores.queued[entry],
    )


def on_disk(
    state: CacheState, scores: Scores, files: Files, objective: Objective, shown: int, *, recent_s: int
) -> Valued:
    """The files on disk.

    One that was read since the scores were made is judged by its siblings: the mean of its dataset's files
    that were read, else of its tier's, else of all. The same holds for one without a score that was read
    within `recent_s`; another without a score is worth nothing: nobody read it for longer than candidates
    are kept. What queued jobs will read is judged by that.
    """
    entry = places(scores, files.n)[state.item]
    n_jobs = np.append(scores.queued, 0)[entry]
    read_since = (state.last_access_s >= scores.as_of_s) & (scores.as_of_s < state.as_of_s)
    is_new = read_since | ((entry == UNKNOWN) & (state.last_access_s >= scores.as_of_s - recent_s))
    is_new &= n_jobs == 0
    known = (entry != UNKNOWN) & ~is_new
    columns = [scores.never_falling[shown], scores.never_falling[-1], hit_rate(scores)]
    values = [np.where(known, np.append(column, 0.0)[entry], 0.0) for column in columns]
    if is_new.any():
        for column, all_files in zip(values, columns, strict=True):
            column[is_new] = _siblings(scores, files, all_files, state.item[is_new])
    probability, longest, rate = values
    size = np.append(scores.size_bytes, 0)[entry]
    gain = saved_per_hit(objective, files, state.item, np.maximum(size, state.bytes_on_disk))
    cause = np.where(known, int(Cause.VALUE), np.where(is_new, int(Cause.SIBLINGS), int(Cause.UNKNOWN)))
    cause[n_jobs > 0] = int(Cause.QUEUED)
    return Valued(
        item=state.item,
        size_bytes=state.bytes_on_disk,
        probability=probability,
        longest=longest,
        value=probability * gain,
        density=rate * gain / np.maximum(state.bytes_on_disk, 1),
        was_read=np.ones(state.item.size, np.bool_),
        cause=cause,
        n_jobs=n_jobs,
    )


def _siblings(scores: Scores, files: Files, column: FloatArray, item: IntArray) -> FloatArray:
    """The mean of `column` over the files read of an item's dataset, else of its tier, else of all."""
    # Those on disk alone would mislead: what is read again is not among them, as it is judged anew itself.
    # A queue says nothing of the files it does not name.
    read = np.flatnonzero(scores.was_read & (scores.queued == 0))
    if not read.size:
        return np.zeros(item.size)
    mean = np.full(item.size, column[read].mean())
    for code in (files.tier, files.dataset):
        mean = _group_means(code[scores.item[read]], column[read], code[item], mean)
    return mean


def _group_means(group: IntArray, column: FloatArray, wanted: IntArray, default: FloatArray) -> FloatArray:
    """The mean of `column` over each wanted group; `default` where a group is unknown or empty."""
    n = 1 + int(max(group.max(initial=-1), wanted.max(initial=-1)))
    member = group >= 0
    count = np.bincount(group[member], minlength=n)
    total = np.bincount(group[member], weights=column[member], minlength=n)
    found = (wanted >= 0) & (np.append(count, 0)[wanted] > 0)
    mean = np.append(total, 0.0)[wanted] / np.maximum(np.append(count, 0)[wanted], 1)
    return np.where(found, mean, default)
