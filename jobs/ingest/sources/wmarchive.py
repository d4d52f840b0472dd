"""WMArchive: framework job reports of CMS's production and CRAB jobs, a JSON document per line.

Of a report's steps the CPU times and bytes are summed; the job lasts from the first start to the last stop.
"""

from __future__ import annotations

from features.common.names import literal
from jobs.ingest.sources import Site, job_records, sql
from jobs.ingest.sources.job_records import number

_TEXTS = (
    *("wmaid", "task", "meta_data.fwjr_id", "meta_data.host", "meta_data.wn_name", "meta_data.jobtype"),
    *("meta_data.jobstate", "meta_data.crab_id", "meta_data.crab_exit_code", "meta_data.ts"),
)
_CRAB = "^/?[0-9]{6}_[0-9]{6}[:_]"
"""What CRAB's names of workflows begin with; the user follows."""
_MEBIBYTE = 2**20
"""CMSSW's MB."""


def query(site: Site) -> sql.Query:
    """Job records, one per report.

    A job whose state is not `success`, or with an exit code other than 0, has failed. Without NumberOfThreads
    it held one core.
    """
    lists = {
        name: f"list_transform(json_extract_string(record, '$.{path}'), lambda x: {number('x')})"
        for name, path in {
            "cpus": "steps[*].performance.cpu.TotalJobCPU",
            "threads": "steps[*].performance.cpu.NumberOfThreads",
            "megabytes": "steps[*].performance.storage.readTotalMB",
            "starts": "steps[*].start",
            "stops": "steps[*].stop",
            "codes": "steps[*].errors[*].exitCode",
            "inputs": "steps[*].input[*].lfn",
        }.items()
    }
    texts = {
        "lfns": "json_extract_string(record, '$.LFNArray[*]')",
        "sites": "json_extract_string(record, '$.steps[*].site')",
        "datasets": "json_extract_string(record, '$.steps[*].output[*].inputDataset')",
    }
    moments = {
        "id": "coalesce(wmaid, concat_ws('/', host, task, fwjr_id, ts))",
        "start_us": sql.micros("list_min(starts)"),
        "end_us": sql.micros("list_max(stops)"),
        "cpu": "list_sum(cpus)",
        "wall": "list_max(stops) - list_min(starts)",
        "n_cores": "CAST(least(greatest(coalesce(list_max(threads), 1), 0), 1e6) AS BIGINT)",
        "n_bytes": f"try_cast(list_sum(megabytes) * {_MEBIBYTE} AS BIGINT)",
        "node": "coalesce(wn_name, host)",
        "site": f"list_filter(sites, lambda x: {sql.text('x')} IS NOT NULL)[1]",
        "of_crab": f"crab_id IS NOT NULL OR regexp_matches(task, {literal(_CRAB)})",
        "code": f"coalesce(nullif({sql.count('crab_exit_code')}, 0), "
        "try_cast(list_filter(codes, lambda x: x <> 0)[1] AS BIGINT), 0)",
    }
    return job_records.query(
        "wmarchive",
        site,
        steps=[*sql.json_fields(_TEXTS, states=("meta_data.jobstate",)), lists | texts, moments],
        first=(("task IS NULL", "missing field: task"), ("jobstate IS NULL", "missing field: jobstate")),
        columns=_columns(site.salt),
    )


def _columns(salt: str) -> dict[str, str]:
    workflow = "coalesce(nullif(split_part(task, '/', 2), ''), task)"
    of_user = sql.hashed_user(workflow, salt)
    return {
        "job": "CASE WHEN NOT of_crab THEN id END",
        "task": f"CASE WHEN NOT of_crab THEN {workflow} "
        f"ELSE coalesce({of_user}, {sql.hashed('host', workflow)}) END",
        "kind": "jobtype",
        "activity": "CASE WHEN of_crab THEN 'analysis' ELSE 'production' END",
        "failed": "jobstate <> 'success' OR code <> 0",
        "exit_code": "code",
        "dataset": "list_filter(datasets, lambda x: starts_with(x, '/'))[1]",
        "files": "list_distinct(list_filter(list_transform(inputs, "
        "lambda x: lfns[try_cast(x AS BIGINT) + 1]), lambda x: x IS NOT NULL))",
    }
