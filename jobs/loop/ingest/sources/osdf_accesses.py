"""File opens of an OSDF cache, decoded from XRootD's f-stream: CSV with a header.

Columns: time (open), win_beg, win_end (the packet's window), lfn, size, user_id, file_id, read, readv,
close_time, and perhaps write. The last are empty while no close was seen.
"""

from features.schema import ACCESSES
from jobs.loop.ingest.sources import Site, Source, record_fields, sql, urls

_COLUMNS = ("time", "win_end", "lfn", "size", "user_id", "file_id", "read", "readv", "close_time")
_TIMES = {"time": "open_us", "win_end": "end_us", "close_time": "close_us"}
_NUMBERS = ("size", "read", "readv")
_WRITTEN = "write"


def query(site: Site, header: record_fields.Header) -> sql.Query:
    """Accesses, one row a file open. A server's session number stands in for the user.

    `known_at` is the end of the packet's window, or the close if that is later.
    """
    names = [*_COLUMNS, *({_WRITTEN} & set(header.names))]
    fields = ", ".join(f"""coalesce("{name}", '')""" for name in _COLUMNS)
    parsed = {
        "path": urls.plain_path("lfn"),
        **{column: sql.micros(f'"{name}"') for name, column in _TIMES.items()},
        **{f"n_{name}": sql.count(f'"{name}"') for name in _NUMBERS},
        "n_written": sql.count(f'"{_WRITTEN}"') if _WRITTEN in header.names else "0",
    }
    return sql.Query(
        table=ACCESSES,
        where=header.where,
        prepare=record_fields.csv_columns(header.names, names),
        steps=[*record_fields.fields(names), parsed, *sql.with_parts("path")],
        columns=_columns(site.salt),
        reason=_reason(),
        sample=f"concat_ws(',', {fields})",
    )


def _reason() -> str:
    needed = ("time", "win_end", "lfn", "file_id")
    return sql.first_reason(
        *((f'"{name}" IS NULL', f"missing field: {name}") for name in needed),
        ("open_us IS NULL", "unparsable time: time"),
        ("end_us IS NULL", "unparsable time: win_end"),
        (f"{sql.stated_time('close_time')} IS NOT NULL AND close_us IS NULL", "unparsable time: close_time"),
        *((f'"{n}" IS NOT NULL AND n_{n} IS NULL', f"unparsable number: {n}") for n in _NUMBERS),
        *((f"n_{n} < 0", "negative size") for n in _NUMBERS),
        *((f"n_{n} > {sql.MOST_BYTES}", f"impossible size: {n}") for n in _NUMBERS),
        ("coalesce(n_read, 0) + coalesce(n_readv, 0) = 0 AND n_written > 0", "not a read: write"),
    )


def _columns(salt: str) -> dict[str, str]:
    return sql.named("path") | {
        "cache": urls.cache_host("lfn"),
        "accessed_at": sql.timestamp("open_us"),
        "closed_at": sql.timestamp("close_us"),
        "known_at": sql.timestamp("greatest(end_us, close_us)"),
        "size_bytes": "n_size",
        "read_bytes": sql.total("n_read", "coalesce(n_readv, 0)"),
        "wall_s": "(close_us - open_us) / 1e6",
        "origin": urls.source_host("lfn"),
        "user": sql.hashed_user("user_id", salt),
        "event_id": sql.hashed(urls.without_cgi("lfn"), "user_id", "file_id", sql.seconds_text("open_us")),
    }


SOURCE = Source(
    query, lambda line, path: record_fields.csv_header(line, path, _COLUMNS), of_paths=True, of_sessions=True
)
