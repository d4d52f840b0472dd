"""PanDA's jobs: JSON as BigPanDA answers (a record per line, a list, or `jobs`), or CSV with a header.

Columns are PanDA's, in lower case; those of a CSV may be in upper case.
"""

from __future__ import annotations

from jobs.ingest.sources import Site, csv_header, job_records, sql
from jobs.ingest.sources.csv_header import Header
from jobs.ingest.sources.job_records import number

_NEEDED = ("pandaid", "jobstatus", "starttime", "endtime", "cpuconsumptiontime")
_TEXTS = (
    *("jeditaskid", "computingsite", "modificationhost", "wn", "produsername", "prodsourcelabel"),
    *("processingtype", "transexitcode", "piloterrorcode", "exeerrorcode", "actualcorecount", "corecount"),
    *("inputfilebytes", "proddblock"),
)
_FIELDS = (*_NEEDED, *_TEXTS)
_CODES = ("piloterrorcode", "exeerrorcode", "transexitcode")
_ENDED = ("finished", "failed", "cancelled", "closed")


def header(line: str, path: str) -> Header:
    """The columns that the first line names, or none for JSON. Raises SchemaError."""
    if not line or line.lstrip()[:1] in ("{", "["):
        return Header(())
    return Header(csv_header.csv_header(line.lower(), path, _NEEDED).names, line)


def query(site: Site, header: Header) -> sql.Query:
    """Job records, one per job that ended after it had started.

    Wall time is from start to end. `read_bytes` are those of the input files: PanDA rarely states what was
    read of them.
    """
    is_csv = bool(header.names)
    wanted = [name for name in _FIELDS if name in header.names]
    missing = {name: "CAST(NULL AS VARCHAR)" for name in _FIELDS if name not in header.names}
    fields = [{**csv_header.fields(wanted), **missing}] if is_csv else sql.json_fields(_FIELDS)
    moments = {
        "id": "pandaid",
        "start_us": sql.micros_of_text("starttime"),
        "end_us": sql.micros_of_text("endtime"),
        "cpu": number("cpuconsumptiontime"),
        "n_cores": f"coalesce({_stated('actualcorecount', 'corecount')}, 1)",
        "n_bytes": sql.count("inputfilebytes"),
        "node": "nullif(regexp_extract(coalesce(wn, modificationhost), '([^@]*)$', 1), '')",
        "site": "computingsite",
        "code": f"coalesce({_stated(*_CODES)}, 0)",
    }
    return job_records.query(
        "panda_jobs",
        site,
        where=header.where if is_csv else sql.LINES,
        prepare=csv_header.csv_columns(header.names, wanted) if is_csv else None,
        steps=[step for step in fields if step] + [moments, {"wall": "(end_us - start_us) / 1e6"}],
        first=(
            ("jobstatus IS NULL", "missing field: jobstatus"),
            (f"NOT {sql.is_one('jobstatus', _ENDED)}", "not a job: it has not ended"),
            ("starttime IS NULL", "not a job: it has not run"),
            *(
                (f"{n}_us IS NULL AND {n}time IS NOT NULL", f"unparsable time: {n}time")
                for n in ("start", "end")
            ),
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
        "failed": "jobstatus <> 'finished'",
        "exit_code": "code",
        "dataset": "proddblock",
    }


def _stated(*names: str) -> str:
    """The counts, null where 0, which PanDA writes for none."""
    return ", ".join(f"nullif({sql.count(name)}, 0)" for name in names)
