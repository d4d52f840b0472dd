"""XRootD's f-stream: one access a file opened at a server, as its binary UDP datagrams tell.

An open for writing is a read only if its close says so; for closes of other pulls see `fstream_pairs`.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from features.common.errors import NotPlainError
from features.common.hosts import names_a_server
from features.common.input_files import InputFile
from features.schema import ACCESSES
from jobs.loop.ingest.sources import Site, Source, fstream_pairs, sql, urls
from jobs.loop.ingest.sources.local import finished_in
from jobs.loop.ingest.sources.workspace import Earlier, Workspace, batches_of
from prefetch.xcache.fstream import Closed
from prefetch.xcache.fstream_capture import Access, Fault, FstreamReader, LoneClose, Server

_NAMELESS = "server-"
_FIRST_US = 86400 * 1_000_000  # a server without a clock begins its windows in the first hours of 1970
_BYTES = ("size_bytes", "read", "readv", "written")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("input", "sender", "cache", "lfn", "fault", "stated", "work")),
        *((name, pa.int64()) for name in ("stod", "file_id", "user_id", "opened_us", "closed_us", "known_s")),
        *((name, pa.int64()) for name in _BYTES),
        ("for_writing", pa.bool_()),
    ]
)


def query(site: Site, *, ended: bool = True) -> sql.Query:
    """Accesses, one row an open, known since it was reported. A session's number stands in for the user.

    `ended`: whether what the close says, or that there is none, refuses an open.
    """
    reason = sql.first_words(
        ("fault IS NOT NULL", "fault"),
        ("lfn = ''", "'missing field: lfn'"),
        (f"opened_us < {_FIRST_US}", "'unparsable time: window'"),
        *fstream_pairs.impossible(*_BYTES),
        *(fstream_pairs.no_read("for_writing", "size_bytes") if ended else ()),
    )
    return sql.Query(
        table=ACCESSES,
        steps=[{"path": urls.plain_path("lfn")}, *sql.with_parts("path")],
        columns=_columns(site.salt),
        reason=reason,
        sample="coalesce(stated, concat_ws(' ', sender, stod, file_id, lfn))",
    ).reading(site)


def decode(space: Workspace, places: Sequence[InputFile], *, site: Site, earlier: Earlier) -> int:
    """Accesses of the datagrams at `places` (JSON lines: files, and folders of them).

    They are read as one stream in order of the files' names. An open without a close stays without end and
    bytes, until a later pull brings the close. So does one that overtook its open. See `workspace.Decode`.
    """
    reader, uri = FstreamReader(), places[0].uri if places else ""

    def rows() -> Iterator[dict[str, object]]:
        for file in finished_in(places):
            try:
                yield from (_row(record, file.uri, site) for record in reader.read(file))
            except NotPlainError as error:
                space.refuse(file.uri, error)
        yield from (_row(access, uri, site) for access in reader.unfinished())

    pairs = fstream_pairs.Pairs(_SCHEMA)
    space.take(query(site), batches_of(pairs.without_lone(rows()), _SCHEMA))
    pairs.pair(space, query(site, ended=False), _event_id(), earlier)
    space.alarms += _alarms(space)
    return reader.n_lost


def _alarms(space: Workspace) -> Iterator[str]:
    (nameless,) = space.select(
        "SELECT count(DISTINCT cache) AS n, min(cache) AS name FROM parsed "
        f"WHERE starts_with(cache, '{_NAMELESS}')"
    ).to_pylist()
    if nameless["n"]:
        yield (
            f"opens came from a loopback address, which names no cache: each of {nameless['n']} starts of a "
            f"server counts as a cache of its own, for example {nameless['name']}; let the shoveler send the "
            "server's address"
        )


def _row(record: Access | Fault, source: str, site: Site) -> dict[str, object]:
    if isinstance(record, Fault):
        row: dict[str, object] = {"input": source, "fault": record.reason, "stated": record.sample}
        if isinstance(record, LoneClose):
            row |= {"file_id": record.closed.file_id, **_close(record.server, record.closed)}
        return row
    opened = record.opened
    return {
        "input": source,
        "cache": _cache(record.server, site),
        "lfn": opened.lfn,
        "file_id": opened.file_id,
        "user_id": opened.user_id,
        "opened_us": opened.at_us,
        "size_bytes": opened.size_bytes,
        "for_writing": opened.for_writing,
        "known_s": record.known_s,
        "work": record.work or None,
        **_close(record.server, record.closed),
    }


def _cache(server: Server, site: Site) -> str:
    """The cache's name; a loopback address names none, so that each life of such a server is a cache."""
    if names_a_server(server.host):
        return site.cache_of(server.host) or server.host
    return f"{_NAMELESS}{server.stod}-{server.server_id}"


def _close(server: Server, closed: Closed | None) -> dict[str, object]:
    return {
        "sender": server.sender,
        "stod": server.stod,
        "closed_us": closed and closed.at_us,
        "read": closed and closed.read_bytes,
        "readv": closed and closed.readv_bytes,
        "written": closed and closed.write_bytes,
    }


def _columns(salt: str) -> dict[str, str]:
    session = "CASE WHEN user_id > 0 THEN concat_ws(':', sender, stod, user_id) END"
    accessed_at = sql.timestamp("opened_us")
    return sql.named("path") | {
        "cache": "cache",
        "accessed_at": accessed_at,
        "known_at": sql.timestamp("known_s * 1000000"),
        "size_bytes": "size_bytes",
        **fstream_pairs.at_close(accessed_at),
        "origin": urls.source_host("lfn"),
        "user": sql.hashed_user(session, salt),
        # What CMSSW says of its job names the user, so it is kept as a hash.
        "job": sql.hashed_user("work", salt),
        "source": "'xrootd_fstream'",
        "event_id": _event_id(),
    }


def _event_id() -> str:
    return sql.hashed("sender", "stod", "file_id")


SOURCE = Source(decode=decode, is_whole=True, of_paths=True, of_sessions=True, in_two_parts=True)
