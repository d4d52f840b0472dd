"""HTCondor's queue: job ads of `condor_q -json`, `-jsonl` or `-long`, those of CRAB and WMAgent included.

Names of attributes: HTCondor's manual; DagmanCreator of CRABServer; SimpleCondorPlugin of WMCore.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping

from jobs.loop.ingest.queue_entries import UNDER
from jobs.loop.ingest.queues import classads
from jobs.loop.ingest.queues.place import Place, Refused, folded, is_data, moment_of, named, texts

_IDLE, _RUNNING = 1, 2
_STATES = {
    3: "not waiting: removed",
    4: "not waiting: completed",
    5: "not waiting: held",
    6: "not waiting: transferring output",
    7: "not waiting: suspended",
}
_ON_SCHEDD = (7, 12)  # universes whose jobs run where they are submitted: scheduler (DAGMan) and local
_DATASET = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9_.-]*){2}/[A-Z0-9-]+")
_MOST_FILES = 10_000  # of a job: any user could else make a queue too large to be read
_READ_IN = ("transferinput", "args", "arguments")
_STATED = "cachecastinputs"
_INPUTS = ("crab_inputdata", "desired_cmsdataset", _STATED, *_READ_IN)
ATTRIBUTES = (
    *("GlobalJobId", "ClusterId", "ProcId", "JobStatus", "JobUniverse", "QDate", "DeferralTime", "TaskType"),
    *("CRAB_ReqName", "CRAB_InputData", "CRAB_JobCount", "CRAB_SiteWhitelist", "DESIRED_CMSDataset"),
    *("DESIRED_Sites", "WMAgent_RequestName", "DAG_NodesTotal", "DAG_NodesDone", "TransferInput", "Args"),
    *("Arguments", "CachecastInputs", "RoutedFromJobId", "RoutedToJobId", "CRAB_UserHN", "Owner"),
)
"""What of an ad is read."""


@dataclasses.dataclass
class _Group:
    """Jobs that read the same. `n_left`, `n_planned`: of the whole task, where an ad says so.

    `starts_s`: when they may start; `made_s`: when they were submitted.
    """

    raw: object
    jobs: set[str] = dataclasses.field(default_factory=set)
    sites: set[str] = dataclasses.field(default_factory=set)
    n_left: int = 0
    n_planned: int = 0
    starts_s: list[int] = dataclasses.field(default_factory=list)
    made_s: list[int | None] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _Reads:
    job_id: str
    work: str | None
    datasets: tuple[str, ...]
    files: tuple[str, ...]
    owner: str | None


def entries(raw: Iterable[object], place: Place) -> Iterator[object]:
    """An entry per work, inputs and site of the jobs that are idle or running.

    A job router's copy counts with its source, if that is in the same answer.
    """
    groups: dict[_Reads, _Group] = {}
    routed: set[str] = set()
    copies: list[object] = []
    # The copies come last, after their sources.
    for is_copy, job in itertools.chain(
        zip(itertools.repeat(False), raw), zip(itertools.repeat(True), copies)
    ):
        ad = folded(job)
        if ad and "routedfromjobid" in ad and not is_copy:
            copies.append(job)
            continue
        if ad and "routedtojobid" in ad:
            routed.add(_local_id(ad))
        fault = "not a job's ad" if ad is None else _fault(ad)
        if ad and is_copy and not fault and (source := _source(ad)) and source in routed:
            fault = "not a job: the routed copy of another"
        if ad is None or fault:
            yield Refused(fault, job)
            continue
        reads = _reads(ad, place)
        if not reads.datasets and not reads.files:
            yield Refused(_no_input(ad), job)
            continue
        if len(reads.files) + len(reads.datasets) > _MOST_FILES:
            yield Refused(f"names more than {_MOST_FILES} files", job)
            continue
        _add(groups.setdefault(reads, _Group(job)), ad, place)
    for reads, group in groups.items():
        for entry in _stated(reads, group, place):
            yield from place.spread(entry, sorted(group.sites), group.raw, needs_site=False)


def _fault(ad: Mapping[str, object]) -> str:
    status, universe = (_count(classads.value_of(name, ad)) for name in ("jobstatus", "jobuniverse"))
    if status is None or _id(ad) is None:
        return "not a job's ad: no JobStatus, or neither GlobalJobId nor ClusterId"
    if universe in _ON_SCHEDD and not _is_crab_task(ad):
        return "not a job: it holds no worker's slot"
    if status not in (_IDLE, _RUNNING):
        return _STATES.get(status, "unknown JobStatus")
    return ""


def _is_crab_task(ad: Mapping[str, object]) -> bool:
    """Whether it is the DAG of a CRAB task, whose jobs enter the queue a few at a time."""
    return _text(ad, "tasktype") == "ROOT" and _text(ad, "crab_reqname") is not None


def _id(ad: Mapping[str, object]) -> str | None:
    if (named := _text(ad, "globaljobid")) is not None:
        return named
    cluster, proc = (_count(classads.value_of(name, ad)) for name in ("clusterid", "procid"))
    return None if cluster is None else f"{cluster}.{proc or 0}"


def _local_id(ad: Mapping[str, object]) -> str:
    """Its id without the time of its submission: schedd#cluster.proc, or cluster.proc."""
    full = _id(ad) or ""
    return full.rpartition("#")[0] or full


def _source(ad: Mapping[str, object]) -> str:
    """The id of the job of which this one is a job router's copy, where both are in one queue; else empty."""
    source = _text(ad, "routedfromjobid") or ""
    schedd, is_global, _ = _local_id(ad).rpartition("#")
    return f"{schedd}{is_global}{source}" if source else ""


def _reads(ad: Mapping[str, object], place: Place) -> _Reads:
    crab, agent = _text(ad, "crab_reqname"), _text(ad, "wmagent_requestname")
    task = f"crab:{place.hashed(crab)}" if crab else f"cms:{agent}" if agent else None
    schedd, _, job = _local_id(ad).rpartition("#")
    user, is_named, host = schedd.rpartition("@")
    if is_named:  # as one of several of a host, or as a user's own, which must not name the user
        schedd = f"{place.hashed(user)}@{host}"
    cluster = job.partition(".")[0]
    job_id = task or (f"{schedd}#{cluster}" if schedd else cluster)
    stated = texts(classads.value_of(_STATED, ad))
    named_files = named((_text(ad, name) or "" for name in _READ_IN), is_framework=task is not None)
    files = tuple(dict.fromkeys((*named_files, *filter(is_data, stated))))
    datasets = tuple(name for name in stated if not is_data(name))
    of_task = next((name for field in _INPUTS[:2] if (name := _dataset(_text(ad, field)))), None)
    return _Reads(
        job_id=job_id,
        work=task or (f"condor:{job_id}" if schedd else None),
        datasets=datasets or ((of_task,) if of_task and not files else ()),
        files=files,
        # CRAB's jobs have one owner; but anybody may write its user into an ad.
        owner=UNDER.join(filter(None, (_text(ad, "owner"), _text(ad, "crab_userhn")))) or None,
    )


def _dataset(name: str | None) -> str | None:
    """A dataset of CMS, without its scope; CRAB writes other things for tasks that read none."""
    bare = (name or "").rpartition(":")[2].partition("#")[0]
    return bare if _DATASET.fullmatch(bare) else None


def _no_input(ad: Mapping[str, object]) -> str:
    if classads.library() is None and any(classads.is_expression(ad.get(name)) for name in _INPUTS):
        return f"names its input by an expression; {classads.EXTRA}"
    return "names no dataset or file"


def _add(group: _Group, ad: Mapping[str, object], place: Place) -> None:
    if _is_crab_task(ad):
        n_all, n_done = (_count(classads.value_of(name, ad)) for name in ("dag_nodestotal", "dag_nodesdone"))
        group.n_left = max(group.n_left, (n_all or 0) - (n_done or 0))
        group.n_planned = max(group.n_planned, n_all or 0)
    else:
        group.jobs.add(_id(ad) or "")
        group.n_planned = max(group.n_planned, _count(classads.value_of("crab_jobcount", ad)) or 0)
    sites = classads.value_of("desired_sites", ad) or classads.value_of("crab_sitewhitelist", ad)
    group.sites.update(texts(sites))
    group.starts_s.append(max(place.as_of_s, moment_of(classads.value_of("deferraltime", ad)) or 0))
    group.made_s.append(moment_of(classads.value_of("qdate", ad)))


def _stated(reads: _Reads, group: _Group, place: Place) -> Iterator[dict[str, object]]:
    n_jobs = max(1, len(group.jobs), group.n_left)
    job: dict[str, object] = {"job_id": reads.job_id, "work": reads.work, "n_jobs": n_jobs}
    job["owner"] = reads.owner
    job |= place.starting(min(group.starts_s)) | place.known(min(filter(None, group.made_s), default=None))
    # Each file is read by one of the task's jobs: by those that are left, as likely as they are many.
    share = {"certainty": min(1.0, n_jobs / group.n_planned)} if group.n_planned else {}
    yield from (job | share | {"dataset": name} for name in reads.datasets)
    if reads.files:
        yield job | {"files": list(reads.files)}


def _text(ad: Mapping[str, object], name: str) -> str | None:
    value = classads.value_of(name, ad)
    return value if isinstance(value, str) and value and value.lower() != "undefined" else None


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 2**53 and value == int(value) else None
