"""OSDF access log: lines of `[time] [Objectname:…] [Host:…] [Read:…] [Write:…]` and further fields."""

from features.schema import ACCESSES
from jobs.loop.ingest.sources import Site, Source, record_fields, sql, urls

_FIELDS = ("Objectname", "Site", "Server", "ServerType", "Read", "Write")
_CLIENT = r"\[Host:(?:\[[^\]]*\])?[^\]]*\]?"


def query(site: Site) -> sql.Query:
    """Accesses, one row a line that read something, when logged; `cache`: the server, if it says it is."""
    fields = {
        name: f"nullif(regexp_extract(value, '\\[{name}:((?:\\[[^\\]]*\\])?[^\\]]*)\\]', 1), '')"
        for name in _FIELDS
    }
    parsed = {
        "moment_us": sql.micros_of_moment("moment"),
        "n_read": sql.count("Read"),
        "n_write": sql.count("Write"),
        "path": urls.plain_path("Objectname"),
    }
    return sql.Query(
        table=ACCESSES,
        where=sql.LINES,
        steps=[
            {f"{name} field": field for name, field in fields.items()}
            | {"moment": "regexp_extract(value, '^\\[([^\\]]*)\\]', 1)"},
            *record_fields.fields(_FIELDS),
            parsed,
            *sql.with_parts("path"),
        ],
        columns=sql.named("path")
        | {
            "site": "Site",
            "cache": "CASE WHEN lower(ServerType) = 'cache' THEN " + urls.server("Server") + " END",
            "origin": urls.source_host("Objectname"),
            "accessed_at": sql.timestamp("moment_us"),
            "known_at": sql.timestamp("moment_us"),
            "read_bytes": "n_read",
            "event_id": sql.hashed(urls.without_secrets("trim(value, ' ')")),
        },
        reason=sql.first_reason(
            ("NOT regexp_matches(value, '^\\[.*\\]\\s*$')", "malformed line"),
            ("moment_us IS NULL", "unparsable time"),
            *((f"{name} IS NULL", f"missing field: {name}") for name in ("Objectname", "Read")),
            ("n_read IS NULL", "unparsable number: Read"),
            ("n_read < 0", "negative size"),
            ("n_read = 0 AND n_write > 0", "not a read: write"),
        ),
        sample=f"regexp_replace(value, '{_CLIENT}', '[Host:*]', 'g')",
    )


SOURCE = Source(query, has_sizes=False, of_paths=True)
