"""CMS's file-access tracer: a JSON line per event of XRootD's `ofs.notify`, without size, bytes or user.

`tid` is XRootD's name of the client's session, `user.process:descriptor@host`.
"""

from features.common.names import literal
from features.schema import ACCESSES
from jobs.loop.ingest.sources import Site, Source, record_fields, sql, urls
from jobs.loop.ingest.sources.cms import is_one_of
from replay.config import expression

_NAMES = ("tid", "event", "path", "is_write", "ts_access", "storage")
_OURS = "^(?:cc[0-9]{1,3}|ask)[.]"  # sessions of our own connections (`prefetch.xcache.connections`)


def query(site: Site) -> sql.Query:
    """Accesses, one row an open for reading, known at once; its end and bytes are not reported.

    `cache` is the storage if that is one of the site's caches, else `site` is.
    """
    parsed = {
        "at_us": sql.micros_of_text("ts_access"),
        "lfn": urls.plain_path("path"),
        "writes": "coalesce(try_cast(is_write AS BOOLEAN), try_cast(is_write AS DOUBLE) <> 0, false) "
        "OR event IN ('openw', 'closew', 'create', 'fwrite')",
    }
    ours = literal(expression(site.storages))
    elsewhere = f"NOT regexp_full_match(storage, {ours})" if site.storages else "false"
    return sql.Query(
        table=ACCESSES,
        where=sql.LINES,
        steps=[*record_fields.columns(_NAMES), parsed, *sql.with_parts("lfn")],
        columns=_columns(site),
        reason=sql.first_reason(
            ("malformed", "malformed JSON"),
            *((f'"{name}" IS NULL', f"missing field: {name}") for name in _NAMES if name != "is_write"),
            ("writes", "not a read: write"),
            ("event NOT IN ('openr', 'open')", "not a read: another event"),
            (elsewhere, "not a read: another storage"),
            (f"regexp_matches(tid, {literal(_OURS)})", sql.OURS),
            ("at_us IS NULL", "unparsable time: ts_access"),
        ),
        sample=sql.without_users("value"),
    )


def _columns(site: Site) -> dict[str, str]:
    is_cache = is_one_of("storage", site.caches)
    return sql.named("lfn") | {
        "site": f"CASE WHEN NOT {is_cache} THEN storage END",
        "cache": f"CASE WHEN {is_cache} THEN storage END",
        "accessed_at": sql.timestamp("at_us"),
        "known_at": sql.timestamp("at_us"),
        "origin": urls.source_host("path"),
        "event_id": sql.hashed("storage", "tid", "lfn", "at_us"),
    }


SOURCE = Source(query, has_sizes=False, of_paths=True)
