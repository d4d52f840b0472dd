"""What queues announced, and how much of it was read in time: so far each of them is believed."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.times import DAY_S, day_label, parse_as_of
from features.results import ANNOUNCED
from features.schema import ACCESSES, FILES, QUEUE
from jobs.ground.store.commits import Key, Partition, Snapshot
from jobs.ground.store.tables import Tables, read_partitions
from jobs.loop.ingest.queued_files import at, files_named, inputs_of, known_files

DOUBTED = 0.25
"""A queue that is believed less is not followed."""
PREFILLS = "prefill-"
"""Begins the name of a prefill's queue, which no broker announced."""
DAYS = 14
"""Days that count."""
_FADES = 0.5
"""Each day counts this much of the one after it."""
_PRIOR = 50.0
"""A queue is believed as if so many files more had been announced for sure, and read."""
_MOST_A_DAY = 200.0
"""A day counts as so many such files at most: one large task decides no more than a day."""
_LATE_S = 6 * 3600
"""So long after the last entry of a day has run out, the reads of it are known."""
_GROWN, _FEW = 10, 1000
_LOOKS_BACK = 7
"""Days that are judged at most, if queues were not read for a while."""
_KEY = ["input", "is_dataset"]


def share_kept(days: Iterable[tuple[float, float]]) -> float:
    """How far a queue is believed that was to be `claimed` and `kept` on each of `days`, the newest first."""
    claimed_reads = seen_reads = _PRIOR
    for age, (said, read) in enumerate(itertools.islice(days, DAYS)):
        weight = _FADES**age * min(1.0, _MOST_A_DAY / said) if said > 0 else 0.0
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
    known yet. `believed`: how far; `grown`: what to say of its growth.
    """

    queue: str
    read_at: str
    inputs: int
    believed: float
    files: int | None = None
    read_files: int | None = None
    read_after_s: float | None = None
    grown: str | None = None

    @property
    def fault(self) -> str | None:
        """Why an operator should look at it; None: nothing is known against it."""
        return str(self) if self.believed < DOUBTED else self.grown

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
        )
        for queue, key in sorted(latest.items())
    )


def growth(queues: Snapshot, key: Key) -> str | None:
    """What to say of a queue that at `key` has many more inputs than before; None: it has not."""
    earlier = [other for other in queues.partitions if other[2] == key[2] and other < key]
    n_inputs = queues.partitions[key].n_rows
    n_before = queues.partitions[max(earlier)].n_rows if earlier else n_inputs
    if n_inputs <= _GROWN * max(n_before, _FEW):
        return None
    return (
        f"queue {key[2]} names {n_inputs} inputs, {n_before} before: does it repeat or invent work? Plans "
        "fetch no more of all queues than [plan] queued_share"
    )


def _judged(tables: Tables, as_of_s: int) -> dict[str, list[dict[str, Any]]]:
    """The rows of the table that were known at `as_of_s`, of the days that count, by queue, newest first."""
    if not tables.exists(ANNOUNCED):
        return {}
    since, until = day_label(as_of_s - (DAYS + _LOOKS_BACK) * DAY_S), day_label(as_of_s)
    rows = tables.read_arrow(ANNOUNCED, since=since, until=until)
    rows = rows.filter(pc.less_equal(rows["judged_at"], at(as_of_s))).sort_by([("day", "descending")])
    days: dict[str, list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        days.setdefault(row["queue"], []).append(row)
    return {queue: of[:DAYS] for queue, of in days.items()}


def judge(tables: Tables, queue: str, *, as_of_s: int, stale_s: int) -> None:
    """Count what `queue` announced on the days whose entries have run out by `as_of_s`, and what was read.

    A day is judged once, by the reads known then. Where no file's read is known, nobody is judged.
    """
    queues, reads = tables.head(QUEUE), tables.head(ACCESSES)
    last_s = (as_of_s - stale_s - _LATE_S) // DAY_S * DAY_S - DAY_S
    done = {key[0] for key in tables.head(ANNOUNCED).partitions if key[1] == queue}
    for day_s in range(last_s - (_LOOKS_BACK - 1) * DAY_S, last_s + 1, DAY_S):
        day, until = day_label(day_s), day_label(day_s + stale_s)
        answers = {key: part for key, part in queues.select(since=day, until=day).items() if key[2] == queue}
        is_known = any(part.n_rows for part in reads.select(since=day, until=until).values())
        if answers and is_known and day not in done and tables.exists(FILES):
            claims = _without_waiting(queues, queue, _claims(queues, answers), as_of_s)
            tables.replace_rows(ANNOUNCED, [_judgement(tables, claims, as_of_s)], (day, queue))


def _judgement(tables: Tables, claims: pa.Table, as_of_s: int) -> dict[str, object]:
    """The row of a day on which a queue claimed so much."""
    files = known_files(tables, as_of_s)
    file, entry = files_named(files, claims)
    at_s, until_s = np.full(files.num_rows, np.iinfo(np.int64).max), np.zeros(files.num_rows, np.int64)
    missed = np.zeros(files.num_rows)
    np.minimum.at(at_s, file, claims["at_s"].to_numpy()[entry])
    np.maximum.at(until_s, file, claims["until_s"].to_numpy()[entry])
    np.add.at(missed, file, claims["missed"].to_numpy()[entry])
    named: IntArray = np.flatnonzero(missed < 0)
    dids = files["did"].take(pa.array(named)).combine_chunks()
    first_s = _first_reads(tables, dids, at_s[named], np.minimum(until_s[named], as_of_s), as_of_s)
    is_read: BoolArray = first_s < np.inf
    sure, after_s = -np.expm1(missed[named]), (first_s - at_s[named])[is_read]
    return {
        "files": named.size,
        "read_files": int(is_read.sum()),
        "claimed": float((sure**2).sum()),
        "kept": float(sure[is_read].sum()),
        "read_after_s": float(np.median(after_s)) if after_s.size else None,
        "judged_at": dt.datetime.fromtimestamp(as_of_s, dt.UTC),
    }


def _claims(head: Snapshot, answers: Mapping[Key, Partition]) -> pa.Table:
    """Each input of the `answers` once: first named at `at_s`, until `until_s`; its least `missed`."""
    claims = pa.table({})
    for key, part in answers.items():
        at_s = parse_as_of(key[1])
        inputs = inputs_of(read_partitions(head, {key: part}), at_s)
        new = pa.table(
            {name: inputs[name] for name in _KEY}
            | {"at_s": np.full(inputs.num_rows, at_s), "until_s": inputs["expires_s"]}
            | {"missed": inputs["missed"]}
        )
        both = pa.concat_tables([claims, new]) if claims.num_columns else new
        merged = both.group_by(_KEY).aggregate([("at_s", "min"), ("until_s", "max"), ("missed", "min")])
        claims = merged.rename_columns(new.column_names)
    return claims


def _without_waiting(head: Snapshot, queue: str, claims: pa.Table, as_of_s: int) -> pa.Table:
    """`claims` without those for later that still stand: neither withdrawn nor put off since."""
    if not pc.any(pc.greater(claims["until_s"], as_of_s)).as_py():
        return claims
    newest = max(key for key in head.partitions if key[2] == queue and parse_as_of(key[1]) <= as_of_s)
    stands = inputs_of(read_partitions(head, {newest: head.partitions[newest]}), as_of_s)
    names, standing = (
        pc.binary_join_element_wise(rows["input"], rows["is_dataset"].cast(pa.string()), "\n")
        for rows in (claims, stands)
    )
    until_s = stands["expires_s"].take(pc.index_in(names, value_set=standing.combine_chunks()))
    waits = pc.and_(pc.greater(claims["until_s"], as_of_s), pc.less_equal(until_s, claims["until_s"]))
    return claims.filter(pc.invert(pc.fill_null(waits, False)))


def _first_reads(
    tables: Tables, dids: pa.Array, from_s: IntArray, until_s: IntArray, as_of_s: int
) -> FloatArray:
    """The first read of each of `dids` in its time, by what was known at `as_of_s`; inf: there was none."""
    first_s = np.full(len(dids), np.inf)
    if not len(dids):
        return first_s
    for day_s in range(int(from_s.min()) // DAY_S * DAY_S, int(until_s.max()), DAY_S):
        day = day_label(day_s)
        rows = tables.read_arrow(ACCESSES, since=day, until=day, columns=["did", "accessed_at", "known_at"])
        place = pc.index_in(rows["did"], value_set=dids)
        known = pc.and_(pc.is_valid(place), pc.less_equal(rows["known_at"], at(as_of_s)))
        item = place.filter(known).to_numpy()
        read_s = rows["accessed_at"].filter(known).cast(pa.int64()).to_numpy() // 1_000_000
        in_time = (read_s >= from_s[item]) & (read_s < until_s[item])
        np.minimum.at(first_s, item[in_time], read_s[in_time])
    return first_s
