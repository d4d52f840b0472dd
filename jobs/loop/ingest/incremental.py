"""Pull only new inputs: each pulled input has a mark, its size and modification time, in the table `pulls`.

An input is marked after its rows are merged. After a crash it is pulled again, which changes nothing.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa

from features.schema import PULLS, arrow_schema
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import sources
from jobs.loop.ingest.pull_input import Engine, Mark, PullSummary, Request
from jobs.loop.ingest.sources.local import BEING_WRITTEN

# Inputs merged at once: more of them make Spark's plan longer, fewer rewrite their days more often.
MERGED_AT_ONCE = 32


def only_new(engine: Engine, tables: Tables, request: Request) -> PullSummary:
    """Merge the inputs that are new, or changed since they were marked.

    Files that mean nothing alone (`Source.is_whole`) are one input. Raises ConflictError if another pull set
    marks in the meantime.
    """
    whole = sources.named(request.source).is_whole
    inputs = _inputs(engine, request)
    old = _marks(tables, request.source)
    new = [mark for mark in inputs if mark not in old]
    summary = PullSummary(0, 0, 0, {}, (), 0, n_unchanged=len(inputs) - len(new))
    for marks in _batches(inputs if whole and new else new, whole=whole):
        paths = [request.path] if whole else [_as_given(mark.input, request.path) for mark in marks]
        summary = _sum(summary, engine.merge(tables, request, paths))
        _mark(tables, request.source, marks)
    return summary


def taken(engine: Engine, tables: Tables, request: Request) -> list[Mark]:
    """The inputs that are unchanged since a pull marked them."""
    old = _marks(tables, request.source)
    return [mark for mark in _inputs(engine, request) if mark in old]


def _batches(marks: Sequence[Mark], *, whole: bool) -> Iterator[Sequence[Mark]]:
    at_once = max(1, len(marks)) if whole else MERGED_AT_ONCE
    return (marks[first : first + at_once] for first in range(0, len(marks), at_once))


def _inputs(engine: Engine, request: Request) -> list[Mark]:
    """The inputs, without those still being written."""
    marks = engine.inputs(request.path, whole=sources.named(request.source).is_whole)
    return [mark for mark in marks if not mark.input.endswith(BEING_WRITTEN)]


def _as_given(input: str, path: str) -> str:
    """A local file's path, without `file:` if `path` has none, for readers that take only paths."""
    return input if path.startswith("file:") else re.sub("^file:/+", "/", input)


def _marks(tables: Tables, source: str) -> set[Mark]:
    if not tables.exists(PULLS):
        return set()
    columns = ["source", *(field.name for field in dataclasses.fields(Mark))]
    rows = tables.read_arrow(PULLS, columns=columns).to_pylist()
    return {Mark(**row) for row in rows if row.pop("source") == source}


def _mark(tables: Tables, source: str, marks: Sequence[Mark]) -> None:
    base = tables.head(PULLS)
    old = tables.read_arrow(PULLS).to_pylist() if base.number else []
    done = {mark.input for mark in marks}
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
