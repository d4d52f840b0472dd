"""HTCondor's history: job ads as JSON, one a line (`condor_history -jsonl`) or over several lines (`-json`).

Attributes of the glidein and of the experiments are read where an ad has them: those of CRAB and WMAgent of
CMS, and what CMSSW reports by Chirp. Any other pool's jobs have Owner, cluster and node.
"""

from features.schema import JOB_RECORDS
from jobs.loop.ingest.sources import Site, Source, job_records, record_fields, sql
from jobs.loop.ingest.sources.job_records import cores, first_of, number

_SITES = (
    *("MATCH_EXP_JOB_GLIDEIN_CMSSite", "MATCH_GLIDEIN_CMSSite", "MATCH_EXP_JOB_GLIDEIN_Site"),
    *("MATCH_EXP_JOBGLIDEIN_ResourceName", "GLIDEIN_CMSSite"),
)
_CODES = ("Chirp_CRAB3_Job_ExitCode", "Chirp_WMCore_cmsRun_ExitCode", "ExitCode")
_CORES = ("CpusProvisioned", "RequestCpus")
_SPENT = ("CumulativeRemoteUserCpu", "CumulativeRemoteSysCpu", "RemoteUserCpu", "RemoteSysCpu")
_RUNS = ("NumJobStarts", "NumShadowStarts", "JobRunCount")
_LAST_RUN = ("LastRemoteWallClockTime", "CommittedTime")
_ON_WORKERS = (
    *("1", "4", "5", "8", "10", "11", "13"),
    *("standard", "pvm", "vanilla", "mpi", "java", "parallel", "vm", "docker", "container"),
)
"""Universes whose jobs hold a worker's slot; container and docker are vanilla (5) by number. Scheduler's (7:
DAGMan) and local's (12) run where they are submitted; grid's (9) are in the history of another system."""
_SAME_START_US = 60_000_000  # JobStartDate and JobCurrentStartDate of one run differ by no more
_TEXTS = (
    *("GlobalJobId", "ClusterId", "ProcId", "DAGManJobId", "Owner", "JobStatus", "ExitBySignal"),
    *("LastRemoteHost", "CRAB_ReqName", "CRAB_Id", "CRAB_Retry", "CRAB_UserHN", "WMAgent_RequestName"),
    *("CMS_TaskType", "CMS_JobType", "DESIRED_CMSDataset", "RemoteWallClockTime", "ChirpCMSSWReadBytes"),
    *("JobStartDate", "JobCurrentStartDate", "CompletionDate", "EnteredCurrentStatus", "JobUniverse", "Cmd"),
    "MaxHosts",
)


def query(site: Site) -> sql.Query:
    """Job records, one per ad of a worker's job that completed, or was removed after it had started.

    A job has failed if it was removed, if a signal ended it, or if its exit code is not 0. The id of a CRAB
    job is what CMSSW reports as `app_info` of its reads.
    """
    crab_job = "concat_ws('_', CRAB_Id, 'https://glidein.cern.ch/' || CRAB_Id || '/' || {}, CRAB_Retry)"
    default_universe = "CASE WHEN ends_with(Cmd, 'condor_dagman') THEN '7' ELSE '5' END"
    facts = {
        "universe": f"lower(coalesce(JobUniverse, {default_universe}))",
        "id": "coalesce(GlobalJobId, ClusterId || '.' || ProcId || '#' || JobStartDate)",
        "start_us": _date("JobStartDate", "JobCurrentStartDate"),
        "end_us": _date("CompletionDate", "EnteredCurrentStatus"),
        "reported_us": "CAST(NULL AS BIGINT)",
        "n_cores": f"{cores(*_CORES)} * greatest({sql.count('MaxHosts')}, 1)",
        "n_bytes": sql.count("ChirpCMSSWReadBytes"),
        "node": "nullif(regexp_extract(LastRemoteHost, '([^@]*)$', 1), '')",
        "site": first_of(*_SITES),
        "code": f"coalesce({', '.join(map(sql.count, _CODES))})",
        "crab_job": crab_job.format("replace(CRAB_ReqName, '_', ':')"),
    }
    failed = "JobStatus = '3' OR lower(ExitBySignal) IN ('true', '1') OR code <> 0"
    texts = (*_TEXTS, *_SITES, *_CODES, *_CORES, *_SPENT, *_RUNS, *_LAST_RUN)
    return job_records.query(
        "htcondor_history",
        site,
        steps=[
            *record_fields.columns(texts, numbers=(*_SPENT, *_LAST_RUN)),
            facts | _runs(),
            _times() | {"failed": f"coalesce({failed}, false)"},
        ],
        first=(
            ("JobStatus IS NULL", "missing field: JobStatus"),
            (f"NOT {sql.is_one('universe', _ON_WORKERS)}", "not a job: it holds no worker's slot"),
            ("JobStatus NOT IN ('3', '4')", "not a job: it has not ended"),
            ("JobStatus = '3' AND start_us IS NULL", "not a job: removed before it ran"),
            (
                "NOT failed AND cpu IS NULL AND last_cpu + all_wall >= 0",
                "CPU time and wall time of other runs",
            ),
        ),
        columns=_columns(site.salt),
        of_one_pool=True,
    )


def _runs() -> dict[str, str]:
    """CPU and wall time of all runs and of the last one, and whether there were several.

    RemoteWallClockTime is of all runs; RemoteUserCpu and RemoteSysCpu leave out those that were evicted.
    """
    last = ", ".join(f"nullif({number(name)}, 0)" for name in _LAST_RUN)
    system = f"coalesce({number('CumulativeRemoteSysCpu')}, {number('RemoteSysCpu')}, 0)"
    restarted = f"{_date('JobCurrentStartDate')} > {_date('JobStartDate')} + {_SAME_START_US}"
    return {
        "all_cpu": f"{number('CumulativeRemoteUserCpu')} + {system}",
        "all_wall": number("RemoteWallClockTime"),
        "last_cpu": f"{number('RemoteUserCpu')} + coalesce({number('RemoteSysCpu')}, 0)",
        "last_wall": f"coalesce({last})",
        "ran_again": f"greatest({', '.join(map(sql.count, _RUNS))}) > 1 OR {restarted}",
    }


def _times() -> dict[str, str]:
    of_all, of_last = "all_cpu + all_wall IS NOT NULL", "last_wall IS NOT NULL OR ran_again IS NOT TRUE"
    return {
        "cpu": f"CASE WHEN {of_all} THEN all_cpu WHEN {of_last} THEN last_cpu END",
        "wall": f"CASE WHEN {of_all} OR last_wall IS NULL THEN all_wall ELSE last_wall END",
    }


def _columns(salt: str) -> dict[str, str]:
    # A user's own schedd is called user@host, and must not name the user.
    job, schedd = (
        f"regexp_replace({field}, '^[^@#]*@', '')" for field in ("id", "split_part(GlobalJobId, '#', 1)")
    )
    group = f"concat_ws('#', {schedd}, coalesce(DAGManJobId, ClusterId, {job}))"
    return {
        "job": f"CASE WHEN CRAB_ReqName IS NULL THEN {job} ELSE {sql.hashed_user('crab_job', salt)} END",
        "task": f"coalesce({sql.hashed_user('CRAB_ReqName', salt)}, WMAgent_RequestName, {group})",
        "kind": "coalesce(CMS_TaskType, CMS_JobType)",
        "activity": "CASE WHEN CRAB_ReqName IS NOT NULL THEN 'analysis' "
        "WHEN WMAgent_RequestName IS NOT NULL THEN 'production' END",
        "user": sql.hashed_user("coalesce(CRAB_UserHN, Owner)", salt),
        "dataset": "DESIRED_CMSDataset",
    }


def _date(*fields: str) -> str:
    """The first of the times that is stated; HTCondor writes 0 for none."""
    stated = ", ".join(f"nullif({field}, '0')" for field in fields)
    return sql.micros(f"coalesce({stated})")


SOURCE = Source(query, table=JOB_RECORDS)
