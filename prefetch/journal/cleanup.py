"""Cancels the items that no longer count, and deletes plans of which nothing is left to do."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from features.common.arrays import pages
from features.common.times import as_of_label
from prefetch.actions import ItemState
from prefetch.databases import Database, advisory_lock, insert_new
from prefetch.journal import tables
from prefetch.journal.tables import items, of_plan, plans, pruned

ITEMS_AT_ONCE = 2000
"""Written in one transaction: others wait for less than a second meanwhile, and memory stays small."""

Where = Sequence[sa.ColumnElement[bool]]


def cancel_superseded(database: Database, cache: str, *, now_s: float) -> tuple[int, int]:
    """Cancel the unfinished items that newer plans of `cache` replace, and those of cancelled plans.

    Return how many were planned, and how many a run is working on, which are not interrupted. If this run
    dies, the next one goes on here.
    """
    query = sa.select(plans).where(plans.c.cache == cache, plans.c.is_settled.is_(False))
    with database.reading() as connection:
        unsettled = connection.execute(query.order_by(plans.c.as_of_s)).all()
    n_planned = n_running = 0
    for plan in unsettled:
        for where, error in _replaced_by(plan, now_s):
            planned, running = _cancel(database, plan, where, error, now_s)
            n_planned, n_running = n_planned + planned, n_running + running
        with database.writing() as connection:
            connection.execute(sa.update(plans).where(*_unchanged(plan)).values(is_settled=True))
    return n_planned, n_running


def change_all(database: Database, where: Where, values: Mapping[str, object]) -> int:
    """Change all items `where`, which `values` must make false, in many transactions; return how many."""
    n_changed = 0
    while ids := _ids(database, where, ITEMS_AT_ONCE):
        with database.writing() as connection:
            n_changed += tables.change_in_order(connection, (items.c.item_id.in_(ids), *where), values)
    return n_changed


def _cancel(
    database: Database, plan: sa.Row[Any], where: Where, error: str | None, now_s: float
) -> tuple[int, int]:
    early = expired_early(now_s)
    unfinished = sa.or_(items.c.state.in_((ItemState.PLANNED, ItemState.RUNNING)), early)
    reason = {} if error is None else {"error": error, "fault": None}
    values: Mapping[str, object] = {"state": ItemState.CANCELLED, "updated_at_s": now_s, **reason}
    n_planned = n_running = 0
    while ids := _ids(database, (*where, unfinished)):
        for page in pages(ids, ITEMS_AT_ONCE):
            these = items.c.item_id.in_(page)
            with database.writing() as connection:
                advisory_lock(connection, recorder(plan.cache))
                if connection.scalar(sa.select(plans.c.cache).where(*_unchanged(plan))) is None:
                    return n_planned, n_running
                free = (these, sa.or_(items.c.state == ItemState.PLANNED, early))
                n_planned += tables.change_in_order(connection, free, values)
                held = (these, items.c.state == ItemState.RUNNING)
                n_running += tables.change_in_order(connection, held, {"state": ItemState.CANCELLING})
    return n_planned, n_running


def _ids(database: Database, where: Where, n_items: int | None = None) -> Sequence[str]:
    with database.reading() as connection:
        return connection.scalars(sa.select(items.c.item_id).where(*where).limit(n_items)).all()


def recorder(cache: str) -> str:
    """The name of the advisory lock under which plans of `cache` are recorded."""
    return f"record plans of {cache}"


def expired_early(now_s: float) -> sa.ColumnElement[bool]:
    """Items that a wrong clock let expire before their time; they are planned again unless cancelled."""
    return sa.and_(items.c.state == ItemState.EXPIRED, items.c.expires_at_s > now_s)


def newest_plan_s(connection: sa.Connection, cache: str, after_s: int, now_s: float) -> int | None:
    """The time of the newest PLAN after `after_s`, s since 1970; None if there is none.

    Plans that are cancelled, half recorded or of the future do not count.
    """
    newer = (plans.c.cache == cache, plans.c.kind == tables.PLAN, *_newer(after_s, now_s))
    newest_s = connection.scalar(sa.select(sa.func.max(plans.c.as_of_s)).where(*newer))
    return None if newest_s is None else int(newest_s)


def _newer(as_of_s: int, now_s: float) -> Where:
    return (
        plans.c.state.in_(tables.COUNTED),
        plans.c.as_of_s > as_of_s,
        plans.c.as_of_s <= now_s + tables.CLOCK_SLACK_S,
    )


def _unchanged(plan: sa.Row[Any]) -> Where:
    this = (plans.c.cache == plan.cache, plans.c.as_of_s == plan.as_of_s)
    return (*this, plans.c.generation == plan.generation, plans.c.state == plan.state)


def _replaced_by(plan: sa.Row[Any], now_s: float) -> Iterator[tuple[Where, str | None]]:
    """Unfinished items that do not count because of `plan`, with the reason for their receipts."""
    its = of_plan(plan.cache, plan.as_of_s)
    yield [*its, items.c.generation < plan.generation], "replaced by another plan of the same time"
    if plan.state == tables.CANCELLED:
        yield its, None
    if plan.state == tables.REPLACED:
        yield its, f"replaced by the plan of {as_of_label(plan.replaced_by_s)}"
    if plan.state in tables.COUNTED:
        older = (items.c.cache == plan.cache, items.c.as_of_s < plan.as_of_s)
        named = _names(sa.select(items.c.name).where(*its, items.c.generation == plan.generation))
        yield [*older, named], f"replaced by the plan of {as_of_label(plan.as_of_s)}"
    if plan.state == tables.STANDING:
        yield [*its, decided_by_newer(plan, now_s)], "replaced by what a newer plan says of this file"


def decided_by_newer(plan: sa.Row[Any], now_s: float) -> sa.ColumnElement[bool]:
    """Items of files that a newer plan decides on, or on which a newer item was done, whatever its plan."""
    counts = sa.and_(*_newer(plan.as_of_s, now_s), plans.c.generation == items.c.generation)
    done = sa.and_(items.c.state == ItemState.DONE, plans.c.as_of_s > plan.as_of_s)
    joined = sa.select(items.c.name).join(plans, tables.of_its_plan)
    newer = (items.c.cache == plan.cache, items.c.as_of_s > plan.as_of_s, sa.or_(counts, done))
    return _names(joined.where(*newer))


def _names(of: sa.Select[tuple[str]]) -> sa.ColumnElement[bool]:
    return items.c.name.in_(of.correlate(None))


_ALL_BEFORE = 0
"""The time of planning that stands for all plans of a lost journal."""


class Pruning:
    """Deletes settled plans and remembers that they were there."""

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
        times_s = []
        with self._database.reading() as connection:
            for row in connection.execute(query):
                if not row.is_settled:
                    break
                times_s.append(row.as_of_s)
        return times_s

    def forget(self, cache: str, as_of_s: int, *, before_s: float, now_s: float) -> int:
        """Delete the items of a plan that is still settled; return how many. It cannot be recorded again."""
        whose = of_plan(cache, as_of_s)
        with self._database.writing() as connection:
            advisory_lock(connection, recorder(cache))
            settled = sa.select(sa.and_(*_is_settled(before_s, now_s)), sa.func.count()).where(*whose)
            is_settled, n_items = connection.execute(settled).one()
            if not is_settled:
                return 0
            # From here on it is pruned, however much of it is deleted if this run dies.
            row = {"cache": cache, "as_of_s": as_of_s, "n_items": n_items, "pruned_at_s": now_s}
            insert_new(connection, pruned, [row])
            # With older ones without items: those with items were forgotten before.
            connection.execute(sa.delete(plans).where(plans.c.cache == cache, plans.c.as_of_s <= as_of_s))
        n_deleted = 0
        while ids := _ids(self._database, whose, ITEMS_AT_ONCE):
            with self._database.writing() as connection:
                deleted = sa.delete(items).where(items.c.item_id.in_(ids), *whose)
                n_deleted += connection.execute(deleted).rowcount
        return n_deleted

    def give_up(self, cache: str, *, now_s: float) -> None:
        """Remember that all plans of a cache before `now_s` were lost with another journal."""
        row = {"cache": cache, "as_of_s": _ALL_BEFORE, "n_items": 0, "pruned_at_s": now_s}
        with self._database.writing() as connection:
            insert_new(connection, pruned, [row])

    def given_up_s(self, cache: str) -> float | None:
        """Until when plans were lost, s since 1970; None: none were."""
        return self.pruned_at_s(cache, _ALL_BEFORE)

    def pruned_at_s(self, cache: str, as_of_s: int) -> float | None:
        with self._database.reading() as connection:
            return pruned_at(connection, cache, as_of_s)


def pruned_at(connection: sa.Connection, cache: str, as_of_s: int) -> float | None:
    query = sa.select(pruned.c.pruned_at_s).where(pruned.c.cache == cache, pruned.c.as_of_s == as_of_s)
    return connection.scalar(query)


def _is_settled(before_s: float, now_s: float) -> list[sa.ColumnElement[bool]]:
    """Conditions on a group of items: none is unfinished or still in force, and none changed lately."""
    return [
        sa.func.max(sa.case((items.c.state.in_(tables.UNDONE), 1), else_=0)) == 0,
        sa.func.max(items.c.expires_at_s) <= now_s,
        sa.func.max(items.c.updated_at_s) <= before_s,
    ]
