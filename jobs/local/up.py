"""Start and end the local deployment."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from features.common.errors import InputError
from features.common.progress import Advance
from jobs.local.process import Services, ServiceState
from jobs.local.services import prepare_airflow, services
from jobs.local.site import LocalSite, found, opened
from jobs.local.xrootd import available
from jobs.store.locks import exclusive


@dataclasses.dataclass(frozen=True)
class Ended:
    """What `down` ended."""

    out: str
    processes: int


def up(out: Path, *, tables: str | None, hdfs: bool, on_progress: Advance) -> list[ServiceState]:
    """Start what is not running, in order; each is healthy before the next.

    `tables` and `hdfs` say where the tables are, the first time: elsewhere, or on an HDFS of its own.
    Raises InputError, ServiceError, and ConflictError if another one is at work.
    """
    if hdfs and tables is not None:
        raise InputError("the tables are either at --tables or on the deployment's own --hdfs; give one")
    xrootd = available() is None
    site = opened(out, tables=tables, xrootd=xrootd, hdfs=hdfs)
    with exclusive(site.run / ".lock", "up"):
        return _started(site, xrootd=xrootd, on_progress=on_progress)


def _started(site: LocalSite, *, xrootd: bool, on_progress: Advance) -> list[ServiceState]:
    on_progress(0, 1, "databases")
    prepare_airflow(site)
    keeper, states = Services(site.run), []
    wanted = list(services(site, xrootd=xrootd))
    for n_done, service in enumerate(wanted):
        on_progress(n_done, len(wanted), service.name)
        states.append(keeper.start(service))
    return states


def down(out: Path) -> Ended:
    """End what `up` has started in `out`, and nothing else; files stay."""
    site = found(out)
    return Ended(str(site.out), len(Services(site.run).stop()))
