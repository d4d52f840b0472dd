"""HTCondor's history: job ads as JSON, one a line (`condor_history -jsonl`) or over several lines (`-json`).

The glidein's and the experiments' attributes are read where they are: CRAB's and WMAgent's of CMS, and what
CMSSW reports by Chirp. Any other pool's jobs have Owner, cluster and node.
"""

from __future__ import annotations

from jobs.ingest.sources import Site, job_records, sql
from jobs.ingest.sources.job_records import first_of, number

_SITES = (
    *("MATCH_EXP_JOB_GLIDEIN_CMSSite", "MATCH_GLIDEIN_CMSSite", "MATCH_EXP_JOB_GLIDEIN_Site"),
    *("MATCH_EXP_JOBGLIDEIN_ResourceName", "GLIDEIN_CMSSite"),
)
_CODES = ("Chirp_CRAB3_Job_ExitCode", "Chirp_WMCore_cmsRun_ExitCode", "ExitCode")
_CORES = ("CpusProvisioned", "RequestCpus")
_SPENT = ("CumulativeRemoteUserCpu", "CumulativeRemoteSysCpu", "RemoteUserCpu", "RemoteSysCpu")
_TEXTS = (
    *("GlobalJobId", "ClusterId", "ProcId", "DAGManJobId", "Owner", "JobStatus", "ExitBySignal"),
    *("LastRemoteHost", "CRAB_ReqName", "CRAB_Id", "CRAB_Retry", "CRAB_UserHN", "WMAgent_RequestName"),
    *("CMS_TaskType", "CMS_JobType", "DESIRED_CMSDataset", "RemoteWallClockTime", "ChirpCMSSWReadBytes"),
    *("JobStartDate", "JobCurrentStartDate", "CompletionDate", "EnteredCurrentStatus"),
)


def query(site: Site) -> sql.Query:
    """Job records, one per ad of a job that completed, or was removed after it had started.

    Wall and CPU time are those of all its runs. A removed job, one that a signal ended, and one with another
    exit code than 0 have failed. The id of a CRAB job is what CMSSW reports as `app_info` of its reads.
    """
    work = "concat_ws('_', CRAB_Id, 'https://glidein.cern.ch/' || CRAB_Id || '/' || {}, CRAB_Retry)"
    moments = {
        "id": "coalesce(GlobalJobId, ClusterId || '.' || ProcId || '#' || JobStartDate)",
        "start_us": _date("JobStartDate", "JobCurrentStartDate"),
        "end_us": _date("CompletionDate", "EnteredCurrentStatus"),
        "cpu": f"{_spent('User')} + coalesce({_spent('Sys')}, 0)",
        "wall": number("RemoteWallClockTime"),
        "n_cores": f"coalesce({', '.join(map(sql.count, _CORES))}, 1)",
        "n_bytes": sql.count("ChirpCMSSWReadBytes"),
        "node": "nullif(regexp_extract(LastRemoteHost, '([^@]*)$', 1), '')",
        "site": first_of(*_SITES),
        "code": f"coalesce({', '.join(map(sql.count, _CODES))})",
        "work": work.format("replace(CRAB_ReqName, '_', ':')"),
    }
    return job_records.query(
        "htcondor_history",
        site,
        steps=[*sql.json_fields((*_TEXTS, *_SITES, *_CODES, *_CORES, *_SPENT), numbers=_SPENT), moments],
        first=(
            ("JobStatus IS NULL", "missing field: JobStatus"),
            ("JobStatus NOT IN ('3', '4')", "not a job: it has not ended"),
            ("JobStatus = '3' AND start_us IS NULL", "not a job: removed before it ran"),
        ),
        columns=_columns(site.salt),
    )


def _columns(salt: str) -> dict[str, str]:
    # A user's own schedd is called user@host.
    job, schedd = (
        f"regexp_replace({one}, '^[^@#]*@', '')" for one in ("id", "split_part(GlobalJobId, '#', 1)")
    )
    group = f"concat_ws('#', {schedd}, coalesce(DAGManJobId, ClusterId, {job}))"
    return {
        "job": f"CASE WHEN CRAB_ReqName IS NULL THEN {job} ELSE {sql.hashed_user('work', salt)} END",
        "task": f"coalesce({sql.hashed_user('CRAB_ReqName', salt)}, WMAgent_RequestName, {group})",
        "kind": "coalesce(CMS_TaskType, CMS_JobType)",
        "activity": "CASE WHEN CRAB_ReqName IS NOT NULL THEN 'analysis' "
        "WHEN WMAgent_RequestName IS NOT NULL THEN 'production' END",
        "user": sql.hashed_user("coalesce(CRAB_UserHN, Owner)", salt),
        "failed": "JobStatus = '3' OR coalesce(ExitBySignal = 'true', false) OR coalesce(code, 0) <> 0",
        "exit_code": "code",
        "dataset": "DESIRED_CMSDataset",
    }


def _spent(kind: str) -> str:
    return f"coalesce({number(f'CumulativeRemote{kind}Cpu')}, {number(f'Remote{kind}Cpu')})"


def _date(*fields: str) -> str:
    """The first of the times that is stated; HTCondor writes 0 for none."""
    stated = ", ".join(f"nullif({field}, '0')" for field in fields)
    return sql.micros(f"coalesce({stated})")
