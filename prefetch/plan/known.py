"""What is not predicted but known: the files that jobs in a queue will read."""

from __future__ import annotations

import dataclasses

import numpy as np

from features.common.arrays import FloatArray, IntArray
from prefetch.plan.scores import NEVER_S, Scores


@dataclasses.dataclass(frozen=True, eq=False)
class KnownWork:
    """Files that queued jobs read, one entry each; `item` (dense file id) is unique, in no order.

    `n_jobs`: jobs that read the file; `wait_s`: until the first of them is expected to start, 0 or more.
    """

    item: IntArray
    size_bytes: IntArray
    n_jobs: IntArray
    wait_s: IntArray


def with_known(scores: Scores, work: KnownWork) -> Scores:
    """`scores` in which a read by a queued job is certain within every horizon that its start falls in.

    Files that were not scored are added. Work that starts after the longest horizon changes nothing.
    """
    near = work.wait_s <= scores.horizons_s[-1]
    item, size, wait_s = work.item[near], work.size_bytes[near], work.wait_s[near]
    if not item.size:
        return scores
    is_new = ~np.isin(item, scores.item)
    items = np.concatenate([scores.item, item[is_new]])
    probability = _widened(scores.probability, int(is_new.sum()))
    order = np.argsort(items)
    entry = order[np.searchsorted(items, item, sorter=order)]
    certain = np.array(scores.horizons_s)[:, None] >= wait_s[None, :]
    probability[:, entry] = np.where(certain, 1.0, probability[:, entry])
    n_jobs = np.append(scores.queued, np.zeros(int(is_new.sum()), np.int64))
    n_jobs[entry] = work.n_jobs[near]
    return Scores(
        scores.as_of_s,
        items,
        np.concatenate([scores.size_bytes, size[is_new]]),
        scores.horizons_s,
        probability,
        np.append(scores.last_read_s, np.full(int(is_new.sum()), NEVER_S)),
        n_jobs,
    )


def certain(work: KnownWork, *, as_of_s: int, horizon_s: int) -> Scores:
    """Scores of nothing but `work`, whatever its start: each file is read within `horizon_s`."""
    n = work.item.size
    return Scores(
        as_of_s,
        work.item,
        work.size_bytes,
        (horizon_s,),
        np.ones((1, n)),
        np.full(n, NEVER_S),
        work.n_jobs,
    )


def _widened(probability: FloatArray, n: int) -> FloatArray:
    """A copy of `probability` with `n` more columns of 0."""
    return np.concatenate([probability, np.zeros((probability.shape[0], n))], axis=1)
