"""Columns of the fields of JSON records, within envelopes of MONIT and Elasticsearch or not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from features.common.names import literal
from jobs.loop.ingest.sources import sql


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
    steps: list[sql.Columns] = [
        *_parsed(kinds, has_data="data" in outer),
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


def _parsed(kinds: Mapping[str, str], *, has_data: bool) -> list[sql.Columns]:
    """Steps that make of `value` the struct `json`, of the fields `kinds`, and `record`.

    `has_data`: records of the source have an object `data` themselves, so it is no envelope.
    """
    envelopes = ["_source"] if has_data else ["_source", "data"]
    structure = _structure(dict(kinds) | dict.fromkeys(envelopes, "JSON"))
    inner = 'enveloped IS NULL THEN "outer json" ELSE json_transform(enveloped'
    return [
        {"start": "CASE WHEN starts_with(value, ' ') THEN ltrim(value, ' ') ELSE value END"},
        {"broken": "NOT (starts_with(start, '{') AND json_valid(value))"},
        # What is not JSON must not come to the functions that parse it: they would raise.
        {"whole": "CASE WHEN broken THEN '{}' ELSE value END"},
        {"outer json": f"json_transform(whole, {structure})"},
        {"enveloped": _in_envelopes(envelopes)},
        {"json": f"CASE WHEN {inner}, {structure}) END", "record": "coalesce(enveloped, whole)"},
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
