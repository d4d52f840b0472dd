"""CMS's two popularity streams: JSON lines of MONIT with the record in `data`, times in ms.

A field is read as `{"data": {"file_lfn": …}}` or as `{"data.file_lfn": …}`. `server_domain` and its like are
what the server knows of itself and of its client.
"""

import functools
from collections.abc import Sequence

from features.common.names import literal
from features.schema import ACCESSES
from jobs.loop.ingest.sources import Site, Source, record_fields, sql, urls

_TIMES = ("start_time", "end_time", "kafka_timestamp", "timestamp")
_SIZES = ("file_size", "read_bytes", "read_bytes_at_close")
_WRITTEN = ("write_bytes", "write_bytes_at_close")
_FIELDS = (
    *("file_lfn", "unique_id", "user_dn", "app_info", "is_transfer", "start_time", "end_time", *_SIZES),
    *("server_host", "server_domain", "client_host", "client_domain", "site_name", "src_experiment_site"),
    *("operation", *_WRITTEN),
)
_PUBLISHED = ("metadata.kafka_timestamp", "metadata.timestamp")
_NAMES = (*(f"data.{name}" for name in _FIELDS), *_PUBLISHED)
_NUMBERS = (*(f"data.{name}" for name in ("start_time", "end_time", *_SIZES, *_WRITTEN)), *_PUBLISHED)
_READ = "greatest(n_read_bytes, n_read_bytes_at_close)"
_IS_WRITE = (
    f"coalesce({_READ}, 0) = 0 AND (lower(operation) = 'write' OR greatest(n_write_bytes, "
    "n_write_bytes_at_close) > 0)"
)


def query(site: Site, *, site_column: str) -> sql.Query:
    """Accesses, one row a record; `site_column` is where the job ran. A cache's own fetch is refused.

    `known_at`: the metadata's kafka_timestamp, else timestamp, else end_time. Bytes are the greater of
    read_bytes and read_bytes_at_close, as a lost packet leaves one of them short.
    """
    parsed = (
        {f"{name}_us": sql.micros_of_ms(f'"{name}"') for name in _TIMES}
        | {f"n_{name}": sql.count(name) for name in (*_SIZES, *_WRITTEN)}
        | {"lfn": urls.plain_path("file_lfn"), "server": _host_name("server"), "client": _host_name("client")}
    )
    known = {"known_us": "coalesce(kafka_timestamp_us, timestamp_us, end_time_us)"}
    stated = {name: sql.stated_time(f'"{name}"') for name in _TIMES}
    return sql.Query(
        table=ACCESSES,
        where=sql.LINES,
        steps=[*record_fields.columns(_NAMES, numbers=_NUMBERS), parsed, known, *sql.with_parts("lfn")],
        columns=_columns(site) | {"site": site_column},
        reason=sql.first_reason(
            ("malformed", "malformed JSON"),
            ("lower(is_transfer) IN ('true', '1')", "not a read: transfer"),
            ("contains(lower(app_info), 'cachecast')", sql.OURS),
            (is_one_of("client", site.caches), "client is a cache"),
            *((f"{n} IS NULL", f"missing field: {n}") for n in ("file_lfn", "unique_id")),
            (f"{stated['start_time']} IS NULL", "missing field: start_time"),
            *((f"{stated[n]} IS NOT NULL AND {n}_us IS NULL", f"unparsable time: {n}") for n in _TIMES),
            ("known_us IS NULL", "missing field: end_time"),
            *((f"{n} IS NOT NULL AND n_{n} IS NULL", f"unparsable number: {n}") for n in _SIZES),
            *((f"n_{n} < 0", "negative size") for n in _SIZES),
            (_IS_WRITE, "not a read: write"),
        ),
        sample=sql.without_users("value"),
    )


def _columns(site: Site) -> dict[str, str]:
    served_by_a_cache = is_one_of("server", site.caches)
    origin = f"CASE WHEN NOT {served_by_a_cache} THEN coalesce(server_domain, src_experiment_site) END"
    by_name = f"CASE WHEN {served_by_a_cache} THEN server END"
    return sql.named("lfn") | {
        "cache": f"coalesce({urls.cache_host('file_lfn')}, {by_name})",
        "accessed_at": sql.timestamp("start_time_us"),
        "closed_at": sql.timestamp("end_time_us"),
        "known_at": sql.timestamp("known_us"),
        "size_bytes": "n_file_size",
        "read_bytes": _READ,
        "wall_s": "(end_time_us - start_time_us) / 1e6",
        "origin": f"coalesce({urls.source_host('file_lfn')}, {origin})",
        "user": sql.hashed_user("user_dn", site.salt),
        # A CRAB task's name holds its user's, so it is kept as a hash too.
        "task": sql.hashed_user("app_info", site.salt),
        "job": sql.hashed_user("app_info", site.salt),
        "activity": "CASE WHEN contains(lower(app_info), 'crab') THEN 'analysis' "
        "WHEN app_info IS NOT NULL THEN 'production' END",
        "event_id": sql.hashed("unique_id", "lfn", sql.seconds_text("start_time_us")),
    }


def is_one_of(host: str, hosts: Sequence[str]) -> str:
    """Whether `host` is one of `hosts`, or in a domain that is one of them; false for a null."""
    names = [name.lower() for name in hosts]
    checks = [f"lower({host}) = {literal(name)}" for name in names]
    checks += [f"ends_with(lower({host}), {literal(f'.{name}')})" for name in names]
    return f"coalesce({' OR '.join(checks) or 'false'}, false)"


def _host_name(side: str) -> str:
    """`host.domain` of the server or client; what there is of it, null for neither."""
    host, domain = f"{side}_host", f"{side}_domain"
    whole = f"nullif(concat_ws('.', {host}, {domain}), '')"
    return f"CASE WHEN ends_with({host}, {domain}) THEN {host} ELSE {whole} END"


# What servers report (HDFS `…/xrootd/{raw,enr}/gled/`): of the job's site no more than its domain.
AAA = Source(functools.partial(query, site_column="client_domain"), of_paths=True)
# What jobs report, one per file read (HDFS `…/cmssw_pop/raw/metric/`). `fallback` (the job read over the WAN
# what its site did not have) shows in `origin`, and is not kept.
POPULARITY = Source(functools.partial(query, site_column="site_name"), of_paths=True)
