"""Readers of what brokers answer, into entries of a queue: HTCondor, PanDA, Rucio and ReqMgr2.

Each takes the objects of an answer and gives entries in the form of `queue_entries`, or why one is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from jobs.loop.ingest.queues import htcondor, panda, reqmgr, rucio
from jobs.loop.ingest.queues.place import Place, Refused

Kind = Literal["auto", "entries", "htcondor", "panda", "rucio", "reqmgr"]

_READERS: dict[str, Callable[[Iterable[object], Place], Iterator[object]]] = {
    "htcondor": htcondor.entries,
    "panda": panda.entries,
    "rucio": rucio.entries,
    "reqmgr": reqmgr.entries,
}
_LOOKED_AT = 1000


def read(raw: list[object], kind: Kind, place: Place) -> Iterable[object]:
    """The entries that `raw` stands for; `auto`: the kind is the one whose fields its first objects have."""
    name = kind_of(raw) if kind == "auto" else kind
    return raw if name == "entries" else _READERS[name](raw, place)


def kind_of(raw: Iterable[object]) -> str:
    """The kind of an answer, by its first object that is of any."""
    kinds = (_kind(record) for record in itertools.islice(raw, _LOOKED_AT) if isinstance(record, Mapping))
    return next(filter(None, kinds), "entries")


def _kind(record: Mapping[str, object]) -> str:
    if "job_id" in record:
        return "entries"
    names = {name.lower() for name in record if isinstance(name, str)}
    if names & {"pandaid", "jeditaskid"}:
        return "panda"
    if "jobstatus" in names and names & {"clusterid", "globaljobid"}:
        return "htcondor"
    if "rse_expression" in names or {"rule_id", "rse"} <= names:
        return "rucio"
    return "reqmgr" if any(map(reqmgr.is_request, reqmgr.requests(record))) else ""


__all__ = ["Kind", "Place", "Refused", "kind_of", "read"]
