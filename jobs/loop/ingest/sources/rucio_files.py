"""Rucio's reply to a bulk file listing (`POST /dids/bulkfiles`-like), one JSON object a line.

Fields: parent_scope, parent_name (the dataset), scope, name, bytes, adler32; optional created_at (ISO or
seconds), known_at and updated_at (the same), rses (a list of names), locked (those of them where a rule keeps
the replica), datatype and campaign (of the dataset, where the name does not tell them). Of `rucio_server`
alone, as others could write there what they like: refused (why there is no file of this name).
"""

from features.schema import FILES
from jobs.loop.ingest.sources import Site, Source, record_fields, sql

_FIELDS = (
    *("parent_scope", "parent_name", "scope", "name", "bytes", "adler32"),
    *("created_at", "known_at", "updated_at", "rses", "locked", "datatype"),
    *("campaign", "refused"),
)
_TIMES = ("created_at", "known_at", "updated_at")


def query(site: Site, *, refused: str = "NULL") -> sql.Query:
    """Files, one row a line; a file of several datasets comes several times. `refused`: why one is none.

    `known_at`: the field, else created_at, else 00:00 UTC of `day`; `updated_at`: the field, else the field
    known_at, else that of `day`; never before known_at.
    """
    moments = {f"{name}_us": sql.micros_of_text(name) for name in _TIMES}
    midnight = f"epoch_us(TIMESTAMP '{site.day}')" if site.day else "CAST(NULL AS BIGINT)"
    known = {
        "size": sql.count("bytes"),
        "first_us": f"coalesce(known_at_us, created_at_us, {midnight})",
        "published_us": f"coalesce(updated_at_us, known_at_us, {midnight})",
    }
    needed = sql.first_reason(
        *((f"{name} IS NULL", f"missing field: {name}") for name in ("scope", "name", "bytes")),
        ("size IS NULL", "unparsable size"),
        ("size < 0", "negative size"),
        *((f"{sql.stated_time(n)} IS NOT NULL AND {n}_us IS NULL", f"unparsable time: {n}") for n in _TIMES),
        ("first_us IS NULL", "missing field: known_at"),
    )
    return sql.Query(
        table=FILES,
        where=sql.LINES,
        steps=[
            *record_fields.columns(_FIELDS, numbers=("bytes", *_TIMES), states=("rses", "locked")),
            moments,
            known,
            *sql.with_parts("name", "scope"),
        ],
        columns=_columns(),
        reason=f"coalesce(CASE WHEN malformed THEN 'malformed JSON' END, {refused}, {needed})",
        sample="value",
    )


def _columns() -> dict[str, str]:
    named = sql.named("name", "scope")
    # In Rucio a CMS block (`/A/B/C#id`) is the parent; popularity is known by the dataset it belongs to.
    dataset = "regexp_replace(parent_name, '#.*$', '')"
    parent = f"coalesce(parent_scope, scope) || ':' || {dataset}"
    is_checksum = "regexp_full_match(lower(adler32), '[0-9a-f]{8}')"
    known_at = sql.timestamp("first_us")
    return named | {
        "dataset": f"coalesce({parent}, {named['dataset']})",
        "tier": f"coalesce({named['tier']}, datatype)",
        "campaign": f"coalesce({named['campaign']}, campaign)",
        "size_bytes": "size",
        "adler32": f"CASE WHEN {is_checksum} THEN lower(adler32) END",
        "created_at": sql.timestamp("created_at_us"),
        "origins": _names_of_list("rses"),
        "locked": _names_of_list("locked"),
        "known_at": known_at,
        "updated_at": f"greatest({sql.timestamp('published_us')}, {known_at})",
    }


def _names_of_list(field: str) -> str:
    """The names in `field`, a JSON list, each once and in order; null if it is none."""
    json_list = f"CASE WHEN json_valid({field}) THEN {field} ELSE 'null' END"
    names = f"""list_transform(json_transform({json_list}, '["VARCHAR"]'), lambda x: trim(x))"""
    return f"list_sort(list_distinct(list_filter({names}, lambda x: x <> '')))"


SOURCE = Source(query, table=FILES)
