"""Leases of items: claimed by one run at a time, finished or given back."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from prefetch.actions import Action, ItemState
from prefetch.databases import Database
from prefetch.journal.items import Item, Patience, Receipt, item_of
from prefetch.journal.owner import is_dead
from prefetch.journal.tables import (
    CLAIMED,
    CLOCK_SLACK_S,
    MAX_ERROR_CHARS,
    STANDING,
    change_in_order,
    generation_of,
    items,
    of_its_plan,
    plans,
)

LEASE_S = 300.0

# Written once: to put a statement together takes longer than to carry it out.
_AT_S = sa.bindparam("now_s", type_=sa.Double)
_RETRY_AT_S = sa.case(
    (sa.or_(items.c.error.is_(None), items.c.updated_at_s > _AT_S + CLOCK_SLACK_S), 0.0),
    else_=items.c.updated_at_s + items.c.attempts * sa.bindparam("retry_after_s", type_=sa.Double),
)
_WAITING = (
    items.c.cache == sa.bindparam("of_cache"),
    items.c.action == sa.bindparam("to_do"),
    items.c.state == ItemState.PLANNED,
    items.c.expires_at_s > _AT_S,
    sa.func.coalesce(items.c.source, "").not_in(sa.bindparam("but", expanding=True)),
    plans.c.state == STANDING,
    plans.c.generation == generation_of,
    plans.c.as_of_s <= _AT_S + CLOCK_SLACK_S,
)
_CLAIMABLE = (
    sa.select(items)
    .join(plans, of_its_plan)
    .where(*_WAITING, _RETRY_AT_S <= _AT_S)
    .order_by(items.c.attempts, items.c.as_of_s, items.c.rank, items.c.item_id)
    .limit(sa.bindparam("n_items"))
    .with_for_update(skip_locked=True, of=items)
)
_CLAIM = (
    sa.update(items)
    .where(items.c.item_id.in_(sa.bindparam("ids", expanding=True)))
    .values(
        state=ItemState.RUNNING,
        attempts=items.c.attempts + 1,
        owner=sa.bindparam("by"),
        heartbeat_s=_AT_S,
    )
)
_NEXT_RETRY = sa.select(sa.func.min(_RETRY_AT_S)).join_from(items, plans, of_its_plan).where(*_WAITING)
_HELD = (
    sa.select(items.c.item_id, items.c.state)
    .where(
        items.c.item_id.in_(sa.bindparam("ids", expanding=True)),
        items.c.state.in_(CLAIMED),
        items.c.owner == sa.bindparam("by"),
    )
    .order_by(items.c.item_id)
    .with_for_update()
)
_IS_CANCELLING = items.c.state == ItemState.CANCELLING
_AGAIN = sa.case((_IS_CANCELLING, ItemState.CANCELLED.value), else_=ItemState.PLANNED.value)
_FINISH = sa.update(items).where(items.c.item_id == sa.bindparam("id"))


class Leases:
    """Claims of items; every method raises ServiceError if the database is unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(
        self, cache: str, action: Action, n_items: int, *, owner: str, now_s: float, patience: Patience
    ) -> list[Item]:
        """Up to `n_items` items to try now, marked as running and ours; fewest tries first, then by rank."""
        asked = _asked(cache, action, now_s, patience) | {"n_items": n_items}
        with self._database.writing() as connection:
            rows = connection.execute(_CLAIMABLE, asked).mappings().all()
            if rows:
                ids = [row["item_id"] for row in rows]
                connection.execute(_CLAIM, {"ids": ids, "by": owner, "now_s": now_s})
        return [item_of(row, row["attempts"] + 1) for row in rows]

    def next_retry_s(self, cache: str, action: Action, *, now_s: float, patience: Patience) -> float | None:
        """When the first of the items that wait may be tried; None: none waits."""
        with self._database.reading() as connection:
            found = connection.scalar(_NEXT_RETRY, _asked(cache, action, now_s, patience))
        return None if found is None else float(found)

    def finish(self, receipts: Mapping[str, Receipt], *, owner: str, now_s: float) -> set[str]:
        """Write what became of claimed items, by item_id, all or none; return those that are still ours.

        What another run has taken over meanwhile is left to it.
        """
        with self._database.writing() as connection:
            found = connection.execute(_HELD, {"ids": list(receipts), "by": owner})
            held = {row.item_id: row.state for row in found}
            rows = [_finished(at, receipts[at], state, now_s) for at, state in held.items()]
            if rows:
                connection.execute(_FINISH, rows)
        return set(held)

    def give_back(self, item_ids: Collection[str], *, owner: str, now_s: float) -> int:
        """Return claimed items that were not tried after all; how many."""
        ours = [items.c.item_id.in_(item_ids), items.c.state.in_(CLAIMED), items.c.owner == owner]
        return self._change(ours, {**_freed(now_s), "attempts": items.c.attempts - 1})

    def cancelled(self, owner: str) -> set[str]:
        """Those of the items that `owner` holds that were cancelled meanwhile, by item_id."""
        query = sa.select(items.c.item_id).where(items.c.owner == owner, _IS_CANCELLING)
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def heartbeat(self, owner: str, *, now_s: float) -> None:
        """Tell other runs that `owner` still works; due well within `LEASE_S`."""
        self._change([items.c.owner == owner], {"heartbeat_s": now_s})

    def release(self, owner: str, *, now_s: float) -> int:
        """Give back what `owner` holds, to be tried again; return how many items."""
        return self._give_back(items.c.owner == owner, now_s)

    def recover(self, cache: str, *, now_s: float) -> int:
        """Give back what runs hold that are dead or silent; return how many items."""
        held = sa.and_(items.c.cache == cache, items.c.owner.is_not(None))
        heard = items.c.heartbeat_s.between(now_s - LEASE_S, now_s + CLOCK_SLACK_S)
        silent = self._give_back(sa.and_(held, sa.not_(heard)), now_s)
        with self._database.reading() as connection:
            owners = connection.scalars(sa.select(items.c.owner).where(held).distinct()).all()
        return silent + sum(self.release(owner, now_s=now_s) for owner in owners if is_dead(owner))

    def _change(self, where: Iterable[sa.ColumnElement[bool]], values: Mapping[str, object]) -> int:
        with self._database.writing() as connection:
            return change_in_order(connection, where, values)

    def _give_back(self, whose: sa.ColumnElement[bool], now_s: float) -> int:
        """Items under way are planned again; pins under renewal are done, as they were."""
        with self._database.writing() as connection:
            tried = change_in_order(connection, (whose, items.c.state.in_(CLAIMED)), _freed(now_s))
            renewed = change_in_order(connection, (whose, items.c.owner.is_not(None)), {"owner": None})
        return tried + renewed


def _asked(cache: str, action: Action, now_s: float, patience: Patience) -> dict[str, Any]:
    return {
        "of_cache": cache,
        "to_do": action,
        "now_s": now_s,
        "but": list(patience.but),
        "retry_after_s": patience.retry_after_s,
    }


def _freed(now_s: float) -> dict[str, object]:
    """Of a claimed item: nobody's again. When its last try ended stays: sources are judged by it."""
    at_s = sa.case((_IS_CANCELLING, now_s), else_=items.c.updated_at_s)
    return {"state": _AGAIN, "owner": None, "updated_at_s": at_s}


def _finished(item_id: str, receipt: Receipt, held_as: str, now_s: float) -> dict[str, Any]:
    row = dataclasses.asdict(receipt)
    if receipt.state == ItemState.PLANNED and held_as == ItemState.CANCELLING:
        row["state"] = ItemState.CANCELLED
    if receipt.error is not None:
        row["error"] = receipt.error[:MAX_ERROR_CHARS]
    return {"id": item_id, **row, "updated_at_s": now_s, "owner": None}
