"""The items of one plan: from the plans table to the journal."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.ground.store.tables import Tables
from jobs.loop.plan.listing import planned
from jobs.loop.plan.planner import MODEL_COLUMNS, model_of
from models.serving.versions import ModelVersion
from prefetch.actions import Action
from prefetch.journal.journal import Item
from prefetch.journal.tables import KNOWN, PLAN, PREFILL

_ROWS_AT_ONCE = 5000
_COPIED = ("item_id", "did", "name", "action", "rank", "size_bytes", "cost_bytes")


@dataclasses.dataclass(frozen=True)
class PlannedItems:
    """The items of a plan, made from its `rows` at every iteration: all at once would not fit into memory.

    `basis`: why the items that models chose may act (`prefetch.journal.tables`).
    """

    rows: pa.Table
    cache: str
    as_of_s: int
    kind: str
    basis: str

    @property
    def model(self) -> ModelVersion:
        """What made the plan."""
        return model_of(self.rows)

    def of_models(self) -> dict[str, int]:
        """Number of items per action that models chose."""
        actions = self.rows["action"].filter(self.rows["needs_model"])
        return dict(collections.Counter(actions.to_pylist()))

    def known(self) -> PlannedItems:
        """The items that rules and queued jobs chose, as a prefill: they replace nothing of other plans."""
        rows = self.rows.filter(pc.invert(self.rows["needs_model"]))
        return dataclasses.replace(self, rows=rows, kind=PREFILL)

    def none(self) -> PlannedItems:
        """The plan without any item."""
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


def planned_items(tables: Tables, cache: str, as_of_s: int, basis: str) -> PlannedItems:
    """The items of a plan, each with the origin of its file. Raises StaleInputError if there is no plan."""
    columns = [*_COPIED, "expires_at", "needs_model", "origin", *MODEL_COLUMNS]
    rows = planned(tables, cache, as_of_s, columns)
    # Where nothing is said, prefills are those without a model.
    needs = pc.coalesce(rows["needs_model"], pc.is_valid(rows["model_version"]))
    rows = rows.set_column(rows.column_names.index("needs_model"), "needs_model", needs)
    # A prefill follows no predictions, and replaces nothing but its own files.
    kind = PLAN if pc.any(pc.is_valid(rows["model_version"])).as_py() else PREFILL
    return PlannedItems(rows, cache, as_of_s, kind, basis)
