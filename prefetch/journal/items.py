"""What a journal keeps: plan items, and receipts of the tries to carry them out."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from prefetch.journal.tables import PLAN


@dataclasses.dataclass(frozen=True)
class Item:
    """One plan item; columns as in `features.schema.PLANS`. `attempts` counts this try too.

    `source`: where its bytes come from, empty where that is not known. `size_bytes` 0: not known. `kind`: of
    its plan, see `prefetch.journal.tables`.
    """

    item_id: str
    cache: str
    as_of_s: int
    did: str
    name: str
    action: str
    rank: int
    size_bytes: int
    cost_bytes: int
    expires_at_s: int
    attempts: int = 0
    source: str = ""
    kind: str = PLAN


@dataclasses.dataclass(frozen=True)
class Receipt:
    """What became of one try. `bytes`: fetched or freed; `renewed_at_s`: the last use of a pinned file.

    `fault`: whose it was where there is an `error`: `cache`, `source`, or `file`: refused for good.
    """

    state: str
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    fault: str | None = None
    confirmed_by: str | None = None
    renewed_at_s: float | None = None


@dataclasses.dataclass(frozen=True)
class Patience:
    """What is not claimed now: files of the sources `but`, and, for `retry_after_s` a try, what failed."""

    but: Collection[str] = ()
    retry_after_s: float = 0.0


_FIELDS = [field.name for field in dataclasses.fields(Item)]


def item_of(row: Mapping[Any, Any], attempts: int) -> Item:
    """The item in a row of the journal."""
    known = {field: row[field] for field in _FIELDS}
    return Item(**known | {"attempts": attempts, "source": row["source"] or "", "kind": row["kind"] or PLAN})


def new_row(item: Item, now_s: float) -> dict[str, Any]:
    """The row of an item that nothing was done for yet."""
    known = {field: getattr(item, field) for field in _FIELDS}
    return known | {"state": "planned", "attempts": 0, "bytes": 0, "seconds": 0.0, "updated_at_s": now_s}
