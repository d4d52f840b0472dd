"""Deletes settled plans from the journal, and remembers that they were there."""

from __future__ import annotations

import sqlalchemy as sa

from prefetch.databases import Database, alone, insert_new
from prefetch.journal.cancel_superseded import delete_all, recorder
from prefetch.journal.reports import of_plan
from prefetch.journal.tables import UNDONE, items, plans, pruned

_ALL_BEFORE = 0
"""The time of planning that stands for all plans of a lost journal."""


class Pruning:
    """Deletion of plans; every method raises ServiceError if the database is unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def prunable(self, cache: str, *, before_s: float, now_s: float) -> list[int]:
        """The times of plans that may be deleted, s since 1970, oldest first.

        They are settled, expired, and did not change since `before_s`, and so are all older ones: what a
        newer plan says of a file must not go before what an older one says.
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
        """Delete the items of a plan that is still settled; return how many. It cannot be recorded again."""
        whose = of_plan(cache, as_of_s)
        with self._database.writing() as connection:
            alone(connection, recorder(cache))
            settled = sa.select(sa.and_(*_is_settled(before_s, now_s)), sa.func.count()).where(*whose)
            is_settled, n_items = connection.execute(settled).one()
            if not is_settled:
                return 0
            # From here on it is pruned, however much of it is deleted if this run dies.
            row = {"cache": cache, "as_of_s": as_of_s, "n_items": n_items, "pruned_at_s": now_s}
            insert_new(connection, pruned, [row])
            connection.execute(sa.delete(plans).where(plans.c.cache == cache, plans.c.as_of_s == as_of_s))
        return delete_all(self._database, whose)

    def give_up(self, cache: str, *, now_s: float) -> None:
        """Remember that all plans of a cache before `now_s` were lost with another journal."""
        row = {"cache": cache, "as_of_s": _ALL_BEFORE, "n_items": 0, "pruned_at_s": now_s}
        with self._database.writing() as connection:
            insert_new(connection, pruned, [row])

    def given_up_s(self, cache: str) -> float | None:
        """Until when plans were lost, s since 1970; None: none were."""
        return self.pruned_at_s(cache, _ALL_BEFORE)

    def pruned_at_s(self, cache: str, as_of_s: int) -> float | None:
        """When a plan's items were deleted, s since 1970; None: they were not."""
        with self._database.reading() as connection:
            return pruned_at(connection, cache, as_of_s)


def pruned_at(connection: sa.Connection, cache: str, as_of_s: int) -> float | None:
    """When a plan's items were deleted, s since 1970; None: they were not."""
    query = sa.select(pruned.c.pruned_at_s).where(pruned.c.cache == cache, pruned.c.as_of_s == as_of_s)
    return connection.scalar(query)


def _is_settled(before_s: float, now_s: float) -> list[sa.ColumnElement[bool]]:
    """Of a group of items: nothing will be done for them, and they are old."""
    return [
        sa.func.max(sa.case((items.c.state.in_(UNDONE), 1), else_=0)) == 0,
        sa.func.max(items.c.expires_at_s) <= now_s,
        sa.func.max(items.c.updated_at_s) <= before_s,
    ]
