"""What a journal keeps: plan items, and receipts of the tries to carry them out."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from prefetch.actions import Action, ItemState
from prefetch.journal.tables import KNOWN, PLAN, PROMOTED, UNPROVEN


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """One plan item; columns as in `features.schema.PLANS`. `attempts`: tries so far, this one included.

    `source`: where its bytes come from, empty if unknown. `size_bytes`: 0 if unknown. `kind`: of its plan;
    `basis`: why it may act, see `prefetch.journal.tables`.
    """

    item_id: str
    cache: str
    as_of_s: int
    did: str
    name: str
    action: Action
    rank: int
    size_bytes: int
    cost_bytes: int
    expires_at_s: int
    attempts: int = 0
    source: str = ""
    kind: str = PLAN
    basis: str = ""


@dataclasses.dataclass(frozen=True)
class Receipt:
    """The result of one try. `bytes`: fetched or freed; `renewed_at_s`: the last use of a pinned file.

    `fault`: who caused an `error`: `cache`, `source`, or `file` (refused for good).
    """

    state: ItemState
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    fault: str | None = None
    confirmed_by: str | None = None
    renewed_at_s: float | None = None


@dataclasses.dataclass(frozen=True)
class Try:
    """One try to fetch from `source` (empty: not known) that ended at `at_s`, s since 1970."""

    source: str
    at_s: float
    seconds: float
    failed: bool


class Items(Protocol):
    """Items that can be iterated repeatedly: a million of them need not be in memory at once."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Item]: ...


@dataclasses.dataclass(frozen=True)
class Heading:
    """The plan that some items are of; `digest`: a hash of the items, whatever their order."""

    cache: str
    as_of_s: int
    kind: str
    digest: str


def heading(plan: Items) -> Heading:
    """The heading of a `plan` of at least one item.

    Raises ValueError if its items are of several plans, or one has no basis.
    """
    plans = set[tuple[str, int, str]]()
    total = 0
    for item in plan:
        if item.basis not in (PROMOTED, KNOWN, UNPROVEN):
            raise ValueError(f"nothing vouches for item {item.item_id}: its basis is {item.basis!r}")
        plans.add((item.cache, item.as_of_s, item.kind))
        # The source is no part of the plan: it is looked up for each push. Nor is the basis: a plan that the
        # journal has keeps the one that it was recorded with.
        decided = [getattr(item, field) for field in _DECIDED]
        text = repr([str(value) if isinstance(value, Action) else value for value in decided])
        total += int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    if len(plans) != 1:
        raise ValueError(f"one plan at a time: these are items of {len(plans)}")
    return Heading(*plans.pop(), f"{total % 2**256:064x}")


_FIELDS = [field.name for field in dataclasses.fields(Item)]
_DECIDED = [name for name in _FIELDS if name not in ("attempts", "source", "basis")]


def item_of(row: Mapping[Any, Any], attempts: int) -> Item:
    """The item in a row of the journal."""
    known = {field: row[field] for field in _FIELDS}
    read = {"action": Action(row["action"]), "source": row["source"] or "", "attempts": attempts}
    return Item(**known | read)


def new_row(item: Item, generation: int, now_s: float) -> dict[str, Any]:
    """The row of an item that was not tried yet."""
    known = {field: getattr(item, field) for field in _FIELDS}
    new = {"state": ItemState.PLANNED, "attempts": 0, "bytes": 0, "seconds": 0.0, "updated_at_s": now_s}
    return known | new | {"generation": generation}
