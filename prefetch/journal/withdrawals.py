"""Items that do not count any more, cancelled some thousands at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from features.times import as_of_label
from prefetch.actions import ItemState
from prefetch.databases import alone, pages
from prefetch.journal.reports import JournalReports, of_plan
from prefetch.journal.tables import (
    CLOCK_SLACK_S,
    COUNTED,
    PLAN,
    REPLACED,
    STANDING,
    WITHDRAWN,
    change_in_order,
    generation_of,
    items,
    of_its_plan,
    plans,
)

ITEMS_AT_ONCE = 2000
"""Written in one transaction: others wait for less than a second meanwhile, and memory stays small."""

_Where = Sequence[sa.ColumnElement[bool]]


class Withdrawals(JournalReports):
    """What makes the items of a cache agree with the rows of its plans."""

    def settle(self, cache: str, *, now_s: float) -> tuple[int, int]:
        """Cancel what plans replace, and what of replaced or cancelled ones is undone.

        Return how many items were planned, and how many a run has in hand, which end as they do. A run that
        died while it did this left the rest to the next one.
        """
        unsettled = sa.select(plans).where(plans.c.cache == cache, plans.c.is_settled.is_(False))
        with self._database.reading() as connection:
            found = connection.execute(unsettled.order_by(plans.c.as_of_s)).all()
        n_planned = n_running = 0
        for plan in found:
            for where, error in _replaced_by(plan, now_s):
                planned, running = self._withdraw(plan, where, error, now_s)
                n_planned, n_running = n_planned + planned, n_running + running
            with self._database.writing() as connection:
                connection.execute(sa.update(plans).where(*_unchanged(plan)).values(is_settled=True))
        return n_planned, n_running

    def _withdraw(self, plan: sa.Row[Any], where: _Where, error: str | None, now_s: float) -> tuple[int, int]:
        early = expired_early(now_s)
        undone = sa.or_(items.c.state.in_((ItemState.PLANNED, ItemState.RUNNING)), early)
        told = {} if error is None else {"error": error, "fault": None}
        values: Mapping[str, object] = {"state": ItemState.CANCELLED, "updated_at_s": now_s, **told}
        n_planned = n_running = 0
        while ids := self._ids((*where, undone)):
            for page in pages(ids, ITEMS_AT_ONCE):
                these = items.c.item_id.in_(page)
                with self._database.writing() as connection:
                    alone(connection, recorder(plan.cache))
                    if connection.scalar(sa.select(plans.c.cache).where(*_unchanged(plan))) is None:
                        return n_planned, n_running
                    free = (these, sa.or_(items.c.state == ItemState.PLANNED, early))
                    n_planned += change_in_order(connection, free, values)
                    held = (these, items.c.state == ItemState.RUNNING)
                    n_running += change_in_order(connection, held, {"state": ItemState.CANCELLING})
        return n_planned, n_running

    def _change_all(self, where: _Where, values: Mapping[str, object]) -> int:
        """Give all items `where` new values by which they are no longer there; return how many."""
        n_changed = 0
        while ids := self._ids(where, ITEMS_AT_ONCE):
            with self._database.writing() as connection:
                n_changed += change_in_order(connection, (items.c.item_id.in_(ids), *where), values)
        return n_changed

    def _delete_all(self, where: _Where) -> int:
        n_deleted = 0
        while ids := self._ids(where, ITEMS_AT_ONCE):
            with self._database.writing() as connection:
                deleted = sa.delete(items).where(items.c.item_id.in_(ids), *where)
                n_deleted += connection.execute(deleted).rowcount
        return n_deleted

    def _ids(self, where: _Where, n_items: int | None = None) -> Sequence[str]:
        with self._database.reading() as connection:
            return connection.scalars(sa.select(items.c.item_id).where(*where).limit(n_items)).all()


def recorder(cache: str) -> str:
    """What only one run does at a time, see `alone`."""
    return f"record plans of {cache}"


def expired_early(now_s: float) -> sa.ColumnElement[bool]:
    """Which items a wrong clock let expire: they come back unless they are cancelled."""
    return sa.and_(items.c.state == ItemState.EXPIRED, items.c.expires_at_s > now_s)


def newest_plan_s(connection: sa.Connection, cache: str, after_s: int, now_s: float) -> int | None:
    """The time of the newest PLAN after `after_s`; None: there is none that counts.

    Those do not that are cancelled, half recorded, or of the future.
    """
    newer = (plans.c.cache == cache, plans.c.kind == PLAN, *_newer(after_s, now_s))
    found = connection.scalar(sa.select(sa.func.max(plans.c.as_of_s)).where(*newer))
    return None if found is None else int(found)


def _newer(as_of_s: int, now_s: float) -> _Where:
    return (
        plans.c.state.in_(COUNTED),
        plans.c.as_of_s > as_of_s,
        plans.c.as_of_s <= now_s + CLOCK_SLACK_S,
    )


def _unchanged(plan: sa.Row[Any]) -> _Where:
    this = (plans.c.cache == plan.cache, plans.c.as_of_s == plan.as_of_s)
    return (*this, plans.c.generation == plan.generation, plans.c.state == plan.state)


def _replaced_by(plan: sa.Row[Any], now_s: float) -> Iterator[tuple[_Where, str | None]]:
    """Which undone items do not count because of `plan`, and why."""
    its = of_plan(plan.cache, plan.as_of_s)
    yield [*its, generation_of < plan.generation], "replaced by another plan of the same time"
    if plan.state == WITHDRAWN:
        yield its, None
    if plan.state == REPLACED:
        yield its, f"replaced by the plan of {as_of_label(plan.replaced_by_s)}"
    if plan.state in COUNTED:
        older = (items.c.cache == plan.cache, items.c.as_of_s < plan.as_of_s)
        named = _names(sa.select(items.c.name).where(*its, generation_of == plan.generation))
        yield [*older, named], f"replaced by the plan of {as_of_label(plan.as_of_s)}"
    if plan.state == STANDING:
        yield [*its, _names(_newer_words(plan, now_s))], "replaced by what a newer plan says of this file"


def _newer_words(plan: sa.Row[Any], now_s: float) -> sa.Select[tuple[str]]:
    """The files that newer plans decide on; what is done counts, whatever became of its plan."""
    counts = sa.and_(*_newer(plan.as_of_s, now_s), plans.c.generation == generation_of)
    done = sa.and_(items.c.state == ItemState.DONE, plans.c.as_of_s > plan.as_of_s)
    joined = sa.select(items.c.name).join(plans, of_its_plan)
    return joined.where(items.c.cache == plan.cache, items.c.as_of_s > plan.as_of_s, sa.or_(counts, done))


def _names(of: sa.Select[tuple[str]]) -> sa.ColumnElement[bool]:
    return items.c.name.in_(of.correlate(None))
