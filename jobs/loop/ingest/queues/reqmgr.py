"""Workflows of CMS as ReqMgr2 and WMStats list them: input datasets, white list of sites, status.

JSON of `/reqmgr2/data/request?status=…`; names of fields: WMCore's StdBase and RequestStatus.
"""

from collections.abc import Iterable, Iterator, Mapping

from jobs.loop.ingest.queues.place import Place, Refused, folded, moment_of, texts

CERTAINTY = 0.5  # that an assigned workflow reads a file at one of its sites in time: assumed
_ASSIGNED = ("staging", "staged", "assigned", "acquired", "running-open", "running-closed")
_EARLY = ("new", "assignment-approved")
_INPUTS = ("inputdataset", "inputdatasets", "mcpileup", "datapileup")
_MOST_STEPS = 100


def is_request(fields: object) -> bool:
    return isinstance(fields, Mapping) and "requestname" in {str(name).lower() for name in fields}


def requests(record: object) -> list[object]:
    """The descriptions in an object: itself, or those under their names."""
    if not isinstance(record, Mapping) or is_request(record):
        return [record]
    inner = list(record.values())
    return inner if inner and all(isinstance(value, Mapping) for value in inner) else [record]


def entries(raw: Iterable[object], place: Place) -> Iterator[object]:
    """An entry per workflow that is assigned, input dataset and site."""
    for record in (request for answer in raw for request in requests(answer)):
        fields = folded(record)
        fault = "not a workflow" if fields is None else _fault(fields)
        if fields is None or fault:
            yield Refused(fault, record)
            continue
        steps = [folded(fields.get(f"{kind}{n}")) for kind in ("task", "step") for n in range(1, _MOST_STEPS)]
        parts = [fields, *(step for step in steps if step is not None)]
        named = [name for part in parts for field in _INPUTS for name in texts(part.get(field))]
        datasets = list(dict.fromkeys(named))
        if not datasets:
            yield Refused("names no dataset or file", record)
        banned, listed = (texts(fields.get(name)) for name in ("siteblacklist", "sitewhitelist"))
        sites = [name for name in listed if name not in banned]
        if listed and not sites:
            yield Refused("for other sites", record)
            continue
        for dataset in datasets:
            yield from place.spread(_entry(fields, dataset, place), sites, record)


def _fault(fields: Mapping[str, object]) -> str:
    name, status = (fields.get(field) for field in ("requestname", "requeststatus"))
    if not (isinstance(name, str) and name and isinstance(status, str)):
        return "not a workflow: no RequestName or no RequestStatus"
    if status in _EARLY:
        return "not waiting: not assigned to sites yet"
    return "" if status in _ASSIGNED else "not waiting: it has ended"


def _entry(fields: Mapping[str, object], dataset: str, place: Place) -> dict[str, object]:
    work, n_jobs = f"cms:{fields['requestname']}", fields.get("totalestimatedjobs")
    counted = {"n_jobs": n_jobs} if isinstance(n_jobs, int) and n_jobs > 0 else {}
    entry: dict[str, object] = {"job_id": work, "work": work, "dataset": dataset, "certainty": CERTAINTY}
    entry["owner"] = fields.get("requestor")
    # When the workflow got its status, if it says so.
    changes = fields.get("requesttransition")
    last = folded(changes[-1]) if isinstance(changes, list) and changes else None
    changed_s = None if last is None else moment_of(last.get("updatetime"))
    return entry | counted | place.known(changed_s)
