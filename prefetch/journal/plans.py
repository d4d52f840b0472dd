"""Whole plans in the journal: recorded, replaced by newer ones, withdrawn, expired, and at last deleted."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from features.times import as_of_label
from prefetch.databases import alone, counted, insert_new
from prefetch.journal.items import Item, new_row
from prefetch.journal.reports import JournalReports, of_plan
from prefetch.journal.tables import PLAN, UNDONE, change_in_order, items, pruned

_MANY_ITEMS = 1000

_Where = sa.ColumnElement[bool]


class JournalPlans(JournalReports):
    """What happens to plans as a whole; every method raises ServiceError where the database is away."""

    def record_plan(self, plan: Iterable[Item], *, now_s: float) -> int:
        """Add the items not yet known; return how many. An item known already stays as it is.

        Of each file the newest plan's word counts, and a newer PLAN replaces all that older ones left undone:
        what is so replaced is cancelled, whichever plan is recorded first. A pruned plan stays pruned.
        """
        # In one order, so that two runs that record one plan cannot wait for each other.
        ordered = sorted(plan, key=lambda item: item.item_id)
        plans = sorted({(item.cache, item.as_of_s, item.kind) for item in ordered})
        with self._database.writing() as connection:
            for cache in sorted({cache for cache, _, _ in plans}):
                alone(connection, f"record plans of {cache}")
            gone = {(cache, at) for cache, at, _ in plans if _pruned_at(connection, cache, at) is not None}
            rows = (new_row(item, now_s) for item in ordered if (item.cache, item.as_of_s) not in gone)
            n_new = insert_new(connection, items, rows)
            if n_new >= _MANY_ITEMS:
                counted(connection, items)
            for cache, as_of_s, kind in plans:
                _replace_older(connection, cache, as_of_s, kind, now_s)
                _replace_by_newer(connection, cache, as_of_s, now_s)
        return n_new

    def expire(self, cache: str, *, now_s: float) -> int:
        """Mark what is still planned after its time as expired; return how many."""
        late = (items.c.cache == cache, items.c.state == "planned", items.c.expires_at_s <= now_s)
        return self._change(late, {"state": "expired", "updated_at_s": now_s})

    def cancel(self, cache: str, as_of_s: int | None = None, *, now_s: float) -> tuple[int, int]:
        """Withdraw one plan's items, or all of a cache's; how many, and how many a run still has in hand.

        A try under way ends as it does, and is not repeated. What was withdrawn is never tried again.
        """
        whose = of_plan(cache, as_of_s)
        with self._database.writing() as connection:
            return _withdraw(connection, whose, now_s, error=None)

    def prunable(self, cache: str, *, before_s: float, now_s: float) -> list[int]:
        """The times of plans that may be forgotten, oldest first.

        They are settled, expired, and did not change since `before_s`; so are all older ones: what a newer
        plan says of a file must not go before what an older one says.
        """
        query = (
            sa.select(items.c.as_of_s, sa.and_(*_is_settled(before_s, now_s)).label("is_settled"))
            .where(items.c.cache == cache, items.c.as_of_s <= before_s)
            .group_by(items.c.as_of_s)
            .order_by(items.c.as_of_s)
        )
        found = []
        with self._database.reading() as connection:
            for row in connection.execute(query):
                if not row.is_settled:
                    break
                found.append(row.as_of_s)
        return found

    def forget(self, cache: str, as_of_s: int, *, before_s: float, now_s: float) -> int:
        """Delete a plan's items if it is settled still; return how many. It cannot be recorded again."""
        whose = of_plan(cache, as_of_s)
        with self._database.writing() as connection:
            alone(connection, f"record plans of {cache}")
            settled = sa.select(sa.and_(*_is_settled(before_s, now_s))).where(*whose)
            if not connection.scalar(settled):
                return 0
            n_items = connection.execute(sa.delete(items).where(*whose)).rowcount
            row = {"cache": cache, "as_of_s": as_of_s, "n_items": n_items, "pruned_at_s": now_s}
            insert_new(connection, pruned, [row])
        return n_items

    def pruned_at_s(self, cache: str, as_of_s: int) -> float | None:
        """When a plan's items were deleted, s since 1970; None: they were not."""
        with self._database.reading() as connection:
            return _pruned_at(connection, cache, as_of_s)

    def _change(self, where: Iterable[_Where], values: dict[str, object]) -> int:
        with self._database.writing() as connection:
            return change_in_order(connection, where, values)


def _pruned_at(connection: sa.Connection, cache: str, as_of_s: int) -> float | None:
    query = sa.select(pruned.c.pruned_at_s).where(pruned.c.cache == cache, pruned.c.as_of_s == as_of_s)
    return connection.scalar(query)


def _is_settled(before_s: float, now_s: float) -> list[sa.ColumnElement[bool]]:
    """Of a group of items: nothing will be done for them, and they are old."""
    busy = sa.or_(items.c.state.in_(UNDONE), items.c.owner.is_not(None))
    return [
        sa.func.max(sa.case((busy, 1), else_=0)) == 0,
        sa.func.max(items.c.expires_at_s) <= now_s,
        sa.func.max(items.c.updated_at_s) <= before_s,
    ]


def _replace_older(connection: sa.Connection, cache: str, as_of_s: int, kind: str, now_s: float) -> None:
    decided = items.c.name.in_(_names(of_plan(cache, as_of_s)))
    older = (items.c.cache == cache, items.c.as_of_s < as_of_s)
    replaced = sa.or_(decided, _is_plan()) if kind == PLAN else decided
    _withdraw(connection, [*older, replaced], now_s, error=f"replaced by the plan of {as_of_label(as_of_s)}")


def _replace_by_newer(connection: sa.Connection, cache: str, as_of_s: int, now_s: float) -> None:
    newer = (items.c.cache == cache, items.c.as_of_s > as_of_s)
    latest_s = connection.scalar(sa.select(sa.func.max(items.c.as_of_s)).where(*newer))
    if latest_s is None:
        return
    is_replaced = connection.scalar(sa.select(sa.exists().where(*newer, _is_plan())))
    decided = items.c.name.in_(_names(newer))
    replaced = sa.or_(decided, _is_plan()) if is_replaced else decided
    error = f"replaced by a newer plan, of {as_of_label(latest_s)}"
    _withdraw(connection, [*of_plan(cache, as_of_s), replaced], now_s, error=error)


def _names(of: Iterable[_Where]) -> sa.Select[tuple[str]]:
    return sa.select(items.c.name).where(*of).correlate(None)


def _is_plan() -> _Where:
    return sa.func.coalesce(items.c.kind, PLAN) == PLAN


def _withdraw(
    connection: sa.Connection, whose: Iterable[_Where], now_s: float, *, error: str | None
) -> tuple[int, int]:
    """Cancel what is planned, and let what a run has in hand end; how many of each."""
    whose = list(whose)
    told = {} if error is None else {"error": error, "fault": None}
    planned = [*whose, items.c.state == "planned"]
    running = [*whose, items.c.state == "running"]
    n_planned = change_in_order(connection, planned, {"state": "cancelled", "updated_at_s": now_s, **told})
    return n_planned, change_in_order(connection, running, {"state": "cancelling"})
