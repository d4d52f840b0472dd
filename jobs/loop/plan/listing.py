"""The files of a plan, as an operator reads them: what would be fetched, pinned and evicted, and why."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import InputError, StaleInputError
from features.common.units import format_bytes
from features.schema import PLANS
from jobs.ground.store.keys import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.plan.file_facts import facts
from prefetch.actions import ACTIONS, Action


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Which files of a plan: of `actions` (none: all), by a pattern of datasets, by a text in the reason."""

    actions: Sequence[str] = ()
    dataset: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if unknown := [one for one in self.actions if one not in ACTIONS]:
            raise InputError(f"no action {', '.join(unknown)}; there are {', '.join(ACTIONS)}")


@dataclasses.dataclass(frozen=True)
class PlannedFile:
    """A file of a plan; `n_bytes`: to fetch, for other actions its size."""

    action: str
    n_bytes: int
    name: str
    dataset: str | None
    reason: str

    def __str__(self) -> str:
        return f"{self.action:<8} {format_bytes(self.n_bytes):>8}  {self.name}  ({self.reason})"


def planned(tables: Tables, cache: str, as_of_s: int, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a plan. Raises StaleInputError if there is none."""
    key = MomentKey.at(as_of_s, cache)
    if not tables.exists(PLANS) or key not in tables.snapshot(PLANS).partitions:
        raise StaleInputError(f"no plan for cache {cache!r} at {key.as_of}; run plan first")
    return tables.read_arrow(PLANS, as_of=key.as_of, owner=cache, columns=columns)


def planned_files(tables: Tables, cache: str, as_of_s: int, wanted: Wanted) -> tuple[PlannedFile, ...]:
    """The files of a plan in the order of a push: by action, then by rank. Raises StaleInputError."""
    columns = ["action", "rank", "cost_bytes", "size_bytes", "name", "did", "reason"]
    rows = planned(tables, cache, as_of_s, columns)
    rows = rows.append_column("dataset", facts(tables, rows["did"].combine_chunks())["dataset"])
    if wanted.actions:
        rows = rows.filter(pc.is_in(rows["action"], value_set=pa.array(wanted.actions)))
    if wanted.dataset:
        names = pc.unique(rows["dataset"]).drop_null().to_pylist()
        fits = [name for name in names if fnmatch.filter([name, name.partition(":")[2]], wanted.dataset)]
        rows = rows.filter(pc.is_in(rows["dataset"], value_set=pa.array(fits, pa.string())))
    if wanted.reason:
        rows = rows.filter(pc.match_substring(rows["reason"], wanted.reason, ignore_case=True))
    step = pc.index_in(rows["action"], value_set=pa.array(list(ACTIONS), pa.string()))
    rows = rows.append_column("step", step).sort_by([("step", "ascending"), ("rank", "ascending")])
    is_fetched = pc.equal(rows["action"], Action.PREFETCH)
    n_bytes = pc.if_else(is_fetched, rows["cost_bytes"], rows["size_bytes"])
    shown = (rows["action"], n_bytes, rows["name"], rows["dataset"], rows["reason"])
    return tuple(PlannedFile(*row) for row in zip(*(column.to_pylist() for column in shown), strict=True))


def totals(found: Sequence[PlannedFile]) -> str:
    """A sentence with the files and bytes of each action."""
    sums = {action: [one.n_bytes for one in found if one.action == action] for action in ACTIONS}
    parts = [f"{action} {len(n)} ({format_bytes(sum(n))})" for action, n in sums.items() if n]
    return f"Files of the plan: {', '.join(parts)}." if parts else "No file of the plan is as asked for."
