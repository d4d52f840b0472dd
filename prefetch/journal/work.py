"""A pusher's writes: items marked as in flight, their results, and renewals of pins, all under its lease."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from prefetch.actions import Action, ItemState
from prefetch.journal.lease import Lease, given_back
from prefetch.journal.tables import (
    CLAIMED,
    CLOCK_SLACK_S,
    MAX_ERROR_CHARS,
    Item,
    Receipt,
    change_in_order,
    item_of,
    items,
    of_standing_plan,
    plans,
)

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
    plans.c.as_of_s <= _AT_S + CLOCK_SLACK_S,
)
_NEXT = (
    sa.select(items)
    .join(plans, of_standing_plan)
    .where(*_WAITING, _RETRY_AT_S <= _AT_S)
    .order_by(items.c.attempts, items.c.as_of_s, items.c.rank, items.c.item_id)
    .limit(sa.bindparam("n_items"))
    .with_for_update(skip_locked=True, of=items)
)
_BEGIN = (
    sa.update(items)
    .where(items.c.item_id.in_(sa.bindparam("ids", expanding=True)))
    .values(state=ItemState.RUNNING, attempts=items.c.attempts + 1)
)
_NEXT_RETRY = sa.select(sa.func.min(_RETRY_AT_S)).join_from(items, plans, of_standing_plan).where(*_WAITING)
_IS_CANCELLING = items.c.state == ItemState.CANCELLING
_RESULT = sa.bindparam("new_state", type_=sa.String)
_FINISH = (
    sa.update(items)
    .where(items.c.item_id == sa.bindparam("id"))
    .values(
        state=sa.case(
            (sa.and_(_IS_CANCELLING, _RESULT == ItemState.PLANNED), ItemState.CANCELLED.value), else_=_RESULT
        )
    )
)


class Work:
    """Writes to the items of a leased cache; every method raises as those of its `lease`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    def begin(
        self,
        action: Action,
        n_items: int,
        *,
        now_s: float,
        but: Collection[str] = (),
        retry_after_s: float = 0.0,
    ) -> list[Item]:
        """Up to `n_items` items to try now, marked as running: fewest tries first, then by rank.

        Files of the sources `but` are left out, and failed items for `retry_after_s` seconds per try.
        """
        asked = self._asked(action, now_s, but, retry_after_s) | {"n_items": n_items}
        with self._lease.writing() as connection:
            rows = connection.execute(_NEXT, asked).mappings().all()
            if rows:
                connection.execute(_BEGIN, {"ids": [row["item_id"] for row in rows]})
        return [item_of(row, row["attempts"] + 1) for row in rows]

    def next_retry_s(
        self, action: Action, *, now_s: float, but: Collection[str] = (), retry_after_s: float = 0.0
    ) -> float | None:
        """When the first waiting item may be tried, s since 1970; None if none waits."""
        with self._lease.database.reading() as connection:
            retry_at_s = connection.scalar(_NEXT_RETRY, self._asked(action, now_s, but, retry_after_s))
        return None if retry_at_s is None else float(retry_at_s)

    def finish(self, receipts: Mapping[str, Receipt], *, now_s: float) -> None:
        """Write the results of tries, by item_id, all or none."""
        # In one order: runs that cancel items meanwhile lock them in the same one.
        rows = [_finished(at, receipts[at], now_s) for at in sorted(receipts)]
        with self._lease.writing() as connection:
            if rows:
                connection.execute(_FINISH, rows)

    def give_back(self, item_ids: Collection[str], *, now_s: float) -> None:
        """Plan items again that were marked as running and not tried."""
        these = (items.c.item_id.in_(item_ids), items.c.state.in_(CLAIMED))
        with self._lease.writing() as connection:
            change_in_order(connection, these, given_back(now_s) | {"attempts": items.c.attempts - 1})

    def cancelled(self) -> set[str]:
        """The items in flight that were cancelled meanwhile, by item_id."""
        query = sa.select(items.c.item_id).where(items.c.cache == self._lease.cache, _IS_CANCELLING)
        with self._lease.database.reading() as connection:
            return set(connection.scalars(query))

    def renewed(self, used_at_s: Mapping[str, float]) -> None:
        """Write the last uses of pinned files, s since 1970, by item_id."""
        self._note([{"id": at, "renewed_at_s": used_at_s[at]} for at in sorted(used_at_s)])

    def lose_pin(self, item_id: str, error: str, *, now_s: float) -> None:
        """Write that a pinned file is gone: the pin is failed, and is not renewed again."""
        lost = {"state": ItemState.FAILED, "error": error[:MAX_ERROR_CHARS], "fault": "file"}
        self._note([{"id": item_id, "updated_at_s": now_s, **lost}])

    def _note(self, rows: Sequence[Mapping[str, object]]) -> None:
        if rows:
            with self._lease.writing() as connection:
                connection.execute(sa.update(items).where(items.c.item_id == sa.bindparam("id")), rows)

    def _asked(
        self, action: Action, now_s: float, but: Collection[str], retry_after_s: float
    ) -> dict[str, Any]:
        waiting = {"of_cache": self._lease.cache, "to_do": action, "now_s": now_s}
        return waiting | {"but": list(but), "retry_after_s": retry_after_s}


def _finished(item_id: str, receipt: Receipt, now_s: float) -> dict[str, Any]:
    row = dataclasses.asdict(receipt)
    if receipt.error is not None:
        row["error"] = receipt.error[:MAX_ERROR_CHARS]
    return {"id": item_id, "new_state": row.pop("state"), **row, "updated_at_s": now_s}
