"""XCache's own files about its files: the accesses that cinfo remembers, and what is on disk."""

from collections.abc import Sequence

from features.common.input_files import InputFile
from features.common.names import literal
from features.schema import ACCESSES
from jobs.loop.ingest.sources import Site, Source, fetched, sql, urls
from jobs.loop.ingest.sources.workspace import Earlier, Workspace
from prefetch.xcache import cinfo_rows

STILL_OPEN = "still open: it counts when it has ended"
_TIMES = ("attach_s", "detach_s")
_BYTES = ("bytes_hit", "bytes_missed", "bytes_bypassed")
_RECORD = (*_TIMES, *_BYTES, "bytes_read", "bytes_fetched", "nth", "wall_s", "n_reads", "is_ours")


def decode(space: Workspace, places: Sequence[InputFile], *, site: Site, earlier: Earlier) -> int:
    """Accesses of cinfo files below folders, each named as its cache. Raises InputError if one is none."""
    for folder in (place.path.absolute() for place in places):
        definition = query(folder.name, folder.as_uri())
        space.take(definition.reading(site), cinfo_rows.batches(folder))
    return 0


def query(cache: str, source: str) -> sql.Query:
    """Accesses of files (see `cinfo_rows.SCHEMA`) as those of `cache`; `source` is the input's URI.

    Known at its end. Its id is of cache, file, start, and place among those of that second, so that it counts
    once however often it is scanned and whatever XCache merges.
    """
    listed = "CASE WHEN len(records) > 0 THEN records WHEN fault IS NOT NULL THEN [NULL] ELSE [] END"
    return sql.Query(
        table=ACCESSES,
        steps=[
            {"record": f"unnest({listed})", "input": literal(source)},
            {name: f"record.{name}" for name in _RECORD} | {"path": urls.plain_path('"name"')},
            {f"{name}_us": sql.micros(name) for name in _TIMES},
            *sql.with_parts("path"),
        ],
        columns=_columns(cache),
        reason=sql.first_words(
            ("fault IS NOT NULL", "fault"),
            ("detach_s IS NULL", literal(STILL_OPEN)),
            ("is_ours", literal(sql.OURS)),
            *((f"{name}_us IS NULL", f"'unparsable time: {name}'") for name in _TIMES),
            *((f"NOT {n} BETWEEN 0 AND {sql.MOST_BYTES}", f"'impossible size: {n}'") for n in _BYTES),
        ),
        sample="coalesce(detail, concat_ws(' ', \"name\", attach_s, detach_s))",
    )


def _columns(cache: str) -> dict[str, str]:
    # What was read of a file without a size was fetched, too, but not of how many blocks.
    missed = "CASE WHEN size_bytes > 0 OR bytes_read = 0 THEN bytes_fetched END"
    event = [literal(cache), urls.without_cgi('"name"'), "attach_s"]
    return sql.named("path") | {
        "cache": literal(cache),
        "accessed_at": sql.timestamp("attach_s_us"),
        "closed_at": sql.timestamp("detach_s_us"),
        "known_at": sql.timestamp("detach_s_us"),
        "size_bytes": "size_bytes",
        "read_bytes": "bytes_read",
        "bytes_hit": fetched.hit("bytes_read", missed),
        "bytes_missed": missed,
        "disk_bytes": "bytes_on_disk",
        "disk_accesses": "n_accesses",
        "n_reads": "n_reads",
        "wall_s": "CAST(wall_s AS DOUBLE)",
        "origin": urls.source_host('"name"'),
        "source": "'xcache_cinfo'",
        "event_id": f"CASE WHEN nth = 0 THEN {sql.hashed(*event)} ELSE {sql.hashed(*event, 'nth')} END",
    }


SOURCE = Source(decode=decode, is_whole=True, of_paths=True, of_caches=True, is_local=True)
