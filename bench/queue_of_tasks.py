"""The batch queue that a generated region would have had: what is waiting to be read, and its faults."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from features.common.arrays import FloatArray, Ids, IntArray
from features.common.times import DAY_S, HOUR_S
from jobs.loop.ingest.announced import DOUBTED, share_kept
from replay.access_context import QueuedReads
from replay.kernels.scored_files import SOON_S
from replay.trace import Trace


@dataclasses.dataclass(frozen=True)
class QueueOf:
    """How a region's queue is known.

    Each task is queued from `lead_s` before its first read on, and expected to begin then. Its files leave
    the queue one by one, as the task reads them. The queue is read each `every_s`, `late_s` after it was so.
    `missing`: share of the tasks that no queue names; `wrong`: share of them that name the files of another
    task, which nobody reads for them: they stay for a day after the task began.
    """

    lead_s: int
    late_s: int = 0
    missing: float = 0.0
    wrong: float = 0.0
    every_s: int = HOUR_S // 2


class Entries(NamedTuple):
    """What a queue announces: `file` at `due_s`, from `begins_s` until `ends_s`."""

    file: Ids
    due_s: FloatArray
    begins_s: FloatArray
    ends_s: FloatArray


def queue_of(trace: Trace, task: IntArray, how: QueueOf, rng: np.random.Generator) -> QueuedReads:
    """What the queue says; `task`: of each access, below 0 for none."""
    return merged_queues([announced(trace, task, how, rng)])


def announced(trace: Trace, task: IntArray, how: QueueOf, rng: np.random.Generator) -> Entries:
    """What the queue announces; `task`: of each access, below 0 for none."""
    named = np.flatnonzero(task >= 0)
    pairs = np.column_stack([task[named], trace.item[named].astype(np.int64)])
    _, first = np.unique(pairs, axis=0, return_index=True)  # a task's first read of each file
    at = named[first]
    of, file, read_s = task[at], trace.item[at], trace.time_s[at].astype(np.float64)
    tasks, of = np.unique(of, return_inverse=True)
    begin_s = np.full(tasks.size, np.inf)
    np.minimum.at(begin_s, of, read_s)
    drawn = rng.random(tasks.size)
    other = rng.permutation(tasks.size)
    is_wrong = drawn > 1 - how.wrong
    shown = np.where(is_wrong, other, np.arange(tasks.size))
    counts = np.bincount(of)
    ends = np.cumsum(counts)
    rows = [np.arange(ends[t] - counts[t], ends[t]) for t in shown]
    place = np.concatenate(rows)
    owner = np.repeat(np.arange(tasks.size), [row.size for row in rows])
    done_s = np.where(is_wrong[owner], begin_s[owner] + DAY_S, read_s[place])
    is_named = drawn[owner] >= how.missing
    due_s = begin_s[owner]
    begins_s, ends_s = (
        np.ceil(times_s / how.every_s) * how.every_s + how.late_s for times_s in (due_s - how.lead_s, done_s)
    )
    is_seen = is_named & (begins_s < ends_s)
    return Entries(*(column[is_seen] for column in (file[place], due_s, begins_s, ends_s)))


def weighed(entries: Entries, trace: Trace) -> Entries:
    """`entries` as far as their queue is believed, by the reads of what it announced days before.

    As plans and stewards do it: what is half as sure is twice as far away, and a queue that is doubted names
    nothing until it is believed again.
    """
    day = entries.begins_s.astype(np.int64) // DAY_S
    span = int(trace.time_s[-1]) + 1
    reads = np.sort(trace.item.astype(np.int64) * span + trace.time_s)
    until_s = np.maximum(entries.due_s, entries.begins_s) + DAY_S
    before, after = (
        np.searchsorted(reads, entries.file.astype(np.int64) * span + np.clip(at_s, 0, span - 1))
        for at_s in (entries.begins_s, until_s)
    )
    judged: list[tuple[float, float]] = []
    shares: dict[int, float] = {}
    for at in range(int(day.min()), int(day.max()) + 4):
        ran_out = np.flatnonzero(day == at - 3)
        named, first = np.unique(entries.file[ran_out], return_index=True)
        if named.size:
            judged.insert(0, (float(named.size), float((after > before)[ran_out[first]].sum())))
        shares[at] = share_kept(judged)
    share = np.array([shares[at] for at in day.tolist()])
    doubted_s = np.array([at * DAY_S for at, of in shares.items() if of < DOUBTED], np.float64)
    following = np.searchsorted(doubted_s, entries.begins_s)
    cut_s = np.append(doubted_s, np.inf)[following]
    wait_s = np.where(share < 1, np.maximum(SOON_S, entries.due_s - entries.begins_s) / share, np.nan)
    due_s = np.where(share < 1, entries.begins_s + wait_s, entries.due_s)
    heard = share >= DOUBTED
    ends_s = np.minimum(entries.ends_s, cut_s)
    return Entries(entries.file[heard], due_s[heard], entries.begins_s[heard], ends_s[heard])


def merged_queues(queues: Sequence[Entries]) -> QueuedReads:
    """The reads that queues expect: of several entries for a file the one due next, or that was last."""
    file, due_s, begins_s, ends_s = (np.concatenate(column) for column in zip(*queues, strict=True))
    order = np.argsort(np.concatenate([begins_s, ends_s]), kind="stable")
    waiting: dict[int, list[float]] = {}
    rows: list[tuple[float, int, float]] = []
    for at in order.tolist():
        entry, is_end = at % file.size, at >= file.size
        now_s = float((ends_s if is_end else begins_s)[entry])
        dues = waiting.setdefault(int(file[entry]), [])
        if is_end:
            dues.remove(float(due_s[entry]))
        else:
            dues.append(float(due_s[entry]))
        rows.append((now_s, int(file[entry]), min(dues, key=lambda s: abs(s - now_s), default=np.nan)))
    at_s, files, due = np.array(rows, np.float64).reshape(-1, 3).T
    return QueuedReads(at_s.copy(), files.astype(np.int32), due.copy())
