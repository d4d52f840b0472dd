"""HTCondor's queue: job ads of `condor_q -json`, `-jsonl` or `-long`, those of CRAB and WMAgent included.

Names of attributes: HTCondor's manual; DagmanCreator of CRABServer; SimpleCondorPlugin of WMCore.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping

from features.common.times import as_of_label
from jobs.loop.ingest.queues import classads
from jobs.loop.ingest.queues.place import Place, Refused, folded, moment_of, texts

_IDLE, _RUNNING = 1, 2
_STATES = {
    3: "not waiting: removed",
    4: "not waiting: completed",
    5: "not waiting: held",
    6: "not waiting: transferring output",
    7: "not waiting: suspended",
}
_ON_SCHEDD = (7, 12)
"""Universes whose jobs run where they are submitted: scheduler (DAGMan) and local."""

_DATASET = re.compile(r"(/[A-Za-z0-9][A-Za-z0-9_.-]*){2}/[A-Z0-9-]+")
_URL = re.compile(r"""\b(?:x?roots?|https?|davs?|osdf|pelican|stash|gsiftp|srm)://[^\s"',;\\\]\[<>]+""")
_LFN = re.compile(r"""(?<![\w/.:-])/store/[^\s"',;\\\]\[<>]+""")
_DID = re.compile(r"(?<![\w/.:-])[A-Za-z][\w.-]*:[\w][\w.+-]*\.root(?:\.\d+)?(?![\w/])")
_WEB = ("http", "dav")
_MOST_FILES = 10_000
"""Of a job: any user could else make a queue too large to be read."""
_READ_IN = ("transferinput", "args", "arguments")
_INPUTS = ("crab_inputdata", "desired_cmsdataset", *_READ_IN)


@dataclasses.dataclass
class _Group:
    """Jobs that read the same. `n_left`, `n_planned`: of the whole task, where an ad says so.

    `starts_s`: when the first may start; `made_s`: when the first was submitted.
    """

    raw: object
    jobs: set[str] = dataclasses.field(default_factory=set)
    sites: set[str] = dataclasses.field(default_factory=set)
    n_left: int = 0
    n_planned: int = 0
    starts_s: int | None = None
    made_s: int | None = None


@dataclasses.dataclass(frozen=True)
class _Reads:
    """What a job reads, and as part of which work; `files` is empty if there is a dataset."""

    job_id: str
    work: str | None
    dataset: str | None
    files: tuple[str, ...]


def entries(raw: Iterable[object], place: Place) -> Iterator[object]:
    """An entry per work, inputs and site of the jobs that are idle or running."""
    groups: dict[_Reads, _Group] = {}
    for job in raw:
        ad = folded(job)
        fault = "not a job's ad" if ad is None else _fault(ad)
        if ad is None or fault:
            yield Refused(fault, job)
            continue
        reads = _reads(ad)
        if reads.dataset is None and not reads.files:
            yield Refused(_no_input(ad), job)
            continue
        if len(reads.files) > _MOST_FILES:
            yield Refused(f"names more than {_MOST_FILES} files", job)
            continue
        _add(groups.setdefault(reads, _Group(job)), ad, place)
    for reads, group in groups.items():
        yield from place.spread(_entry(reads, group, place), sorted(group.sites), group.raw, needs_site=False)


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


def _reads(ad: Mapping[str, object]) -> _Reads:
    crab, agent = _text(ad, "crab_reqname"), _text(ad, "wmagent_requestname")
    task = f"crab:{crab}" if crab else f"cms:{agent}" if agent else None
    schedd, _, job = (_id(ad) or "").rpartition("#")[0].rpartition("#")
    cluster = job.partition(".")[0] or str(_id(ad)).partition(".")[0]
    job_id = task or (f"{schedd}#{cluster}" if schedd else cluster)
    dataset = next((name for field in _INPUTS[:2] if (name := _dataset(_text(ad, field)))), None)
    files = _files(ad, is_framework=task is not None)
    return _Reads(
        job_id=job_id,
        work=task or (f"condor:{job_id}" if schedd else None),
        dataset=None if files else dataset,
        files=files,
    )


def _dataset(name: str | None) -> str | None:
    """A dataset of CMS, without its scope; CRAB writes other things for tasks that read none."""
    bare = (name or "").rpartition(":")[2].partition("#")[0]
    return bare if _DATASET.fullmatch(bare) else None


def _files(ad: Mapping[str, object], *, is_framework: bool) -> tuple[str, ...]:
    """LFNs, DIDs and URLs of data among arguments and transferred files; a framework's own are its code."""
    names: dict[str, None] = {}
    for name in _READ_IN:
        text = _text(ad, name) or ""
        urls = () if is_framework else _URL.findall(text)
        names |= dict.fromkeys(url for url in urls if not url.startswith(_WEB) or _is_data(url))
        names |= dict.fromkeys(_LFN.findall(_URL.sub(" ", text)))
        names |= dict.fromkeys(() if is_framework else _DID.findall(_URL.sub(" ", text)))
    return tuple(names)


def _is_data(url: str) -> bool:
    path = url.partition("?")[0]
    return "/store/" in path or path.endswith(".root")


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
    starts_s = max(place.as_of_s, moment_of(classads.value_of("deferraltime", ad)) or 0)
    group.starts_s = starts_s if group.starts_s is None else min(starts_s, group.starts_s)
    made_s = moment_of(classads.value_of("qdate", ad))
    group.made_s = made_s if group.made_s is None else min(made_s or group.made_s, group.made_s)


def _entry(reads: _Reads, group: _Group, place: Place) -> dict[str, object]:
    n_jobs = max(1, len(group.jobs), group.n_left)
    entry: dict[str, object] = {"job_id": reads.job_id, "work": reads.work, "n_jobs": n_jobs}
    if reads.dataset:
        entry["dataset"] = reads.dataset
        # Each file is read by one of the task's jobs: by those that are left, as likely as they are many.
        entry |= {"certainty": min(1.0, n_jobs / group.n_planned)} if group.n_planned else {}
    else:
        entry["files"] = list(reads.files)
    if group.starts_s is not None and group.starts_s > place.as_of_s:
        entry["expected_start"] = as_of_label(group.starts_s)
    return entry | place.known(group.made_s)


def _text(ad: Mapping[str, object], name: str) -> str | None:
    value = classads.value_of(name, ad)
    return value if isinstance(value, str) and value and value.lower() != "undefined" else None


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 2**53 and value == int(value) else None
