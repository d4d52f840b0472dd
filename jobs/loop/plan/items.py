"""Rows of the contents and plans tables, column by column."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import fnmatch
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import InputError, StaleInputError
from features.common.times import DAY_S
from features.common.units import format_bytes
from features.schema import CONTENTS, PLANS, Table, arrow_schema
from jobs.ground.caches.paths import Paths
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Snapshot, Tables
from jobs.loop.ingest.queued_files import Queued
from jobs.loop.plan.file_facts import facts
from jobs.loop.plan.planner import MODEL_COLUMNS, model_of
from jobs.loop.trainings import unproven_because
from models.serving.versions import ModelVersion
from prefetch.actions import ACTIONS, Action
from prefetch.journal.journal import Item
from prefetch.journal.tables import KNOWN, PLAN, PREFILL, UNPROVEN
from prefetch.plan.explain import reasons
from prefetch.plan.items import Plan
from prefetch.target import Held

_ACTIONS = pa.array(list(ACTIONS), pa.string())
_ORIGIN = ("origin", "why")
PUSHED_AT_LEAST_S = DAY_S  # a plan may be pushed so long, because a site may plan only once a day
_ROWS_AT_ONCE = 5000
_COPIED = ("item_id", "did", "name", "action", "rank", "size_bytes", "cost_bytes")


def contents(held: Sequence[Held], dids: pa.Array, *, taken_s: int) -> pa.Table:
    """The inventory `held`, taken at `taken_s`; `dids`: those of its files."""
    detached = pa.array([file.last_detach_s for file in held], pa.int64())
    columns = {
        "did": dids,
        "name": pa.array([file.name for file in held], pa.string()),
        "size_bytes": pa.array([file.size_bytes for file in held], pa.int64()),
        "bytes_on_disk": pa.array([file.bytes_on_disk for file in held], pa.int64()),
        "complete": pa.array([file.complete for file in held], pa.bool_()),
        "last_detach": pc.multiply(detached, 1_000_000).cast(pa.timestamp("us", tz="UTC")),
        "open": pa.array([file.is_open for file in held], pa.bool_()),
        "scanned_at": _repeated(taken_s, len(held)),
    }
    return _rows(CONTENTS, columns)


def items(
    plan: Plan,
    dids: pa.Array,
    origins: pa.Table,
    paths: Paths,
    *,
    key: MomentKey,
    as_of_s: int,
    horizon_s: int,
    model: ModelVersion | None,
    queued: Queued,
) -> pa.Table:
    """The plan's items; `key`: their partition; `model`: the one that made the predictions.

    `origins`: `origin` and `why` of each of `dids`, for the items that fetch. Nothing is fetched to a path
    that another file has. Raises ConfigError if the path of one in the cache is not known.
    """
    did = dids.take(pa.array(plan.item))
    name = paths.of(did)
    action = _ACTIONS.take(pa.array(plan.action))
    fetches = pa.array(plan.action == Action.PREFETCH.code)
    origin, why = (pc.if_else(fetches, origins[name].take(pa.array(plan.item)), None) for name in _ORIGIN)
    reason = reasons(plan, horizon_s=horizon_s)
    sources = pc.coalesce(pc.binary_join_element_wise("; from ", why, ""), "")
    columns = {
        "item_id": item_ids(key.owner, as_of_s, did, action),
        "did": did,
        "name": name,
        "action": action,
        "rank": pa.array(plan.rank),
        "value": pa.array(plan.value),
        "cost_bytes": pa.array(plan.cost_bytes),
        "size_bytes": pa.array(plan.size_bytes),
        "probability": pa.array(plan.probability),
        "reason": pc.binary_join_element_wise(reason, sources, ""),
        "expires_at": _repeated(as_of_s + max(horizon_s, PUSHED_AT_LEAST_S), len(did)),
        "model_version": pa.repeat(
            pa.scalar(None if model is None else model.version, pa.string()), len(did)
        ),
        "model_digest": pa.repeat(pa.scalar(None if model is None else model.digest, pa.string()), len(did)),
        "needs_model": pa.array(plan.needs_model),
        "origin": origin,
        "queues": pc.if_else(pa.array(plan.n_jobs > 0), queued.announcers(did), None),
    }
    is_wrong = fetches.to_numpy(zero_copy_only=False) & paths.is_anothers(did, name)
    return _rows(PLANS, columns).filter(pa.array(~is_wrong))


def item_ids(cache: str, as_of_s: int, dids: pa.Array, actions: pa.Array) -> pa.Array:
    head = f"{cache}\n{as_of_s}\n"
    texts = pc.binary_join_element_wise(pa.scalar(head), dids, pa.scalar("\n"), actions, "").cast(pa.binary())
    return pa.array([hashlib.sha256(text).hexdigest()[:32] for text in texts.to_pylist()], pa.string())


def _repeated(at_s: int, n: int) -> pa.Array:
    moment = pa.scalar(dt.datetime.fromtimestamp(at_s, dt.UTC), pa.timestamp("us", tz="UTC"))
    return pa.repeat(moment, n)


def _rows(table: Table, columns: dict[str, pa.Array]) -> pa.Table:
    return pa.table([columns[name] for name in table.column_names], schema=arrow_schema(table))


@dataclasses.dataclass(frozen=True)
class FileFilter:
    """Which files of a plan: of `actions` (none: all), by a pattern of datasets, by a text in the reason."""

    actions: Sequence[str] = ()
    dataset: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if unknown := [action for action in self.actions if action not in ACTIONS]:
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


def newest_plan(tables: Tables, cache: str, *, until: str) -> Snapshot:
    """The newest plan of a cache, as `Tables.newest`; no prefill, which writes no inventory of its time."""
    plans, inventories = tables.head(PLANS), tables.head(CONTENTS).partitions
    keys = sorted((key for key in plans.select(owner=cache) if key[1] <= until), key=lambda key: key[1])
    newest = [key for key in keys if key in inventories][-1:] or keys[-1:]
    return dataclasses.replace(plans, partitions={key: plans.partitions[key] for key in newest})


def planned(tables: Tables, cache: str, as_of_s: int, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a plan. Raises StaleInputError if there is none."""
    key, plans = MomentKey.at(as_of_s, cache), tables.head(PLANS)
    if key not in plans.partitions:
        raise StaleInputError(f"no plan for cache {cache!r} at {key.as_of}; run plan first")
    return plans.rows_of([key], columns)


def planned_files(
    tables: Tables, cache: str, as_of_s: int, listed: FileFilter, *, but: pa.Array | None = None
) -> tuple[PlannedFile, ...]:
    """The files of a plan in the order of a push: by action, then by rank. Raises StaleInputError.

    `but`: ids of items to leave out.
    """
    columns = ["item_id", "action", "rank", "cost_bytes", "size_bytes", "name", "did", "reason"]
    rows = planned(tables, cache, as_of_s, columns)
    if but is not None:
        rows = rows.filter(pc.invert(pc.is_in(rows["item_id"], value_set=but)))
    rows = rows.append_column("dataset", facts(tables, rows["did"].combine_chunks())["dataset"])
    if listed.actions:
        rows = rows.filter(pc.is_in(rows["action"], value_set=pa.array(listed.actions)))
    if listed.dataset:
        names = pc.unique(rows["dataset"]).drop_null().to_pylist()
        fits = [name for name in names if fnmatch.filter([name, name.partition(":")[2]], listed.dataset)]
        rows = rows.filter(pc.is_in(rows["dataset"], value_set=pa.array(fits, pa.string())))
    if listed.reason:
        rows = rows.filter(pc.match_substring(rows["reason"], listed.reason, ignore_case=True))
    step = pc.index_in(rows["action"], value_set=pa.array(list(ACTIONS), pa.string()))
    rows = rows.append_column("step", step).sort_by([("step", "ascending"), ("rank", "ascending")])
    is_fetched = pc.equal(rows["action"], Action.PREFETCH)
    n_bytes = pc.if_else(is_fetched, rows["cost_bytes"], rows["size_bytes"])
    values = (rows["action"], n_bytes, rows["name"], rows["dataset"], rows["reason"])
    return tuple(PlannedFile(*row) for row in zip(*(column.to_pylist() for column in values), strict=True))


def totals(files: Sequence[PlannedFile]) -> str:
    sums = {action: [file.n_bytes for file in files if file.action == action] for action in ACTIONS}
    parts = [f"{action} {len(n)} ({format_bytes(sum(n))})" for action, n in sums.items() if n]
    return f"Files of the plan: {', '.join(parts)}." if parts else "No file of the plan is as asked for."


@dataclasses.dataclass(frozen=True)
class PlannedItems:
    """The items of a plan, made from its `rows` at every iteration: all at once would not fit into memory.

    `basis`: why the items that models chose may act (`prefetch.journal.tables`).
    """

    rows: pa.Table
    cache: str
    as_of_s: int
    kind: str
    basis: str = UNPROVEN

    @property
    def model(self) -> ModelVersion:
        return model_of(self.rows)

    def of_models(self) -> dict[str, int]:
        actions = self.rows["action"].filter(self.rows["needs_model"])
        return dict(collections.Counter(actions.to_pylist()))

    def known(self) -> PlannedItems:
        """The items that rules and queued jobs chose, as a prefill: they replace nothing of other plans."""
        rows = self.rows.filter(pc.invert(self.rows["needs_model"]))
        return dataclasses.replace(self, rows=rows, kind=PREFILL)

    def none(self) -> PlannedItems:
        return dataclasses.replace(self, rows=self.rows.slice(0, 0))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __iter__(self) -> Iterator[Item]:
        for batch in self.rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
            for row in batch.to_pylist():
                yield self._item(row)

    def _item(self, row: dict[str, Any]) -> Item:
        return Item(
            cache=self.cache,
            as_of_s=self.as_of_s,
            expires_at_s=int(row["expires_at"].timestamp()),
            source=row["origin"] or "",
            kind=self.kind,
            basis=self.basis if row["needs_model"] else KNOWN,
            **{field: row[field] for field in _COPIED} | {"action": Action(row["action"])},
        )


def planned_items(tables: Tables, cache: str, as_of_s: int) -> PlannedItems:
    """The items of a plan, each with the origin of its file. Raises StaleInputError if there is no plan."""
    columns = [*_COPIED, "expires_at", "needs_model", "origin", *MODEL_COLUMNS]
    rows = planned(tables, cache, as_of_s, columns)
    # Where nothing is said, prefills are those without a model.
    needs = pc.coalesce(rows["needs_model"], pc.is_valid(rows["model_version"]))
    rows = rows.set_column(rows.column_names.index("needs_model"), "needs_model", needs)
    # A prefill follows no predictions, and replaces nothing but its own files; it is never empty.
    follows = not rows.num_rows or pc.any(pc.is_valid(rows["model_version"])).as_py()
    return PlannedItems(rows, cache, as_of_s, PLAN if follows else PREFILL)


def unproven_plan(tables: Tables, plan: PlannedItems, region: str) -> str | None:
    """Why what models chose of a plan may not act by the tables; None: it may, or they chose none of it."""
    return unproven_because(tables, plan.model, region=region) if plan.of_models() else None
