"""WMArchive: framework job reports of CMS's production and CRAB jobs, a JSON document per line.

Steps' CPU times and bytes are summed, from first start to last stop; `meta_data.host` is the agent's.
"""

import secrets

from features.common.names import literal
from features.schema import JOB_RECORDS
from jobs.loop.ingest.sources import Site, Source, job_records, record_fields, sql, urls
from jobs.loop.ingest.sources.job_records import named, number

_TEXTS = (
    *("wmaid", "task", "meta_data.fwjr_id", "meta_data.host", "meta_data.wn_name", "meta_data.jobtype"),
    *("meta_data.jobstate", "meta_data.crab_id", "meta_data.crab_exit_code", "meta_data.ts"),
)
_CRAB = "^/?[0-9]{6}_[0-9]{6}[:_]"  # what CRAB's names of workflows begin with; the user follows
_UNSUBMITTED = "^(?:new|create|submit)"
_AFTERWARDS = "^(?:stageOut|logArch)"  # steps that fail if one before them did, whatever their place
_MEBIBYTE = 2**20  # CMSSW's MB
_UNSALTED = secrets.token_hex()  # of this process, as a bare hash of a name could be looked up


def query(site: Site) -> sql.Query:
    """Job records, one per report.

    A job whose state is not `success`, or with an exit code other than 0, has failed. Without NumberOfThreads
    it held one core. Only cmsRun reports CPU time: jobs without it, for example LogCollect, have none.
    """
    lists = {
        name: f"list_transform(json_extract_string(record, '$.{path}'), lambda x: {number('x')})"
        for name, path in {
            "cpus": "steps[*].performance.cpu.TotalJobCPU",
            "megabytes": "steps[*].performance.storage.readTotalMB",
            "starts": "steps[*].start",
            "stops": "steps[*].stop",
            "inputs": "steps[*].input[*].lfn",
        }.items()
    }
    is_after = f"coalesce(regexp_matches(json_extract_string(x, '$.name'), {literal(_AFTERWARDS)}), false)"
    site_of_step = named(sql.word(sql.text("x")))
    texts = {
        "lfns": "json_extract_string(record, '$.LFNArray[*]')",
        "threads": "json_extract_string(record, '$.steps[*].performance.cpu.NumberOfThreads')",
        "names": "json_extract_string(record, '$.steps[*].name')",
        "codes": f"list_concat({_codes(f'NOT {is_after}')}, {_codes(is_after)})",
        "sites": f"list_transform(json_extract_string(record, '$.steps[*].site'), lambda x: {site_of_step})",
        "datasets": "json_extract_string(record, '$.steps[*].output[*].inputDataset')",
    }
    moments = {
        "id": "coalesce(wmaid, concat_ws('/', host, task, fwjr_id, ts))",
        "start_us": sql.micros(first := "list_min(list_filter(starts, lambda x: x > 0))"),
        "end_us": sql.micros("list_max(stops)"),
        "reported_us": sql.micros("ts"),
        "cpu": "list_sum(cpus)",
        "wall": f"nullif(list_max(stops), 0) - {first}",
        "n_cores": f"coalesce(list_max(list_transform(threads, lambda x: {sql.count('x')})), "
        "CASE WHEN coalesce(list_count(threads), 0) = 0 THEN 1 END)",
        "n_bytes": f"try_cast(list_sum(megabytes) * {_MEBIBYTE} AS BIGINT)",
        "node": "wn_name",
        "site": "list_filter(sites, lambda x: x IS NOT NULL)[1]",
        "of_crab": f"crab_id IS NOT NULL OR regexp_matches(task, {literal(_CRAB)})",
        "code": f"coalesce(nullif({sql.count('crab_exit_code')}, 0), "
        f"list_filter(list_transform(codes, lambda x: {sql.count('x')}), lambda x: x <> 0)[1], 0)",
    }
    failed = {"failed": "jobstate <> 'success' OR code <> 0"}
    of_cmsrun = "list_bool_or(list_transform(names, lambda x: starts_with(x, 'cmsRun')))"
    return job_records.query(
        "wmarchive",
        site,
        steps=[
            *record_fields.columns(_TEXTS, states=("meta_data.jobstate",)),
            lists | texts,
            moments,
            failed,
        ],
        first=(
            ("task IS NULL", "missing field: task"),
            ("jobstate IS NULL", "missing field: jobstate"),
            (f"regexp_matches(jobstate, {literal(_UNSUBMITTED)})", "not a job: it has not run"),
        ),
        columns=_columns(site.salt),
        unmeasured=f"failed OR {of_cmsrun} IS FALSE",
    )


def _codes(which: str) -> str:
    steps = f"list_filter(json_extract(record, '$.steps[*]'), lambda x: {which})"
    return f"flatten(list_transform({steps}, lambda x: json_extract_string(x, '$.errors[*].exitCode')))"


def _columns(salt: str) -> dict[str, str]:
    workflow = "coalesce(nullif(split_part(task, '/', 2), ''), task)"
    of_user = sql.hashed_user(workflow, salt or _UNSALTED)
    return {
        "job": "CASE WHEN NOT of_crab THEN id END",
        "task": f"CASE WHEN NOT of_crab THEN {workflow} ELSE {of_user} END",
        "kind": "jobtype",
        "activity": "CASE WHEN of_crab THEN 'analysis' ELSE 'production' END",
        "dataset": "list_filter(datasets, lambda x: starts_with(x, '/'))[1]",
        "files": "list_distinct(list_filter(list_transform(inputs, "
        f"lambda x: {urls.plain_path('lfns[try_cast(x AS BIGINT) + 1]')}), lambda x: x IS NOT NULL))",
    }


SOURCE = Source(query, table=JOB_RECORDS)
