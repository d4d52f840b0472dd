"""Pull one raw input into the tables: accesses and jobs by day, files by did, and rejects with their reason.

Pulling the same input twice changes nothing. Late rows re-open their day. Of rows with the same key one
stays, and which one does not depend on their order (see `merging`). Which engine pulls makes no difference
to what is in the tables afterwards.

A pull of new inputs alone marks each, its size and modification time, in the table `pulls` after its rows are
merged. After a crash it is pulled again, which changes nothing.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from features.schema import ACCESSES, PULLS, REJECTS, Table, arrow_schema
from jobs.ground.store.tables import Tables, repeated_on_conflict
from jobs.loop.ingest.sources import Site, load_source
from jobs.loop.ingest.sources.local import BEING_WRITTEN

# Inputs merged at once: more of them make Spark's plan longer, fewer rewrite their days more often.
MERGED_AT_ONCE = 32
LATE_DAYS = 3  # a record published more than this many days after its end is late


@dataclasses.dataclass(frozen=True)
class PullSummary:
    """Counts of the rows read: n_rows = n_new + n_duplicates + the sum of n_rejected.

    `n_new`: rows that changed a table; `n_late`: those of them that were published more than LATE_DAYS after
    their end, too late for the features of their days. `n_rejected`: by reason. `days`: days of accesses or
    jobs that changed. `n_lost`: records that the source reports as missing, not part of `n_rows`.
    `n_unchanged`: inputs left out because they were pulled before (`new_only`). `n_removed`: captures
    deleted because they are older than `[collect] keep`; `n_not_removed`: those that this account may not
    delete. `n_unfinished`: files left out because they are still being written. `n_unsized`: for a source
    that states no sizes, its reads on `days` of files whose size nothing else states. `alarms`: what of the
    input is ambiguous, in sentences. `engine`: what pulled, `local` or `spark`.
    """

    n_rows: int
    n_new: int
    n_duplicates: int
    n_rejected: Mapping[str, int]
    days: tuple[str, ...]
    n_lost: int
    n_unchanged: int = 0
    n_late: int = 0
    n_removed: int = 0
    n_not_removed: int = 0
    n_unfinished: int = 0
    n_unsized: int = 0
    alarms: tuple[str, ...] = ()
    engine: str = ""


@dataclasses.dataclass(frozen=True)
class Request:
    """What to pull: `path` as `source` reads it. Rejected rows are dated as the site's `day`."""

    source: str
    path: str
    site: Site


@dataclasses.dataclass(frozen=True)
class Mark:
    """An input, by its URI, as it was pulled; it is unchanged as long as its mark is the same."""

    input: str
    size_bytes: int
    modified_at: dt.datetime


def changed_at(milliseconds: int) -> dt.datetime:
    """A time of change since 1970, as precise as Spark's marks."""
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=milliseconds)


class Engine(Protocol):
    """What reads and merges; `name` is `local` or `spark`."""

    @property
    def name(self) -> str: ...

    def inputs(self, path: str, *, whole: bool) -> list[Mark]:
        """The files at `path` (a folder, a file or a glob), in order; `whole`: with those in folders below.

        Raises InputError if nothing is there.
        """

    def merge(self, tables: Tables, request: Request, paths: Sequence[str]) -> PullSummary:
        """Merge all at `paths`, which are some of the request's inputs, under the lock of pulls.

        Raises InputError and SchemaError for an unusable input (nothing is written then), ConflictError if
        another pull is at work on these tables.
        """


def pull(
    engine: Engine,
    tables: Tables,
    *,
    source: str,
    path: str,
    day: dt.date,
    new_only: bool = False,
    **of_site: Any,
) -> PullSummary:
    """Merge the input at `path` into the tables; `day`: of rejects; `of_site`: other fields of `Site`.

    `new_only`: but what is unchanged since such a pull. Raises ConfigError, and as `Engine.merge`.
    """
    request = Request(source, path, Site(day=day.isoformat(), **of_site))
    with load_source(source).blamed():
        summary = _merge_new(engine, tables, request) if new_only else engine.merge(tables, request, [path])
    return dataclasses.replace(summary, engine=engine.name)


def _merge_new(engine: Engine, tables: Tables, request: Request) -> PullSummary:
    """Merge the inputs that are new, or changed since they were marked.

    Files that mean nothing alone (`Source.is_whole`) are one input.
    """
    whole = load_source(request.source).is_whole
    inputs = _inputs(engine, request)
    old = _marks(tables, request.source)
    new = [mark for mark in inputs if mark not in old]
    summary = PullSummary(0, 0, 0, {}, (), 0, n_unchanged=len(inputs) - len(new))
    to_merge = inputs if whole and new else new
    at_once = max(1, len(to_merge)) if whole else MERGED_AT_ONCE
    for marks in (to_merge[first : first + at_once] for first in range(0, len(to_merge), at_once)):
        paths = [request.path] if whole else [mark.input for mark in marks]
        summary = _sum(summary, engine.merge(tables, request, paths))
        _mark(tables, request.source, marks)
    return summary


def taken(engine: Engine, tables: Tables, request: Request) -> list[Mark]:
    """The inputs that are unchanged since a pull marked them."""
    old = _marks(tables, request.source)
    return [mark for mark in _inputs(engine, request) if mark in old]


def _inputs(engine: Engine, request: Request) -> list[Mark]:
    marks = engine.inputs(request.path, whole=load_source(request.source).is_whole)
    return [mark for mark in marks if not mark.input.endswith(BEING_WRITTEN)]


def _marks(tables: Tables, source: str) -> set[Mark]:
    columns = ["source", *(field.name for field in dataclasses.fields(Mark))]
    rows = tables.head(PULLS).rows(columns).to_pylist()
    return {Mark(**row) for row in rows if row.pop("source") == source}


@repeated_on_conflict
def _mark(tables: Tables, source: str, marks: Sequence[Mark]) -> None:
    base = tables.head(PULLS)
    old, done = base.rows().to_pylist(), {mark.input for mark in marks}
    others = [row for row in old if (row["source"], row["input"] in done) != (source, True)]
    rows = [*others, *({"source": source, **dataclasses.asdict(mark)} for mark in marks)]
    rows.sort(key=lambda row: (row["source"], row["input"]))
    tables.replace_arrow(PULLS, pa.Table.from_pylist(rows, schema=arrow_schema(PULLS)), base=base)


def _sum(first: PullSummary, second: PullSummary) -> PullSummary:
    return PullSummary(
        n_rows=first.n_rows + second.n_rows,
        n_new=first.n_new + second.n_new,
        n_duplicates=first.n_duplicates + second.n_duplicates,
        n_rejected=dict(sorted((Counter(first.n_rejected) + Counter(second.n_rejected)).items())),
        days=tuple(sorted({*first.days, *second.days})),
        n_lost=first.n_lost + second.n_lost,
        n_unchanged=first.n_unchanged + second.n_unchanged,
        n_late=first.n_late + second.n_late,
        alarms=tuple(dict.fromkeys([*first.alarms, *second.alarms])),
    )


def earlier(tables: Tables, source: str, since: str, until: str, table: Table = ACCESSES) -> list[pa.Table]:
    """The rows of `source` in `table` on the days `since` … `until`, with their day."""
    head = tables.head(table)
    days = (head.rows_of([key]) for key in head.select(since=since, until=until))
    return [rows.filter(pc.equal(rows["source"], source)) for rows in days]


class Changes(NamedTuple):
    n_new: int = 0
    n_late: int = 0
    days: tuple[str, ...] = ()

    @classmethod
    def of(cls, changed: pa.Table) -> Changes:
        """The sum of `n` and `n_late` of changed partitions, with `day` if they have one."""
        n_new, n_late = (int(pc.sum(changed[name]).as_py() or 0) for name in ("n", "n_late"))
        days = sorted(set(changed["day"].to_pylist())) if "day" in changed.column_names else ()
        return cls(n_new, n_late, tuple(days))

    def with_days(self, more: Iterable[str]) -> Changes:
        """The same where rows of more days changed by what is new."""
        return self._replace(days=tuple(sorted({*self.days, *more})))


@repeated_on_conflict
def replace_rejects(tables: Tables, source: str, day: str, inputs: pa.Array, rejects: pa.Table) -> None:
    """Replace the rejects of `inputs` of `source` on `day`, which others may do at the same time."""
    base, key = tables.head(REJECTS), (day,)
    if not rejects.num_rows and key not in base.partitions:
        return
    columns = arrow_schema(REJECTS).names
    old = base.rows_of([key], columns)
    is_replaced = pc.and_(pc.equal(old["source"], source), pc.is_in(old["input"], inputs))
    kept_and_new = [old.filter(pc.invert(is_replaced)), rejects.select(columns).cast(old.schema)]
    rows = pa.concat_tables(kept_and_new).sort_by([(name, "ascending") for name in REJECTS.key])
    tables.replace_partition(REJECTS, rows, key, base=base)


def summarise(
    tables: Tables,
    request: Request,
    *,
    inputs: pa.Table,
    rejects: pa.Table,
    changes: Changes,
    n_lost: int,
    alarms: Sequence[str] = (),
) -> PullSummary:
    """Write `rejects` (input, reason, n_rows, sample) of the source, and sum up; `inputs`: input, n_rows."""
    source = pa.repeat(pa.scalar(request.source), rejects.num_rows)
    of_source = rejects.append_column("source", source)
    replace_rejects(tables, request.source, request.site.day, inputs["input"].combine_chunks(), of_source)
    by_reason = rejects.group_by("reason").aggregate([("n_rows", "sum")]).sort_by("reason").to_pylist()
    n_rejected = {row["reason"]: row["n_rows_sum"] for row in by_reason}
    n_rows = pc.sum(inputs["n_rows"]).as_py() or 0
    return PullSummary(
        n_rows=n_rows,
        n_new=changes.n_new,
        n_duplicates=n_rows - changes.n_new - sum(n_rejected.values()),
        n_rejected=n_rejected,
        days=changes.days,
        n_lost=n_lost,
        n_late=changes.n_late,
        alarms=tuple(alarms),
    )
