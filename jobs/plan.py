"""One cache's plan: its own inventory and the region's predictions in, plan items with reasons out."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.errors import StaleInputError
from features.names import parse_name
from features.schema import ACCESSES, CONTENTS, PLANS, PREDICTIONS
from features.times import DAY_S, as_of_label, day_label
from jobs.planner import planner
from jobs.settings import CacheSettings, PlanSettings
from jobs.tables import Tables
from prefetch.plan import Action, Plan
from prefetch.reasons import reasons
from prefetch.target import Held
from replay.planner import CacheState

UNKNOWN_SCOPE = "unknown"


@dataclasses.dataclass(frozen=True)
class PlanSummary:
    """What was planned for one cache; bytes are those of whole files."""

    cache: str
    as_of: str
    held_files: int
    held_bytes: int
    prefetch: int
    prefetch_bytes: int
    pin: int
    pin_bytes: int
    unpin: int
    evict: int
    evict_bytes: int


def run(
    tables: Tables,
    *,
    cache: CacheSettings,
    inventory: Iterable[Held],
    pinned: Collection[str],
    as_of_s: int,
    region: str,
    plan: PlanSettings,
    cycle_s: int,
) -> PlanSummary:
    """Write the contents and plans of `cache` at `as_of_s`.

    `inventory`: what the cache holds, by its own word; `pinned`: names that earlier plans hold.
    Raises StaleInputError if there are no predictions at `as_of_s`.
    """
    held = sorted(inventory, key=lambda file: file.name)
    dids, known_names = _candidates(tables, as_of_s, region)
    dids, index = _with_held(dids, known_names, held)
    state = CacheState(
        as_of_s=as_of_s,
        capacity_bytes=cache.capacity,
        low_watermark=cache.watermarks[0],
        high_watermark=cache.watermarks[1],
        item=index,
        bytes_on_disk=np.array([file.bytes_on_disk for file in held], np.int64),
        last_access_s=np.array([file.last_detach_s or as_of_s for file in held], np.int64),
        pinned=np.array([file.name in pinned for file in held], bool),
        is_open=np.array([file.is_open for file in held], bool),
        inflow_bytes=_inflow(tables, cache, as_of_s, cycle_s, plan.assumed_inflow),
        lru_age_s=None,
    )
    decided = planner(tables, dids, region=region, plan=plan, cycle_s=cycle_s).plan(state)
    key = (day_label(as_of_s), as_of_label(as_of_s), cache.name)
    tables.replace_rows(
        CONTENTS, [_content(file, dids[i].as_py(), as_of_s) for file, i in zip(held, index, strict=True)], key
    )
    tables.replace_rows(PLANS, _items(decided, dids, cache.name, as_of_s, plan.horizon), key)
    return _summary(decided, held, key)


def item_id(cache: str, as_of_s: int, did: str, action: str) -> str:
    """32 hex digits that name a plan item wherever it goes."""
    return hashlib.sha256(f"{cache}\n{as_of_s}\n{did}\n{action}".encode()).hexdigest()[:32]


def _candidates(tables: Tables, as_of_s: int, region: str) -> tuple[pa.Array, pa.Array]:
    """The dids predicted at `as_of_s`, and their names."""
    rows = tables.read_arrow(PREDICTIONS, as_of=as_of_label(as_of_s), owner=region, columns=["did"])
    if not rows.num_rows:
        raise StaleInputError(
            f"no predictions at {as_of_label(as_of_s)} for region {region!r}; run features and predict"
        )
    dids = pc.unique(rows["did"])
    return dids, pc.struct_field(pc.extract_regex(dids, r"^[^:]*:(?P<name>.*)$"), "name")


def _with_held(
    dids: pa.Array, names: pa.Array, held: Sequence[Held]
) -> tuple[pa.Array, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """`dids` with those of held files that are no candidates, and each held file's index there."""
    at = pc.index_in(pa.array([file.name for file in held], pa.string()), value_set=names)
    strangers = [file.name for file, i in zip(held, at.to_pylist(), strict=True) if i is None]
    index = at.fill_null(-1).to_numpy().astype(np.int64)
    index[index < 0] = len(dids) + np.arange(len(strangers))
    extra = pa.array(
        [f"{parse_name(name).experiment or UNKNOWN_SCOPE}:{name}" for name in strangers], pa.string()
    )
    return pa.concat_arrays([dids, extra]), index


def _inflow(tables: Tables, cache: CacheSettings, as_of_s: int, cycle_s: int, assumed: float) -> int:
    """Bytes that come in during a cycle: the mean of the last day's, or the assumed share of the capacity."""
    since = dt.datetime.fromtimestamp(as_of_s - DAY_S, dt.UTC)
    until = dt.datetime.fromtimestamp(as_of_s, dt.UTC)
    if not tables.exists(ACCESSES):
        return int(assumed * cache.capacity)
    rows = tables.read_arrow(
        ACCESSES,
        since=day_label(as_of_s - DAY_S),
        until=day_label(as_of_s),
        columns=["cache", "accessed_at", "known_at", "bytes_missed"],
    )
    told = pc.and_(
        pc.equal(rows["cache"], cache.name),
        pc.less(rows["known_at"], pa.scalar(until, rows.schema.field("known_at").type)),
    )
    recent = pc.greater_equal(rows["accessed_at"], pa.scalar(since, rows.schema.field("accessed_at").type))
    missed = pc.sum(rows.filter(pc.and_(told, recent))["bytes_missed"]).as_py()
    return int(assumed * cache.capacity) if missed is None else missed * cycle_s // DAY_S


def _content(file: Held, did: str, as_of_s: int) -> dict[str, object]:
    detached = file.last_detach_s
    return {
        "did": did,
        "name": file.name,
        "size_bytes": file.size_bytes,
        "bytes_on_disk": file.bytes_on_disk,
        "complete": file.complete,
        "last_detach": None if detached is None else dt.datetime.fromtimestamp(detached, dt.UTC),
        "open": file.is_open,
        "scanned_at": dt.datetime.fromtimestamp(as_of_s, dt.UTC),
    }


def _items(plan: Plan, dids: pa.Array, cache: str, as_of_s: int, horizon_s: int) -> list[dict[str, object]]:
    expires_at = dt.datetime.fromtimestamp(as_of_s + horizon_s, dt.UTC)
    columns = (plan.action, plan.rank, plan.value_bytes, plan.cost_bytes, plan.size_bytes, plan.probability)
    lists = [column.tolist() for column in columns]
    named = dids.take(pa.array(plan.item)).to_pylist()
    return [
        {
            "item_id": item_id(cache, as_of_s, did, action := Action(code).name.lower()),
            "did": did,
            "name": did.partition(":")[2],
            "action": action,
            "rank": rank,
            "value": value,
            "cost_bytes": cost,
            "size_bytes": size,
            "probability": probability,
            "reason": reason,
            "expires_at": expires_at,
        }
        for did, code, rank, value, cost, size, probability, reason in zip(
            named, *lists, reasons(plan, horizon_s=horizon_s), strict=True
        )
    ]


def _summary(plan: Plan, held: Sequence[Held], key: tuple[str, str, str]) -> PlanSummary:
    n = {action: int((plan.action == int(action)).sum()) for action in Action}
    size = {action: int(plan.size_bytes[plan.action == int(action)].sum()) for action in Action}
    return PlanSummary(
        cache=key[2],
        as_of=key[1],
        held_files=len(held),
        held_bytes=sum(file.bytes_on_disk for file in held),
        prefetch=n[Action.PREFETCH],
        prefetch_bytes=size[Action.PREFETCH],
        pin=n[Action.PIN],
        pin_bytes=size[Action.PIN],
        unpin=n[Action.UNPIN],
        evict=n[Action.EVICT],
        evict_bytes=size[Action.EVICT],
    )
