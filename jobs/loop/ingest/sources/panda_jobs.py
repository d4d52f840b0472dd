"""PanDA's jobs: JSON as BigPanDA answers (a record per line, a list, or `jobs`), or CSV with a header.

Columns are PanDA's, in lower case; those of a CSV may be in upper case.
"""

from features.common.names import literal
from features.schema import JOB_RECORDS
from jobs.loop.ingest.sources import Site, Source, job_records, record_fields, sql
from jobs.loop.ingest.sources.job_records import cores, number
from jobs.loop.ingest.sources.record_fields import Header

_NEEDED = ("pandaid", "jobstatus", "starttime", "endtime", "cpuconsumptiontime")
_TEXTS = (
    *("jeditaskid", "computingsite", "modificationhost", "wn", "produsername", "prodsourcelabel"),
    *("processingtype", "transexitcode", "piloterrorcode", "exeerrorcode", "actualcorecount", "corecount"),
    *("inputfilebytes", "proddblock", "creationhost", "statechangetime", "modificationtime", "creationtime"),
)
_CODES = ("piloterrorcode", "exeerrorcode", "transexitcode")
_CODES_OF_SERVER = (
    *("brokerageerrorcode", "ddmerrorcode", "jobdispatchererrorcode", "superrorcode", "taskbuffererrorcode"),
)
_FIELDS = (*_NEEDED, *_TEXTS, *_CODES_OF_SERVER)
_ENDED = ("finished", "failed", "cancelled", "closed")
_NO_TIME = "[0 .]+|0000-.*|1970-01-01.*|(?i:nat)"
_SERVER = "^(?:ai)?panda[^.]*([.]|$)"  # hosts of PanDA's server, which changes jobs that no pilot reports on


def header(line: str, path: str) -> Header:
    """The columns that the first line names, or none for JSON. Raises SchemaError."""
    if not line or line.lstrip()[:1] in ("{", "["):
        return Header(())
    return Header(record_fields.csv_header(line.lower(), path, _NEEDED).names, line)


def query(site: Site, header: Header) -> sql.Query:
    """Job records, one per job that ended after a worker had it.

    A failed job need not have a start, unless the server says why it never ran. Wall time is from start to
    end. `read_bytes` are those of the input files: PanDA rarely states what was read of them.
    """
    is_csv = bool(header.names)
    names = [name for name in _FIELDS if name in header.names]
    missing = {name: "CAST(NULL AS VARCHAR)" for name in _FIELDS if name not in header.names}
    fields = [missing, *record_fields.fields(names)] if is_csv else record_fields.columns(_FIELDS)
    of_report = ("statechangetime", "modificationtime", "creationtime")
    moments = {
        "id": "pandaid",
        "start_us": sql.micros_of_text("starttime"),
        "end_us": sql.micros_of_text("endtime"),
        "reported_us": f"coalesce({', '.join(map(sql.micros_of_text, of_report))})",
        "cpu": number("cpuconsumptiontime"),
        "n_cores": cores("nullif(actualcorecount, '0')", "nullif(corecount, '0')"),
        "n_bytes": sql.count("inputfilebytes"),
        "host": "nullif(regexp_extract(coalesce(wn, modificationhost), '([^@]*)$', 1), '')",
        "site": "computingsite",
        "code": f"coalesce({_stated(*_CODES)}, 0)",
        "of_server": f"coalesce({_stated(*_CODES_OF_SERVER)}, 0)",
        "failed": "jobstatus <> 'finished'",
    }
    is_node = f"wn IS NOT NULL OR start_us IS NOT NULL AND NOT regexp_matches(host, {literal(_SERVER)})"
    times = {
        "wall": "(end_us - start_us) / 1e6",
        "node": f"CASE WHEN {is_node} AND host IS DISTINCT FROM creationhost THEN host END",
    }
    never = "start_us IS NULL AND code = 0 AND wn IS NULL AND (jobstatus <> 'failed' OR of_server <> 0)"
    no_time = f"coalesce(regexp_full_match({{}}time, {literal(_NO_TIME)}), true)"
    return job_records.query(
        "panda_jobs",
        site,
        where=header.where if is_csv else sql.LINES,
        prepare=record_fields.csv_columns(header.names, names) if is_csv else None,
        steps=[step for step in fields if step] + [moments, times],
        first=(
            ("jobstatus IS NULL", "missing field: jobstatus"),
            (f"NOT {sql.is_one('jobstatus', _ENDED)}", "not a job: it has not ended"),
            *(
                (f"{n}_us IS NULL AND NOT {no_time.format(n)}", f"unparsable time: {n}time")
                for n in ("start", "end")
            ),
            (never, "not a job: it has not run"),
        ),
        columns=_columns(site.salt),
    )


def _columns(salt: str) -> dict[str, str]:
    return {
        "job": "pandaid",
        "task": "coalesce(jeditaskid, pandaid)",
        "kind": "processingtype",
        "activity": "CASE WHEN prodsourcelabel IN ('user', 'panda') THEN 'analysis' "
        "WHEN prodsourcelabel IS NOT NULL THEN 'production' END",
        "user": sql.hashed_user("produsername", salt),
        "dataset": "proddblock",
    }


def _stated(*names: str) -> str:
    """The counts, null where 0, which PanDA writes for none."""
    return ", ".join(f"nullif({sql.count(name)}, 0)" for name in names)


SOURCE = Source(query, header, table=JOB_RECORDS)
