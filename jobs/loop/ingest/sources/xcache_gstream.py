"""XCache's g-stream captures: one access a `file_close`, as the cache itself tells it."""

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from features.common.errors import NotPlainError
from features.common.input_files import InputFile
from features.schema import ACCESSES
from jobs.loop.ingest.sources import Site, Source, fetched, sql, urls
from jobs.loop.ingest.sources.local import finished_in
from jobs.loop.ingest.sources.workspace import Earlier, Workspace, batches_of
from prefetch.xcache.events import FileClose
from prefetch.xcache.gstream import MAX_SENDERS, CaptureReader, Numberings

_SHOWN_HOSTS = 3  # hosts under one name that a warning lists
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("lfn", "cache", "site", "event_id", "remote")),
        *((name, pa.int64()) for name in ("size_bytes", "attach_t", "detach_t", "received_t")),
        *((name, pa.int64()) for name in ("b_hit", "b_miss", "b_bypass", "b_todisk")),
        *((name, pa.int64()) for name in ("disk_bytes", "access_cnt")),
        *((name, pa.bool_()) for name in ("is_ours", "malformed")),
        ("input", pa.string()),
    ]
)
_OF_EVENTS = [name for name in _SCHEMA.names if name not in {"cache", "remote", "malformed", "input"}]


def query() -> sql.Query:
    """Accesses, one row a `file_close`.

    `bytes_missed` is null where it follows from the cache's records before: see `jobs.loop.ingest.fetched`.
    """
    times = ("attach_t", "detach_t", "received_t")
    sizes = ("b_hit", "b_miss", "b_bypass", "b_todisk", "disk_bytes")
    moments = {f"{name}_us": sql.micros(name) for name in times}
    return sql.Query(
        table=ACCESSES,
        steps=[moments | {"path": urls.plain_path("lfn")}, *sql.with_parts("path")],
        columns=_columns(),
        reason=sql.first_reason(
            ("malformed", "malformed record"),
            ("is_ours", sql.OURS),
            ("lfn = ''", "missing field: lfn"),
            *((f"{name}_us IS NULL", f"unparsable time: {name}") for name in times),
            *((f"{name} > {sql.MOST_BYTES}", f"impossible size: {name}") for name in sizes),
        ),
        sample="concat_ws(' ', lfn, attach_t, detach_t)",
    )


def decode(space: Workspace, places: Sequence[InputFile], *, site: Site, earlier: Earlier) -> int:
    """Accesses of the captures at `places`, one stream in order of their names; see `workspace.Decode`."""
    numberings, senders = Numberings(), Senders(site)
    events = chain.from_iterable(_file_rows(space, file, numberings, senders) for file in finished_in(places))
    space.take(query().reading(site), batches_of(events, _SCHEMA))
    space.alarms += senders.alarms()
    return numberings.n_lost


class Senders:
    """The caches that servers report as: by the settings of `site`, else by the names they give themselves.

    Nodes of a federation often share the name of their instance, so hosts that share a name are warned of.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._hosts: dict[str, dict[str, None]] = {}

    def cache(self, event: FileClose) -> str | None:
        """The cache that sent `event`, null if nothing names it."""
        host = event.address
        if (named := self._site.cache_of(host, event.port)) is not None:
            return named
        name = event.sender
        hosts = self._hosts.setdefault(name, {}) if len(self._hosts) < MAX_SENDERS else {}
        if len(hosts) <= _SHOWN_HOSTS:
            hosts[f"{host}:{event.port}"] = None
        return name or None

    def alarms(self) -> Iterator[str]:
        for name, hosts in sorted(self._hosts.items()):
            if len(hosts) > 1:
                servers = ", ".join(sorted(hosts)[:_SHOWN_HOSTS]) + " …" * (len(hosts) > _SHOWN_HOSTS)
                yield (
                    f"{servers} report as {name!r} and count as one cache; if they are several, say which is "
                    f'which: hosts = ["{min(hosts)}"] in [caches.NAME]'
                )


def _file_rows(
    space: Workspace, file: InputFile, numberings: Numberings, senders: Senders
) -> Iterator[dict[str, object]]:
    """The capture's events, then one row for each thing in it that is none."""
    source, reader = file.uri, CaptureReader(file, numberings)
    try:
        for event in reader.poll():
            yield {name: getattr(event, name) for name in _OF_EVENTS} | {
                "cache": senders.cache(event),
                "remote": event.remotes[0] if event.remotes else None,
                "malformed": False,
                "input": source,
            }
    except NotPlainError as error:
        space.refuse(source, error)
    reader.close()
    yield from [{"malformed": True, "input": source}] * reader.n_malformed


def _columns() -> dict[str, str]:
    read = sql.total("b_hit", "b_miss", "b_bypass")
    # xrdcp 5.5 copying a whole file for the first time has up to half of it counted twice.
    is_twice = "remote IS NOT NULL AND size_bytes > 0 AND disk_bytes >= size_bytes"
    once = f"CASE WHEN {is_twice} AND {read} > size_bytes THEN {read} - {read} % size_bytes ELSE {read} END"
    is_stated = "b_todisk IS NOT NULL"
    is_hit = "remote IS NULL AND b_miss + b_bypass = 0"
    missed = (
        f"CASE WHEN {is_stated} THEN {sql.total('greatest(b_miss, b_todisk)', 'b_bypass')} "
        f"WHEN {is_hit} THEN 0 END"
    )
    return sql.named("path") | {
        "site": "nullif(site, '')",
        "cache": "cache",
        "accessed_at": sql.timestamp("attach_t_us"),
        "closed_at": sql.timestamp("detach_t_us"),
        "known_at": sql.timestamp("received_t_us"),
        "size_bytes": "size_bytes",
        "read_bytes": once,
        "bytes_hit": fetched.hit(once, missed),
        "bytes_missed": missed,
        "disk_bytes": f"CASE WHEN NOT ({is_stated}) THEN disk_bytes END",
        "disk_accesses": f"CASE WHEN NOT ({is_stated}) THEN access_cnt END",
        "bypassed_bytes": f"CASE WHEN NOT ({is_stated} OR {is_hit}) THEN b_bypass END",
        "wall_s": "CAST(detach_t AS DOUBLE) - attach_t",
        "origin": f"coalesce(remote, {urls.source_host('lfn')})",
        "source": "'xcache_gstream'",
        "event_id": "event_id",
    }


SOURCE = Source(decode=decode, of_paths=True, of_caches=True)
