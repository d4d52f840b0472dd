"""What queues announced, and how much of it was read in time: so far each of them is believed."""

import dataclasses
import itertools
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow.compute as pc

from features.common.times import DAY_S, day_label, parse_as_of
from features.results import ANNOUNCED
from features.schema import QUEUE, REJECTS
from jobs.ground.store.commits import Key, Snapshot
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.queued_files import at
from jobs.loop.ingest.queues.place import CROWDED

DOUBTED = 0.25  # a queue that is believed less is not followed
SOURCE = "queued_jobs"  # of a queue's rejects; their input begins with its name
PREFILLS = "prefill-"  # begins the name of a prefill's queue, which no broker announced
DAYS = 14  # days that count
_FADES = 0.5  # each day counts this much of the one after it
_PRIOR = 50.0  # a queue is believed as if so many files more had been announced for sure, and read
_MOST_A_DAY = 200.0  # a day counts as so many such files at most: one large task decides no more than a day
LOOKS_BACK = 7  # days that are judged at most, if queues were not read for a while
_GROWN, _FEW = 10, 1000
_REMEMBERS_S = 7 * DAY_S  # a queue has grown if it has many more inputs than its median in so long


def share_kept(days: Iterable[tuple[float, float]]) -> float:
    """How far a queue is believed that was to be `claimed` and `kept` on each of `days`, the newest first.

    A day on which nothing is judged makes no other fade.
    """
    claimed_reads = seen_reads = _PRIOR
    judged = ((said, read) for said, read in days if said > 0)
    for age, (said, read) in enumerate(itertools.islice(judged, DAYS)):
        weight = _FADES**age * min(1.0, _MOST_A_DAY / said)
        claimed_reads += weight * said
        seen_reads += weight * min(read, said)
    return seen_reads / claimed_reads


def believed(tables: Tables, *, as_of_s: int) -> dict[str, float]:
    """How far each queue is believed that was judged by `as_of_s`, from 0 to 1."""
    return {queue: _believed(days) for queue, days in _judged(tables, as_of_s).items()}


def _believed(days: Iterable[Mapping[str, Any]]) -> float:
    return share_kept((day["claimed"], day["kept"]) for day in days)


@dataclasses.dataclass(frozen=True)
class QueueReport:
    """What is known of a queue. `files`, `read_files`: announced in the days that count, and read in time.

    `inputs`, `read_at`: of its newest answer; `read_after_s`: time until half of those read were; None: not
    known yet. `believed`: how far; `grown`, `crowded`: what to say of its growth, and
    of those who name too much in it.
    """

    queue: str
    read_at: str
    inputs: int
    believed: float
    files: int | None = None
    read_files: int | None = None
    read_after_s: float | None = None
    grown: str | None = None
    crowded: str | None = None

    @property
    def fault(self) -> str | None:
        """Why an operator should look at it; None: nothing is known against it."""
        return str(self) if self.believed < DOUBTED else self.grown or self.crowded

    def __str__(self) -> str:
        if not self.files:
            return f"{self.inputs} inputs at {self.read_at}; nothing that it announced has run out yet"
        half = "" if self.read_after_s is None else f", half of them within {self.read_after_s / 3600:.1f} h"
        share = f"{self.read_files} of {self.files} files that it announced were read in time{half}"
        return f"{self.inputs} inputs at {self.read_at}; {share}; believed to {100 * self.believed:.0f} %"


def reports(tables: Tables, *, as_of_s: int) -> tuple[QueueReport, ...]:
    """Every queue that answered in the days that count, by name."""
    head, judged = tables.head(QUEUE), _judged(tables, as_of_s)
    since, until = day_label(as_of_s - DAYS * DAY_S), day_label(as_of_s)
    answers = (key for key in head.select(since=since, until=until) if parse_as_of(key[1]) <= as_of_s)
    latest = {key[2]: key for key in answers if not key[2].startswith(PREFILLS)}
    return tuple(
        QueueReport(
            queue=queue,
            read_at=key[1],
            inputs=head.partitions[key].n_rows,
            believed=_believed(days := judged.get(queue, [])),
            files=sum(day["files"] for day in days) if days else None,
            read_files=sum(day["read_files"] for day in days) if days else None,
            read_after_s=next((day["read_after_s"] for day in days if day["read_after_s"] is not None), None),
            grown=growth(head, key),
            crowded=crowd(tables, key),
        )
        for queue, key in sorted(latest.items())
    )


def growth(queues: Snapshot, key: Key) -> str | None:
    """What to say of a queue that at `key` has many more inputs than before; None: it has not."""
    since = day_label(parse_as_of(key[1]) - _REMEMBERS_S)
    earlier = [
        part.n_rows
        for other, part in queues.partitions.items()
        if other[2] == key[2] and since <= other[0] and other < key
    ]
    n_inputs = queues.partitions[key].n_rows
    n_before = statistics.median_high(earlier) if earlier else n_inputs
    if n_inputs <= _GROWN * max(n_before, _FEW):
        return None
    return (
        f"queue {key[2]} names {n_inputs} inputs, {n_before} before: does it repeat or invent work? Plans "
        "fetch no more of all queues than [plan] queued_share"
    )


def crowd(tables: Tables, key: Key) -> str | None:
    """What to say of a queue in whose answer of the day of `key` some named too much; None: nobody did."""
    columns = ["source", "input", "reason", "n_rows"]
    rows = tables.head(REJECTS).rows(columns, since=key[0], until=key[0])
    is_its = pc.and_(pc.equal(rows["source"], SOURCE), pc.starts_with(rows["input"], f"{key[2]}: "))
    rows = rows.filter(pc.and_(is_its, pc.starts_with(rows["reason"], CROWDED)))
    n_refused = pc.sum(rows["n_rows"]).as_py()
    return f"queue {key[2]}: {n_refused} entries were refused, {rows['reason'][0]}" if n_refused else None


def _judged(tables: Tables, as_of_s: int) -> dict[str, list[dict[str, Any]]]:
    """The rows of the table that were known at `as_of_s`, of the days that count, by queue, newest first."""
    since, until = day_label(as_of_s - (DAYS + LOOKS_BACK) * DAY_S), day_label(as_of_s)
    rows = tables.head(ANNOUNCED).rows(since=since, until=until)
    rows = rows.filter(pc.less_equal(rows["judged_at"], at(as_of_s))).sort_by([("day", "descending")])
    days: dict[str, list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        days.setdefault(row["queue"], []).append(row)
    return {queue: of[:DAYS] for queue, of in days.items()}
