"""Rucio traces: JSON lines as Rucio's tracer and its HDFS archive hold them (`traces.YYYY-MM-DD*`).

Reads are get, get_sm, sm_get, their `_a` twins and download, done or without a state. CMS's own traces
(dmwm/rucio-tracers) have no uuid, site, size or transfer: a file, when it was read, and where.
"""

from features.common.names import literal
from features.schema import ACCESSES
from jobs.loop.ingest.sources import Site, Source, record_fields, sql, urls

_READS = ("get", "get_sm", "sm_get", "get_sm_a", "sm_get_a", "download")
_JOBS = ("get_sm", "sm_get")
_NOBODY = "(?i)robot|pilot|prod|ddmadmin|^root$"
_DONE = ("DONE", "FOUND", "FOUND_ROOT")
_OF_CMS = ("file_read_ts", "timestamp")
_TIMES = ("transferStart", "timeStart", "transferEnd", "timeEnd", "traceTimeentryUnix")
_ENTRY = "CASE WHEN uuid IS NULL THEN traceTimeentryUnix END"
_IDENTITY = "coalesce(uuid, concat_ws(chr(30), 'no uuid', wn_name, jobtype, account, remoteSite))"
_FIELDS = (
    *("eventType", "scope", "filename", "dataset", "datasetScope", "localSite", "remoteSite"),
    *("clientState", "url", "usr", "usrdn", "account", "uuid", "appid", "taskid"),
    *("jobtype", "wn_name", *_OF_CMS),
)
_AS_THEY_ARE = ("eventType", "clientState", "url", "usrdn", "uuid")


def query(site: Site) -> sql.Query:
    """Accesses of traces: one row a trace of a read.

    `accessed_at` is transferStart, else timeStart, file_read_ts, timestamp, or of a trace without a uuid
    traceTimeentryUnix; `known_at` traceTimeentryUnix, else the end of the transfer, timestamp, file_read_ts.
    A time of 0 is none. Without a uuid, traces of one file are the same if time, node, kind of job, account
    and origin are. `job` is appid (the PanDA job), `task` taskid, else appid. `read_bytes` is the size where
    the file was copied, null where the job read it remotely.
    """
    read_at = [sql.micros(name) for name in _OF_CMS]
    moments = {
        "start_us": ["transferStart", "timeStart", *read_at, _ENTRY],
        "end_us": ["transferEnd", "timeEnd"],
        "known_us": ["traceTimeentryUnix", "transferEnd", "timeEnd", *reversed(read_at)],
    }
    not_done = bounded("transfer not done: ", "clientState", "^[A-Z_]{1,40}$")
    incomplete = sql.first_reason(
        *((f"{name} IS NULL", f"missing field: {name}") for name in ("scope", "filename")),
        *((f"unparsable = '{name}'", f"unparsable time: {name}") for name in _TIMES),
        ("start_us IS NULL AND file_read_ts IS NOT NULL", "unparsable time: file_read_ts"),
        ("start_us IS NULL", "missing field: transferStart"),
        ("known_us IS NULL", "missing field: traceTimeentryUnix"),
        ("unparsable = 'filesize'", "unparsable size"),
        ("filesize < 0", "negative size"),
    )
    no_read = sql.first_words(
        ("malformed", "'malformed JSON'"),
        ("eventType IS NULL", "'missing field: eventType'"),
        not_a_read("eventType"),
        ("'cachecast' IN (appid, usr, account)", literal(sql.OURS)),
        (f"NOT {sql.is_one('clientState', _DONE)}", not_done),
    )
    return sql.Query(
        table=ACCESSES,
        where=sql.LINES,
        steps=[
            *record_fields.columns(_FIELDS, times=_TIMES, counts=("filesize",), states=_AS_THEY_ARE),
            {name: f"coalesce({', '.join(times)})" for name, times in moments.items()},
            *urls.with_hosts("url"),
            *sql.with_parts("filename", "scope"),
        ],
        columns=_columns(site.salt),
        reason=f"coalesce({no_read}, {incomplete})",
        sample=sql.without_users("value"),
    )


def _columns(salt: str) -> dict[str, str]:
    named = sql.named("filename", "scope")
    by_event = activity("eventType", "coalesce(usrdn, usr, account)")
    is_copied = "clientState IS NULL OR clientState <> 'FOUND_ROOT'"
    stated = "coalesce(datasetScope, scope) || ':' || dataset"
    stated = f"CASE WHEN contains(dataset, ':') THEN dataset ELSE {stated} END"
    return named | {
        # Of a CMS block (`/A/B/C#id`), the dataset that it belongs to.
        "dataset": f"coalesce(split_part({stated}, '#', 1), {named['dataset']})",
        "site": "localSite",
        "cache": "CASE WHEN origin_host IS NOT NULL THEN first_host END",
        "accessed_at": sql.timestamp("start_us"),
        "closed_at": sql.timestamp("end_us"),
        "known_at": sql.timestamp("known_us"),
        "size_bytes": "filesize",
        "read_bytes": f"CASE WHEN {is_copied} THEN filesize END",
        "wall_s": "(end_us - start_us) / 1e6",
        "origin": "coalesce(origin_host, remoteSite, first_host)",
        "user": sql.hashed_user("coalesce(usr, usrdn, account)", salt),
        "task": "coalesce(taskid, appid)",
        "job": "appid",
        "activity": f"CASE WHEN jobtype IS NULL THEN {by_event} "
        "WHEN lower(jobtype) = 'analysis' OR lower(account) = 'crab' THEN 'analysis' ELSE 'production' END",
        "event_id": sql.hashed(
            _IDENTITY, "scope", urls.without_cgi("filename"), sql.seconds_text("start_us")
        ),
    }


def not_a_read(kind: str) -> tuple[str, str]:
    """The check that refuses an event of type `kind` that reads nothing, and its words."""
    return f"NOT {sql.is_one(kind, _READS)}", bounded("not a read: ", kind, "^[a-z_]{1,20}$")


def activity(kind: str, who: str) -> str:
    """`analysis` of an analysis job (`_a`), or of a get or download by no robot; else production."""
    return (
        f"CASE WHEN ends_with({kind}, '_a') THEN 'analysis' WHEN {sql.is_one(kind, _JOBS)} THEN 'production' "
        f"WHEN NOT regexp_matches({who}, '{_NOBODY}') THEN 'analysis' ELSE 'production' END"
    )


def bounded(words: str, value: str, form: str) -> str:
    """`words` and `value`; a value of another form than `form` is `other`, so that reasons stay few."""
    return f"'{words}' || CASE WHEN regexp_matches({value}, '{form}') THEN {value} ELSE 'other' END"


SOURCE = Source(query)
