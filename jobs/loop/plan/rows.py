"""Rows of the contents and plans tables, column by column."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.common.times import DAY_S
from features.schema import CONTENTS, PLANS, Table, arrow_schema
from jobs.ground.caches.paths import Paths
from jobs.ground.store.keys import MomentKey
from models.serving.versions import ModelVersion
from prefetch.actions import ACTIONS, Action
from prefetch.plan import Plan
from prefetch.plan.explain import reasons
from prefetch.target import Held

_ACTIONS = pa.array(list(ACTIONS), pa.string())
_ORIGIN = ("origin", "why")

PUSHED_AT_LEAST_S = DAY_S
"""A plan may be pushed for at least this long, because a site may plan only once a day."""


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
    }
    is_wrong = fetches.to_numpy(zero_copy_only=False) & paths.is_anothers(did, name)
    return _rows(PLANS, columns).filter(pa.array(~is_wrong))


def item_ids(cache: str, as_of_s: int, dids: pa.Array, actions: pa.Array) -> pa.Array:
    """A unique id of each plan item, 32 hex digits."""
    head = f"{cache}\n{as_of_s}\n"
    texts = pc.binary_join_element_wise(pa.scalar(head), dids, pa.scalar("\n"), actions, "").cast(pa.binary())
    return pa.array([hashlib.sha256(text).hexdigest()[:32] for text in texts.to_pylist()], pa.string())


def _repeated(at_s: int, n: int) -> pa.Array:
    moment = pa.scalar(dt.datetime.fromtimestamp(at_s, dt.UTC), pa.timestamp("us", tz="UTC"))
    return pa.repeat(moment, n)


def _rows(table: Table, columns: dict[str, pa.Array]) -> pa.Table:
    return pa.table([columns[name] for name in table.column_names], schema=arrow_schema(table))
