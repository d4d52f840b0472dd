"""JSON records that are written over several lines, each as one line.

So does `condor_history -json`, and every tool that makes JSON readable. A record begins with a line that has
nothing but its brace, and ends where its braces are balanced. One that was cut ends where another begins, or
where no line of a record follows: it is refused alone, and those behind it are read.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from jobs.loop.ingest.sources.lines import MOST_LINE_BYTES

_BARE = r"^[\s\[\],]*[\[\],{][\s\[\],]*$"
"""A line of brackets and commas, and at most one brace that begins a record: only such a file is joined."""
_BEGINS = re.compile(r"^[\s\[\],]*\{\s*$")
_BETWEEN = re.compile(r"^[\s\[\],]*$")
_GOES_ON = re.compile(r"""^(?:\s+\S|[\[\]{},]|"[^"]*"\s*:|$)""")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_AROUND = " \t[],"


@dataclasses.dataclass
class _Record:
    """Lines of a record so far, and the braces that are open; `indent`: of its first line."""

    source: str
    indent: int
    parts: list[str] = dataclasses.field(default_factory=list)
    depth: int = 0
    size: int = 0

    def add(self, line: str) -> None:
        plain = _STRING.sub("", line)
        self.depth += plain.count("{") - plain.count("}")
        self.size += len(line)
        # What is longer than a line may be is refused: no more of it is kept.
        if self.size <= 2 * MOST_LINE_BYTES:
            self.parts.append(line.strip())

    @property
    def line(self) -> str:
        return " ".join(self.parts).strip(_AROUND)


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`batches` of lines (value, input) of one file after the other, with one line for each record."""
    record: _Record | None = None
    schema = None
    for batch in batches:
        schema = batch.schema
        if record is None and not pc.any(pc.match_substring_regex(batch["value"], _BARE)).as_py():
            yield batch
            continue
        rows: list[tuple[str, str]] = []
        for line, source in zip(batch["value"].to_pylist(), batch["input"].to_pylist(), strict=True):
            record = _taken(record, line, source, rows)
        yield _batch(rows, schema)
    if record is not None:
        yield _batch([(record.line, record.source)], schema)


def _taken(record: _Record | None, line: str, source: str, rows: list[tuple[str, str]]) -> _Record | None:
    """The record that is open after `line`; what is whole, or no part of a record, goes to `rows`."""
    bare = line.lstrip()
    indent = len(line) - len(bare)
    if record is not None:
        is_another = source != record.source or (bare.startswith("{") and indent <= record.indent)
        if not is_another and _GOES_ON.match(line):
            record.add(line)
            if record.depth > 0:
                return record
            rows.append((record.line, source))
            return None
        rows.append((record.line, record.source))
    if _BEGINS.match(line):
        record = _Record(source, indent)
        record.add(line)
        return record
    if not _BETWEEN.match(line):
        rows.append((line, source))
    return None


def _batch(rows: list[tuple[str, str]], schema: pa.Schema | None) -> pa.RecordBatch:
    values, inputs = zip(*rows, strict=True) if rows else ((), ())
    columns = {"value": pa.array(values, pa.string()), "input": pa.array(inputs, pa.string())}
    return pa.record_batch(columns).cast(schema)
