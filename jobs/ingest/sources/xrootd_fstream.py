"""XRootD's f-stream: one access a file opened at a server, as its binary UDP datagrams tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa

from features.common.errors import NotPlainError
from features.common.input_files import InputFile
from features.common.names import literal
from features.common.times import day_label
from features.schema import ACCESSES
from jobs.ingest import merging
from jobs.ingest.sources import Site, Source, sql, urls
from jobs.ingest.sources.decoded import Earlier, batches_of
from jobs.ingest.sources.local import captures_in
from jobs.ingest.sources.workspace import Workspace
from prefetch.xcache.fstream import Closed
from prefetch.xcache.fstream_capture import LONE_CLOSE, Access, Fault, FstreamReader, LoneClose, Server

# An open is looked for in the days before its close that late records re-open.
_LONGEST_OPEN_S = 3 * 86400
# No cache has smaller blocks; a prefetch of ours reads one byte of each by a vector read.
_LEAST_BLOCK_BYTES = 64 * 1024
_BYTES = ("size_bytes", "read", "readv", "written")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("input", "remote", "lfn", "fault", "told", "work")),
        *((name, pa.int64()) for name in ("stod", "file_id", "user_id", "opened_us", "closed_us", "known_s")),
        *((name, pa.int64()) for name in _BYTES),
    ]
)


def query(site: Site) -> sql.Query:
    """Accesses, one row an open, known since it was reported. A session's number stands in for the user."""
    most = f"ceil(size_bytes / {_LEAST_BLOCK_BYTES}.0)"
    reason = sql.first_words(
        ("fault IS NOT NULL", "fault"),
        ("lfn = ''", "'missing field: lfn'"),
        ("opened_us < 0", "'unparsable time: window'"),
        *_impossible(*_BYTES),
        ('"read" = 0 AND readv = 0 AND written > 0', "'not a read: write'"),
        (f'"read" = 0 AND readv BETWEEN 1 AND {most}', literal(sql.OURS)),
    )
    return sql.Query(
        table=ACCESSES,
        steps=[{"path": urls.plain_path("lfn")}, *sql.with_parts("path")],
        columns=_columns(site.salt),
        reason=reason,
        sample="coalesce(told, concat_ws(' ', remote, stod, file_id, lfn))",
    )


def decode(space: Workspace, places: Sequence[InputFile], *, site: Site, earlier: Earlier) -> int:
    """Accesses of the datagrams at `places` (JSON lines: files, and folders of them).

    They are read as one stream in order of the files' names. An open without a close stays without end and
    bytes, until a later pull brings the close: it ends the open that `earlier` tells. So does one that
    overtook its open. See `decoded.Decode`.
    """
    reader = FstreamReader()
    rows = chain.from_iterable(_file_rows(space, reader, file) for file in captures_in(places))
    left = (_row(access, places[0].path.absolute().as_uri()) for access in reader.unfinished())
    lone: list[dict[str, object]] = []
    events = _without_lone(chain(rows, left), lone)
    space.take(query(site).reading(site), batches_of(events, _SCHEMA))
    if lone:
        space.put("earlier", ACCESSES.partition, _opened(lone, earlier))
        merging.merge(space, in_two_parts=True, into="opened", old="earlier")
        space.take(_ended(), batches_of(lone, _SCHEMA))
    return reader.n_lost


def _without_lone(
    rows: Iterable[dict[str, object]], lone: list[dict[str, object]]
) -> Iterator[dict[str, object]]:
    """`rows`, but the closes without an open, which go to `lone`."""
    for row in rows:
        if row.get("fault") == LONE_CLOSE:
            lone.append(row)
        else:
            yield row


def _opened(lone: Sequence[dict[str, object]], earlier: Earlier) -> Sequence[pa.Table]:
    """The accesses that were opened in the days before the closes in `lone`."""
    times = [int(str(row["closed_us"])) // 1_000_000 for row in lone]
    since, until = max(0, max(0, min(times)) - _LONGEST_OPEN_S), min(max(0, *times), sql.LATEST_S)
    return earlier(day_label(since), day_label(until))


def _ended() -> sql.Query:
    """Closes as accesses, each with what table `opened` (unique by event_id) tells of its open; else refused.

    An open that has ended is ended by the same close alone, told once more.
    """
    opened = {name: f'"open"."{name}"' for name in ACCESSES.column_names}
    is_its_own = f"({opened['closed_at']} IS NULL OR {opened['closed_at']} = make_timestamp(closed_us))"
    is_lone = f'NOT coalesce({is_its_own} AND "open" IS NOT NULL, false)'
    return sql.Query(
        table=ACCESSES,
        steps=[{"id": _event_id()}, {"open": "(SELECT opened FROM opened WHERE opened.event_id = id)"}],
        columns=opened | _at_close(opened["accessed_at"]),
        reason=sql.first_words((is_lone, "fault"), *_impossible("read", "readv")),
        sample="told",
    )


def _file_rows(space: Workspace, reader: FstreamReader, file: InputFile) -> Iterator[dict[str, object]]:
    source = file.path.absolute().as_uri()
    try:
        yield from (_row(record, source) for record in reader.read(file))
    except NotPlainError as error:
        space.refuse(source, error)


def _row(record: Access | Fault, source: str) -> dict[str, object]:
    if isinstance(record, LoneClose):
        return {"fault": record.reason, "told": record.sample, **_close(record.server, record.closed)} | {
            "input": source,
            "file_id": record.closed.file_id,
        }
    if isinstance(record, Fault):
        return {"input": source, "fault": record.reason, "told": record.sample}
    opened = record.opened
    return {
        "input": source,
        "lfn": opened.lfn,
        "file_id": opened.file_id,
        "user_id": opened.user_id,
        "opened_us": opened.at_us,
        "size_bytes": opened.size_bytes,
        "known_s": record.known_s,
        "work": record.work or None,
        **_close(record.server, record.closed),
    }


def _close(server: Server, closed: Closed | None) -> dict[str, object]:
    return {
        "remote": server[0],
        "stod": server[1],
        "closed_us": closed and closed.at_us,
        "read": closed and closed.read_bytes,
        "readv": closed and closed.readv_bytes,
        "written": closed and closed.write_bytes,
    }


def _impossible(*names: str) -> list[tuple[str, str]]:
    return [(f'NOT "{name}" BETWEEN 0 AND {sql.MOST_BYTES}', f"'impossible size: {name}'") for name in names]


def _columns(salt: str) -> dict[str, str]:
    session = "CASE WHEN user_id > 0 THEN concat_ws(':', remote, stod, user_id) END"
    accessed_at = sql.timestamp("opened_us")
    return sql.named("path") | {
        "cache": "regexp_replace(remote, ':[0-9]+$', '')",
        "accessed_at": accessed_at,
        "known_at": sql.timestamp("known_s * 1000000"),
        "size_bytes": "size_bytes",
        "n_reads": "1",
        **_at_close(accessed_at),
        "origin": urls.source_host("lfn"),
        "user": sql.hashed_user(session, salt),
        # What CMSSW says of its job names the user, so it is kept as a hash.
        "job": sql.hashed_user("work", salt),
        "source": "'xrootd_fstream'",
        "event_id": _event_id(),
    }


def _at_close(accessed_at: str) -> dict[str, str]:
    """What the close tells of an access that began at `accessed_at`; null where there is none."""
    return {
        "closed_at": sql.timestamp("closed_us"),
        "read_bytes": sql.total('"read"', "readv"),
        "wall_s": f"(closed_us - epoch_us({accessed_at})) / 1e6",
    }


def _event_id() -> str:
    return sql.hashed("remote", "stod", "file_id")


SOURCE = Source(decode=decode, is_whole=True, of_sessions=True, in_two_parts=True)
