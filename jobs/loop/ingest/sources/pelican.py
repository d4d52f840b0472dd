"""Pelican's public access records (OSDF): JSON lines, each day a file of the caches and one of an origin.

`op_time` is the server's uptime, no duration. The sizes of files are not stated.
"""

from collections.abc import Sequence

from features.schema import ACCESSES
from jobs.loop.ingest.sources import Site, Source, record_fields, sql, urls
from jobs.loop.ingest.sources.cms import is_one_of

_TEXTS = ("object_name", "site", "remote_ip", "server", "server_type", "appinfo")
_NUMBERS = ("timestamp", "bytes_sent", "bytes_rcvd", "op_time", "count")
_NONE = r"(?i)^(n/?a|null|none|unknown|missing directory|localhost.*|\[?(::)?(ffff:)?(127[.][0-9.]+|1)?\]?)$"
"""What stands for none; a loopback address, whose `::` the records may lack, names nobody."""
_ADDRESS = r"(?i)^\[?(?:(?:::)?ffff:)?([^\[\]]*)\]?$"
_CACHES = "(?i)^(xrdcl-|xrootd)"  # the agents of caches at an origin
_DAY_US = 86400 * 1_000_000


def query(site: Site) -> sql.Query:
    """Accesses, one row per record.

    A transfer in parts gives a row per part: which belong together is known only when all files are there,
    and the table does not depend on how they are cut. `accessed_at` is the record's time, its end is not
    reported. `known_at` is the end of the day, when the day's file is published.
    """
    parsed = {
        "path": urls.plain_path(_known("object_name")),
        "client": f"regexp_replace({_known('remote_ip')}, '{_ADDRESS}', '\\1')",
        "host": urls.server(_known("server")),
        "place": _known("site"),
        "kind": "lower(server_type)",
        "at_us": sql.micros_of_ms('"timestamp"'),
        "sent": sql.count("bytes_sent"),
        "received": sql.count("bytes_rcvd"),
    }
    return sql.Query(
        table=ACCESSES,
        where=sql.LINES,
        steps=[
            *record_fields.columns((*_TEXTS, *_NUMBERS), numbers=_NUMBERS),
            parsed,
            *sql.with_parts("path"),
        ],
        columns=_columns(site.salt),
        reason=_reason(site.caches),
        sample=sql.without_users("value"),
    )


def _known(name: str) -> str:
    return f"CASE WHEN NOT regexp_matches({name}, '{_NONE}') THEN {name} END"


def _reason(caches: Sequence[str]) -> str:
    is_cache = f"{is_one_of('client', caches)} OR kind = 'origin' AND regexp_matches(appinfo, '{_CACHES}')"
    return sql.first_reason(
        ("malformed", "malformed JSON"),
        ("contains(lower(appinfo), 'cachecast')", sql.OURS),
        ("received > 0 AND coalesce(sent, 0) = 0", "not a read: write"),
        # Five minutes of a file: whose reads, it does not tell, and an origin's clients are caches.
        ('"count" IS NOT NULL', "not a read: the sum of an origin"),
        (is_cache, "client is a cache"),
        ("path IS NULL", "missing field: object_name"),
        *((f'"{name}" IS NULL', f"missing field: {name}") for name in ("timestamp", "bytes_sent")),
        ("at_us IS NULL", "unparsable time: timestamp"),
        ("sent IS NULL", "unparsable number: bytes_sent"),
        ("sent < 0", "negative size"),
    )


def _columns(salt: str) -> dict[str, str]:
    return sql.named("path") | {
        "site": "place",
        "cache": "CASE WHEN kind = 'cache' THEN host END",
        "accessed_at": sql.timestamp("at_us"),
        "known_at": sql.timestamp(f"(at_us // {_DAY_US} + 1) * {_DAY_US}"),
        "read_bytes": "sent",
        "origin": f"coalesce({urls.source_host('object_name')}, CASE WHEN kind = 'origin' THEN host END)",
        "user": sql.hashed_user("client", salt),
        "event_id": sql.hashed(
            *("at_us", "path", "host", "place", "client", "appinfo", "sent", "received", "op_time")
        ),
    }


SOURCE = Source(query, has_sizes=False, of_paths=True)
