"""PanDA's queue: tasks and jobs before they run, with their input datasets.

JSON as the monitor answers (`/tasks/?json&datasets=true`, `/jobs/?json`) or with the server's names, which
differ in case: TaskSpec, JobSpec and FileSpec of panda-server, JediDatasetSpec for a task's datasets.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from jobs.loop.ingest.queues.place import Place, Refused, folded, moment_of, texts
from jobs.loop.ingest.queues.rucio import STAGED_S

_WAITING_JOBS = (
    *("pending", "defined", "waiting", "assigned", "throttled", "activated", "sent", "starting", "running"),
)
_WAITING_TASKS = (
    *("registered", "defined", "assigning", "ready", "pending", "topreprocess", "preprocessing", "staging"),
    *("staged", "scouting", "scouted", "running", "rerefine", "throttled"),
)
_STAGED = "staging"
_INPUT = "input"
_NO_NAMES = ("null", "none", "pseudo_dataset")


@dataclasses.dataclass
class _Group:
    raw: object
    jobs: set[str] = dataclasses.field(default_factory=set)
    sites: set[str] = dataclasses.field(default_factory=set)
    n_jobs: int = 1
    made_s: list[int | None] = dataclasses.field(default_factory=list)
    is_staged: bool = False
    owner: object = None


_Reads = tuple[str, str, bool, float | None]
"""A job's or a task's id, an input, whether it is a dataset, and how sure it is that its files are read."""


def entries(raw: Iterable[object], place: Place) -> Iterator[object]:
    """An entry per task, or job without one, and input."""
    groups: dict[_Reads, _Group] = {}
    for record in raw:
        fields = folded(record) or {}
        if fault := _fault(fields):
            yield Refused(fault, record)
            continue
        inputs = _inputs(fields)
        if not inputs:
            yield Refused("names no dataset or file", record)
        for name, is_dataset, sure in inputs:
            _add(groups.setdefault((_id(fields), name, is_dataset, sure), _Group(record)), fields)
    for reads, group in groups.items():
        yield from place.spread(_entry(reads, group, place), sorted(group.sites), group.raw)


def _fault(fields: Mapping[str, object]) -> str:
    is_job = "pandaid" in fields
    state = str(fields.get("jobstatus" if is_job else "status") or "").lower()
    if not _id(fields) or not state:
        return "not a task or job of PanDA"
    waiting = _WAITING_JOBS if is_job else _WAITING_TASKS
    return "" if state in waiting else "not waiting: it has ended, or waits for somebody"


def _id(fields: Mapping[str, object]) -> str:
    """The task's, or that of a job without a task: older servers write 0 for none."""
    ids = ((name, fields.get(name)) for name in ("jeditaskid", "pandaid"))
    known = (f"{name}:{value}" for name, value in ids if isinstance(value, int | str) and value)
    return next(known, "").replace("jeditaskid", "panda")


def _inputs(fields: Mapping[str, object]) -> list[tuple[str, bool, float | None]]:
    """The files that a job names, else its datasets, else those of a task."""
    lists = [value for name in ("files", "datasets") if isinstance(value := fields.get(name), list)]
    parts = [folded(part) or {} for stated in lists for part in stated]
    inputs = [part for part in parts if str(part.get("type")).lower() == _INPUT]
    files = [
        (f"{part['scope']}:{part['lfn']}" if _named(part.get("scope")) else str(part["lfn"]), False, None)
        for part in inputs
        if _named(part.get("lfn"))
    ]
    named = [name for field in ("proddblock", "inds") for name in texts(fields.get(field))]
    datasets = [(name.rstrip("/"), True, None) for name in named if _named(name)]
    of_task = [
        (str(part["datasetname"]).rstrip("/"), True, _left(part))
        for part in inputs
        if _named(part.get("datasetname")) and _left(part) != 0
    ]
    return list(dict.fromkeys(files or datasets or of_task))


def _named(name: object) -> bool:
    return isinstance(name, str) and bool(name) and name.lower() not in _NO_NAMES


def _left(part: Mapping[str, object]) -> float | None:
    """The share of a dataset's files that the task has not read yet, if it says how many."""
    n_files, n_read = part.get("nfiles"), part.get("nfilesfinished")
    if not (isinstance(n_files, int) and isinstance(n_read, int)) or not 0 < n_files < 2**53 or n_read < 0:
        return None
    return (n_files - min(n_read, n_files)) / n_files


def _add(group: _Group, fields: Mapping[str, object]) -> None:
    if isinstance(n_jobs := fields.get("njobs"), int):
        group.n_jobs = max(group.n_jobs, n_jobs)
    if "pandaid" in fields:
        group.jobs.add(str(fields["pandaid"]))
    group.owner = group.owner or fields.get("username") or fields.get("produsername")
    group.is_staged |= str(fields.get("status")).lower() == _STAGED and "pandaid" not in fields
    group.sites.update(texts(fields.get("computingsite")) or texts(fields.get("site")))
    group.made_s.append(moment_of(fields.get("creationtime") or fields.get("creationdate")))


def _entry(reads: _Reads, group: _Group, place: Place) -> dict[str, object]:
    work, name, is_dataset, sure = reads
    entry: dict[str, object] = {"job_id": work, "work": work, "n_jobs": max(group.n_jobs, len(group.jobs))}
    entry |= {"dataset" if is_dataset else "file": name, "owner": group.owner}
    entry |= {} if sure is None else {"certainty": sure}
    starts_s = place.as_of_s + STAGED_S if group.is_staged else None
    return entry | place.starting(starts_s) | place.known(min(filter(None, group.made_s), default=None))
