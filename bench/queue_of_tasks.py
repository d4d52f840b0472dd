"""The batch queue that a generated region would have had: what is waiting to be read, and its faults."""

from __future__ import annotations

import dataclasses

import numpy as np

from features.common.arrays import FloatArray, Ids, IntArray
from features.common.times import DAY_S, HOUR_S
from replay.access_context import QueuedReads
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


def queue_of(trace: Trace, task: IntArray, how: QueueOf, rng: np.random.Generator) -> QueuedReads:
    """What the queue says; `task`: of each access, below 0 for none."""
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
    return _told(file[place][is_named], begin_s[owner][is_named], done_s[is_named], how)


def _told(file: Ids, due_s: FloatArray, done_s: FloatArray, how: QueueOf) -> QueuedReads:
    """What the order is told of entries: of several for one file the one that is due next, or was last."""
    begins_s, ends_s = (
        np.ceil(times_s / how.every_s) * how.every_s + how.late_s for times_s in (due_s - how.lead_s, done_s)
    )
    is_seen = begins_s < ends_s
    file, due_s = file[is_seen], due_s[is_seen]
    begins_s, ends_s = begins_s[is_seen], ends_s[is_seen]
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
