"""A generated site of jobs with a planted truth: what they read, from where, and how efficient they are."""

import dataclasses
import datetime as dt

import numpy as np
import pyarrow as pa

from features.schema import ACCESSES, JOB_RECORDS, arrow_schema
from jobs.ground.store.tables import Tables

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
DAYS = 14
RATE = 2.4e6
"""Bytes read per second of CPU time."""


@dataclasses.dataclass(frozen=True)
class Planted:
    """Jobs of one place: their number, CPU efficiency and failed share; `origin`: of their bytes."""

    place: str
    jobs: int
    efficiency: float
    failed: float = 0.02
    origin: str = "se.far.gov"
    kind: str = "Analysis"


PIC = (
    Planted("local", 1000, 0.95, failed=0.01, origin="se.pic.es"),
    Planted("hit", 1000, 0.95, failed=0.01),
    Planted("remote", 1000, 0.704, failed=0.07),
    Planted("miss", 1000, 0.64, failed=0.03),
)


def plant(tables: Tables, planted: tuple[Planted, ...] = PIC, *, per_task: int = 20) -> None:
    """Fill job_records and accesses with `planted` jobs, over `DAYS`, each with a trace and a cache's record.

    Jobs of a task have their own mean efficiency, about 4 % around that of their place.
    """
    rng = np.random.default_rng(1)
    jobs, reads = list[dict[str, object]](), list[dict[str, object]]()
    for number, place in enumerate(planted):
        for k in range(place.jobs):
            if k % per_task == 0:
                of_task = place.efficiency * (1 + 0.04 * rng.standard_normal())
            names = f"{number}-{k}", f"{number}-{k // per_task}"
            job, its_reads = _job(place, *names, of_task, rng=rng)
            jobs.append(job)
            reads += its_reads
    for table, rows, time in ((JOB_RECORDS, jobs, "started_at"), (ACCESSES, reads, "accessed_at")):
        schema = arrow_schema(table).append(pa.field("day", pa.string()))
        dated = [{**row, "day": f"{row[time]:%Y-%m-%d}"} for row in rows]
        tables.replace_arrow(table, pa.Table.from_pylist(dated, schema))


def _job(
    of: Planted, name: str, task: str, of_task: float, *, rng: np.random.Generator
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """A job and its reads."""
    cpu_s = 3600 * rng.lognormal(0, 0.3)
    wall_s = cpu_s / min(0.999, of_task * (1 + 0.03 * rng.standard_normal()))
    start = START + dt.timedelta(seconds=int(rng.integers((DAYS - 3) * 86400)))
    end = start + dt.timedelta(seconds=wall_s)
    node, n_bytes = f"wn{rng.integers(100)}.pic.es", int(cpu_s * RATE)
    job = {
        **{"job": name, "task": task, "kind": of.kind, "activity": "analysis", "site": "PIC", "node": node},
        **{"started_at": start, "ended_at": end, "known_at": end, "cores": 1, "cpu_s": cpu_s},
        **{"wall_s": wall_s, "failed": bool(rng.random() < of.failed), "read_bytes": n_bytes},
        **{"source": "htcondor_history", "event_id": name},
    }
    read = {
        **{
            "did": f"cms:/store/{name}.root",
            "scope": "cms",
            "name": f"/store/{name}.root",
            "origin": of.origin,
        },
        **{"accessed_at": start + dt.timedelta(seconds=30), "closed_at": end, "known_at": end, "n_reads": 1},
        **{"read_bytes": n_bytes},
    }
    reads = [{**read, "job": name, "site": "PIC", "source": "cms_aaa", "event_id": f"t{name}"}]
    if of.place in ("hit", "miss"):
        at = "bytes_hit" if of.place == "hit" else "bytes_missed"
        other = "bytes_missed" if of.place == "hit" else "bytes_hit"
        figures = {"cache": "xc", "source": "xcache_gstream", "event_id": f"g{name}", at: n_bytes, other: 0}
        reads.append({**read, **figures})
    return job, reads
