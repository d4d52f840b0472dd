"""The items of one plan: from the plans table to the journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from features.errors import StaleInputError
from features.schema import PLANS
from jobs.plan.file_facts import facts
from jobs.store.keys import MomentKey
from jobs.store.tables import Tables
from prefetch.actions import Action
from prefetch.journal.journal import Item
from prefetch.journal.tables import PLAN, PREFILL

_ROWS_AT_ONCE = 5000
_COPIED = ("item_id", "did", "name", "action", "rank", "size_bytes", "cost_bytes")


@dataclasses.dataclass(frozen=True)
class PlannedItems:
    """The items of a plan, made from its `rows` at every iteration: all at once would not fit into memory."""

    rows: pa.Table
    cache: str
    as_of_s: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def __iter__(self) -> Iterator[Item]:
        for batch in self.rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
            for row in batch.to_pylist():
                yield _item(row, self.cache, self.as_of_s)


def planned(tables: Tables, cache: str, as_of_s: int, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a plan. Raises StaleInputError if there is none."""
    key = MomentKey.at(as_of_s, cache)
    if not tables.exists(PLANS) or key not in tables.snapshot(PLANS).partitions:
        raise StaleInputError(f"no plan for cache {cache!r} at {key.as_of}; run plan first")
    return tables.read_arrow(PLANS, as_of=key.as_of, owner=cache, columns=columns)


def planned_items(tables: Tables, cache: str, as_of_s: int) -> PlannedItems:
    """The items of a plan, each with the origin of its file. Raises StaleInputError if there is no plan."""
    rows = planned(tables, cache, as_of_s, [*_COPIED, "expires_at", "model_version"])
    origins = facts(tables, rows["did"].combine_chunks())["origin"]
    return PlannedItems(rows.append_column("origin", origins), cache, as_of_s)


def _item(row: dict[str, Any], cache: str, as_of_s: int) -> Item:
    return Item(
        cache=cache,
        as_of_s=as_of_s,
        expires_at_s=int(row["expires_at"].timestamp()),
        source=row["origin"] or "",
        # A prefill follows no predictions, and replaces nothing but its own files.
        kind=PLAN if row["model_version"] else PREFILL,
        **{field: row[field] for field in _COPIED} | {"action": Action(row["action"])},
    )
