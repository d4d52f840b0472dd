"""Whole plans in the journal: recorded, replaced by newer ones, withdrawn, expired, and at last deleted.

A plan of a million items is never written in one transaction. Its row in `push_plans` makes it count, and
changes in one short transaction; its items come before that and do not count yet, and what it replaces is
cancelled after it, by whoever comes next if the run dies (`settle`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from features.errors import ConflictError, InputError
from features.times import as_of_label
from prefetch.actions import ItemState
from prefetch.databases import alone, counted, insert_new, pages, upsert
from prefetch.journal.items import Heading, Item, Items, heading, new_row
from prefetch.journal.reports import of_plan
from prefetch.journal.tables import (
    CLOCK_SLACK_S,
    PLAN,
    RECORDING,
    REPLACED,
    STANDING,
    UNDONE,
    WITHDRAWN,
    generation_of,
    items,
    of_its_plan,
    plans,
    pruned,
)
from prefetch.journal.withdrawals import ITEMS_AT_ONCE, Withdrawals, expired_early, newest_plan_s, recorder

_MANY_ITEMS = 1000

_NEW = sa.bindparam("new_generation", type_=sa.BigInteger)
_WAS_NO_TRY = sa.or_(items.c.state == ItemState.EXPIRED, items.c.state == ItemState.CANCELLED)
_BACK = sa.or_(items.c.state == ItemState.FAILED, _WAS_NO_TRY)
_TOLD_ANEW = ("rank", "size_bytes", "cost_bytes", "expires_at_s", "source", "kind")
_STATE = sa.case(
    (items.c.state == ItemState.CANCELLING, ItemState.RUNNING.value),
    (_BACK, ItemState.PLANNED.value),
    else_=items.c.state,
)
_RELISTED = (
    sa.update(items)
    .where(items.c.item_id == sa.bindparam("id"), generation_of < _NEW)
    # A journal of before does not tell what an operator cancelled from what was replaced.
    .where(sa.or_(items.c.state != ItemState.CANCELLED, items.c.generation.is_not(None)))
    .values(
        {name: sa.bindparam(f"new_{name}") for name in _TOLD_ANEW}
        | {
            "generation": _NEW,
            "state": _STATE,
            "attempts": sa.case((_BACK, 0), else_=items.c.attempts),
            "error": sa.case((_WAS_NO_TRY, None), else_=items.c.error),
            "fault": sa.case((_WAS_NO_TRY, None), else_=items.c.fault),
        }
    )
)


class JournalPlans(Withdrawals):
    """What happens to plans as a whole; every method raises ServiceError where the database is away."""

    def record_plan(self, plan: Items, *, now_s: float) -> int:
        """Record the items of one plan, and let it count; return how many are new to the journal.

        The same plan again changes nothing. Another plan of the same moment replaces the first one: what is
        done stays done, what is undone and not part of it is cancelled. Of each file the newest plan's word
        counts, and a newer PLAN replaces all that older ones left undone, whichever is recorded first. A
        pruned plan stays pruned. Raises InputError for a plan of the future,
        ConflictError if meanwhile another plan of the moment is recorded, or this one is cancelled.
        """
        if not len(plan):
            return 0
        told, n_new = heading(plan), 0
        _refuse_future(told, now_s)
        generation = self._begin(told, now_s)
        if generation is not None:
            for page in pages(plan, ITEMS_AT_ONCE):
                n_new += self._add(told, page, generation, now_s)
            self._publish(told, generation, is_large=n_new >= _MANY_ITEMS, now_s=now_s)
        self.settle(told.cache, now_s=now_s)
        return n_new

    def cancel(self, cache: str, as_of_s: int | None = None, *, now_s: float) -> tuple[int, int]:
        """Withdraw one plan's items, or all of a cache's; how many, and how many a run still has in hand.

        A try under way ends as it does, and is not repeated. The plan is never carried out again, and
        replaces no other from now on; another plan of its moment may be recorded.
        """
        undone = sa.exists().where(of_its_plan, sa.or_(items.c.state.in_(UNDONE), expired_early(now_s)))
        whose = [plans.c.cache == cache, *([] if as_of_s is None else [plans.c.as_of_s == as_of_s])]
        with self._database.writing() as connection:
            alone(connection, recorder(cache))
            asked = sa.select(plans.c.as_of_s).where(*whose, sa.or_(undone, plans.c.state == RECORDING))
            chosen = plans.c.as_of_s.in_(connection.scalars(asked).all())
            change = sa.update(plans).where(plans.c.cache == cache, chosen)
            connection.execute(change.values(state=WITHDRAWN, is_settled=False))
        return self.settle(cache, now_s=now_s)

    def expire(self, cache: str, *, now_s: float) -> int:
        """Mark what is still planned after its time as expired; return how many.

        What a wrong clock let expire before its time is planned again.
        """
        self._change_all(self._expired_early(cache, now_s), {"state": ItemState.PLANNED, **_afresh(now_s)})
        late = (items.c.cache == cache, items.c.state == ItemState.PLANNED, items.c.expires_at_s <= now_s)
        return self._change_all(late, {"state": ItemState.EXPIRED, "updated_at_s": now_s})

    def _expired_early(self, cache: str, now_s: float) -> Sequence[sa.ColumnElement[bool]]:
        stands = sa.exists().where(
            of_its_plan,
            plans.c.state == STANDING,
            plans.c.generation == generation_of,
            plans.c.as_of_s <= now_s + CLOCK_SLACK_S,
        )
        return (items.c.cache == cache, expired_early(now_s), stands)

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
            alone(connection, recorder(cache))
            settled = sa.select(sa.and_(*_is_settled(before_s, now_s)), sa.func.count()).where(*whose)
            is_settled, n_items = connection.execute(settled).one()
            if not is_settled:
                return 0
            # From here on it is pruned, however much of it is deleted if this run dies.
            row = {"cache": cache, "as_of_s": as_of_s, "n_items": n_items, "pruned_at_s": now_s}
            insert_new(connection, pruned, [row])
            connection.execute(sa.delete(plans).where(plans.c.cache == cache, plans.c.as_of_s == as_of_s))
        return self._delete_all(whose)

    def pruned_at_s(self, cache: str, as_of_s: int) -> float | None:
        """When a plan's items were deleted, s since 1970; None: they were not."""
        with self._database.reading() as connection:
            return _pruned_at(connection, cache, as_of_s)

    def _begin(self, told: Heading, now_s: float) -> int | None:
        """The generation to record; None: the journal has this plan."""
        with self._database.writing() as connection:
            alone(connection, recorder(told.cache))
            if _pruned_at(connection, told.cache, told.as_of_s) is not None:
                return None
            known = _known(connection, told)
            if known is not None and known.digest == told.digest:
                if known.state == RECORDING:
                    return int(known.generation)
                if known.state != REPLACED or newest_plan_s(connection, told.cache, told.as_of_s, now_s):
                    return None
            generation = 1 if known is None else known.generation + 1
            new = {"generation": generation, "state": RECORDING, "replaced_by_s": None, "is_settled": True}
            row = {**_row(told), **new, "recorded_at_s": now_s}
            upsert(connection, plans, [row])
        return generation

    def _add(self, told: Heading, page: Sequence[Item], generation: int, now_s: float) -> int:
        # In one order, so that two runs that record one plan cannot wait for each other.
        ordered = sorted(page, key=lambda item: item.item_id)
        rows = [new_row(item, generation, now_s) for item in ordered]
        with self._database.writing() as connection:
            alone(connection, recorder(told.cache))
            if not _is_recording(connection, told, generation):
                return 0
            n_new = insert_new(connection, items, rows)
            if n_new < len(rows):
                connection.execute(_RELISTED, [_relisted(row) for row in rows])
        return n_new

    def _publish(self, told: Heading, generation: int, *, is_large: bool, now_s: float) -> None:
        this = (plans.c.cache == told.cache, plans.c.as_of_s == told.as_of_s)
        with self._database.writing() as connection:
            alone(connection, recorder(told.cache))
            if not _is_recording(connection, told, generation):
                return
            if is_large:
                counted(connection, items)
            newest_s = None
            if told.kind == PLAN:
                newest_s = newest_plan_s(connection, told.cache, told.as_of_s, now_s)
                replaced = _replaced(told.as_of_s if newest_s is None else newest_s)
                older = (plans.c.cache == told.cache, plans.c.as_of_s < told.as_of_s, plans.c.kind == PLAN)
                connection.execute(
                    sa.update(plans).where(*older, plans.c.state == STANDING).values(**replaced)
                )
            state = {"state": STANDING, "is_settled": False} if newest_s is None else _replaced(newest_s)
            connection.execute(sa.update(plans).where(*this).values(**state))


def _refuse_future(told: Heading, now_s: float) -> None:
    if told.as_of_s > now_s + CLOCK_SLACK_S:
        raise InputError(
            f"the plan of cache {told.cache!r} is of {as_of_label(told.as_of_s)}, and it is only "
            f"{as_of_label(int(now_s))} by this machine's clock: a plan of the future would replace those of "
            "today; give another --as-of, or set the clock"
        )


def _known(connection: sa.Connection, told: Heading) -> sa.Row[Any] | None:
    this = (plans.c.cache == told.cache, plans.c.as_of_s == told.as_of_s)
    return connection.execute(sa.select(plans).where(*this)).one_or_none()


def _is_recording(connection: sa.Connection, told: Heading, generation: int) -> bool:
    """False: another run was quicker with the same plan. Raises ConflictError if it must not go on."""
    known = _known(connection, told)
    if known is None or known.generation != generation or known.state == WITHDRAWN:
        raise ConflictError(
            f"the plan of cache {told.cache!r} at {as_of_label(told.as_of_s)} was cancelled, or another one "
            "of that moment was pushed, while it was recorded; run again if it should be pushed still"
        )
    return bool(known.state == RECORDING)


def _row(told: Heading) -> dict[str, object]:
    return {"cache": told.cache, "as_of_s": told.as_of_s, "kind": told.kind, "digest": told.digest}


def _relisted(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": row["item_id"], **{f"new_{name}": row[name] for name in (*_TOLD_ANEW, "generation")}}


def _replaced(by_s: int) -> dict[str, object]:
    return {"state": REPLACED, "replaced_by_s": by_s, "is_settled": False}


def _afresh(now_s: float) -> dict[str, object]:
    return {"updated_at_s": now_s, "error": None, "fault": None}


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
