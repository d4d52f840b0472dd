"""Rucio's dumps as sqoop writes them, from JSON: the writer is fastavro, not Spark."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro

_STRINGS = (
    *("SCOPE", "NAME", "CHILD_SCOPE", "CHILD_NAME", "CHILD_TYPE", "DID_TYPE", "STATE", "RSE", "DELETED"),
    "VOLATILE",
)
_TYPES: Mapping[str, str] = {
    **dict.fromkeys((*_STRINGS, "ADLER32"), "string"),
    **dict.fromkeys(("RSE_ID", "ID"), "bytes"),
    **dict.fromkeys(("BYTES", "LOCK_CNT", "CREATED_AT", "ACCESSED_AT"), "long"),
}


def write_dump(file: Path, folder: Path, *, codec: str = "deflate", text: Sequence[str] = ()) -> Path:
    """`folder` with the tables of `file`, each in two parts; columns of `text` as strings, as sqoop may."""
    for table, rows in json.loads(file.read_text()).items():
        half = len(rows) // 2
        for number, part in enumerate((rows[:half], rows[half:])):
            columns = list(dict.fromkeys(name for row in rows for name in row))
            write_part(folder / table / f"part-m-{number:05d}.avro", columns, part, codec=codec, text=text)
        (folder / table / "_SUCCESS").touch()
    return folder


def write_part(
    path: Path,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    *,
    codec: str = "deflate",
    text: Sequence[str] = (),
) -> None:
    """One Avro file with nullable `columns`."""
    types = {name: "string" if name in text else _TYPES[name] for name in columns}
    fields = [{"name": n, "type": ["null", kind], "default": None} for n, kind in types.items()]
    schema = fastavro.parse_schema({"type": "record", "name": "QueryResult", "fields": fields})
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [{n: _value(types[n], row.get(n)) for n in columns} for row in rows]
    with path.open("wb") as file:
        fastavro.writer(file, schema, records, codec=codec)


def _value(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == "bytes":
        return bytes.fromhex(value)
    return str(value) if kind == "string" else value
