"""Lines of files whose first line names the columns: as columns of text, and `malformed`.

Columns of the fields of JSON records, within envelopes of MONIT and Elasticsearch or not.
"""

import csv
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from features.common.errors import SchemaError
from features.common.names import literal
from jobs.loop.ingest.sources import sql

csv.field_size_limit(2**31 - 1)


@dataclasses.dataclass(frozen=True)
class Header:
    """The `names` of the columns in their order, and the `line` that names them; empty if none does."""

    names: Sequence[str]
    line: str = ""

    @property
    def where(self) -> str:
        """The `where` of records: neither blank nor the header."""
        return f"{sql.LINES} AND value <> {literal(self.line)}"


def csv_header(line: str, path: str, *needs: Sequence[str]) -> Header:
    """The header of a CSV file with this first line, `needs[0]` of an empty one.

    Raises SchemaError unless one of `needs`, sets of columns, is among its columns.
    """
    names = _fields(line) if line else list(needs[0])
    if not any(set(need) <= set(names) for need in needs):
        missing = " or ".join(str(sorted(set(need) - set(names))) for need in needs)
        raise SchemaError(f"{path}: columns {missing} are missing; there are {names}")
    return Header(names, line)


def csv_columns(
    names: Sequence[str], columns: Sequence[str], others: Sequence[str] = ()
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Makes of a batch of CSV lines (value, input) what the steps `fields(columns)` need.

    `others`: columns that only the file names, which become `other 0`, `other 1`, …
    `malformed`: the line has more or fewer fields than `names`.
    """
    called = [*((name, name) for name in columns), *((f"other {i}", name) for i, name in enumerate(others))]
    return functools.partial(
        _columns, len(names), tuple((column, names.index(name)) for column, name in called)
    )


def fields(columns: Sequence[str]) -> list[sql.Columns]:
    """Steps that make the columns `columns` of a CSV file, as texts; see `sql.with_words`."""
    return sql.with_words({name: f"{name} field" for name in columns})


def _columns(n_names: int, places: Sequence[tuple[str, int]], batch: pa.RecordBatch) -> pa.RecordBatch:
    records = [_fields(line) for line in batch["value"].to_pylist()]
    columns = {
        f"{name} field": pa.array(
            [(record[at] or None) if at < len(record) else None for record in records], pa.string()
        )
        for name, at in places
    }
    malformed = pa.array([len(record) != n_names for record in records], pa.bool_())
    return pa.record_batch(
        {"value": batch["value"], "input": batch["input"], "malformed": malformed} | columns
    )


def _fields(line: str) -> list[str]:
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def columns(
    names: Sequence[str],
    *,
    numbers: Sequence[str] = (),
    times: Sequence[str] = (),
    counts: Sequence[str] = (),
    states: Sequence[str] = (),
) -> list[sql.Columns]:
    """Steps that make of `value` each of `names` as a text column; null where absent, or as `word` has it.

    A name `data.size` is the field `size` of the object `data`, or the field of that whole name; its column
    is `size`. Those among `numbers` are mostly numbers: the same columns, read faster. `states` are texts as
    they are: lists, words of which `unknown` is one, and what cannot be one. `times` (seconds; 0 stands for
    none) are columns of µs since 1970, `counts` of whole numbers; `unparsable` is the first of them that is
    there, as a number or as text, but is none or out of range. `malformed` tells lines that are not one JSON
    object. Other fields are ignored. `record` is the object without envelopes of MONIT and Elasticsearch.
    """
    # Casts ignore spaces, so these need no trimming.
    stated = {name: f'"{name} text"' for name in (*times, *counts)}
    values = {name: sql.micros(stated[name]) for name in times} | {
        name: sql.count(stated[name]) for name in counts
    }
    texts = {name: sql.text(_unquoted(_member(name)) if name in numbers else _member(name)) for name in names}
    words = [name for name in names if name not in (*numbers, *states)]
    kinds = dict.fromkeys(names, "VARCHAR") | dict.fromkeys((*numbers, *times, *counts), "JSON")
    outer = dict.fromkeys(name.split(".")[0] for name in names if "." in name)
    others = [f"json_type(record, '$.{name}') NOT IN ('OBJECT', 'NULL')" for name in outer]
    envelopes = ["_source"] if ("data" in outer) else ["_source", "data"]
    structure = _structure(dict(kinds) | dict.fromkeys(envelopes, "JSON"))
    inner = 'enveloped IS NULL THEN "outer json" ELSE json_transform(enveloped'
    steps: list[sql.Columns] = [
        *[
            {"start": "CASE WHEN starts_with(value, ' ') THEN ltrim(value, ' ') ELSE value END"},
            {"broken": "NOT (starts_with(start, '{') AND json_valid(value))"},
            # What is not JSON must not come to the functions that parse it: they would raise.
            {"whole": "CASE WHEN broken THEN '{}' ELSE value END"},
            {"outer json": f"json_transform(whole, {structure})"},
            {"enveloped": _in_envelopes(envelopes)},
            {"json": f"CASE WHEN {inner}, {structure}) END", "record": "coalesce(enveloped, whole)"},
        ],
        {_column(name, name in words): field for name, field in texts.items()}
        | {f"{name} text": _unquoted(_member(name)) for name in stated}
        | {"malformed": f"coalesce({' OR '.join(['broken', *others])}, false)"},
        *sql.with_words({_column(name): _column(name, True) for name in words}),
    ]
    return [*steps, values, *_unparsable(times, counts)] if values else steps


def _unparsable(times: Sequence[str], counts: Sequence[str]) -> list[sql.Columns]:
    """Steps that add `unparsable`: the first of these that states what is none."""
    unread = {name: f'"{name} unread"' for name in (*times, *counts)}
    wrong = " || ".join(
        f"list_transform([{', '.join(map(unread.__getitem__, names))}], lambda t: {stated('t')} IS NOT NULL)"
        for names, stated in ((times, sql.stated_time), (counts, sql.word))
        if names
    )
    first = f"{list(unread)}[list_position({wrong}, true)]"
    stated_texts = {name: sql.text(f'"{name} text"') for name in unread}
    return [
        {
            f"{name} unread": f'CASE WHEN "{name}" IS NULL THEN {text} END'
            for name, text in stated_texts.items()
        },
        {"unparsable": f"CASE WHEN coalesce({', '.join(unread.values())}) IS NOT NULL THEN {first} END"},
    ]


def _column(name: str, is_raw: bool = False) -> str:
    return name.rsplit(".", maxsplit=1)[-1] + " raw" * is_raw


def _in_envelopes(names: Sequence[str]) -> str:
    """The object in `_source`, or in `data`, or in the one in the other; null for a record without."""
    fields = [f'"outer json"."{name}"' for name in names]
    inner = [f"json_extract({fields[0]}, '$.data')", *fields] if len(names) > 1 else fields
    objects = ", ".join(f"CASE WHEN json_type({field}) = 'OBJECT' THEN {field} END" for field in inner)
    return f"CASE WHEN {' OR '.join(f'{field} IS NOT NULL' for field in fields)} THEN coalesce({objects}) END"


def _structure(kinds: Mapping[str, str]) -> str:
    members: dict[str, dict[str, str]] = {}
    for name, kind in kinds.items():
        outer, dot, inner = name.partition(".")
        if dot:
            members.setdefault(outer, {})[inner] = kind
    return literal(json.dumps(members | dict(kinds)))


def _unquoted(field: str) -> str:
    """The text of a field of type JSON. json_transform takes far longer to make a number a VARCHAR."""
    raw = f"CAST({field} AS VARCHAR)"
    return f"CASE WHEN starts_with({raw}, '\"') THEN json_extract_string({raw}, '$') ELSE {raw} END"


def _member(name: str) -> str:
    outer, dot, inner = name.partition(".")
    return f'coalesce(json."{outer}"."{inner}", json."{name}")' if dot else f'json."{name}"'
