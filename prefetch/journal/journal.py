"""A journal of plan items and their results: a crash anywhere loses nothing and repeats nothing.

SQLite by default (WAL: readers never wait), PostgreSQL by URL where several hosts share it. A cache has one
pusher at a time, the holder of its lease: while it renews the lease, nobody else pushes; if it is dead, or
silent for `LEASE_S`, the next pusher plans its items in flight again, and what it writes afterwards is
refused. The journal never asks the clock: every time is given, in s since 1970, so clocks of pushers must
agree to well within `LEASE_S`. Nothing waits for a time more than `CLOCK_SLACK_S` ahead: a wrong clock wrote
it.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from features.common.arrays import pages
from features.common.errors import ConflictError, InputError
from features.common.times import as_of_label
from prefetch.actions import Action, ItemState
from prefetch.databases import Database, advisory_lock, analyze, insert_new, upsert
from prefetch.journal import cleanup, tables
from prefetch.journal.cleanup import ITEMS_AT_ONCE, Pruning, cancel_superseded, change_all
from prefetch.journal.lease import Leases
from prefetch.journal.reports import Reports
from prefetch.journal.tables import Heading, Item, Items, Receipt, items, plans

__all__ = ["Item", "Journal", "Receipt"]

_PATIENCE_S = 60
_MANY_ITEMS = 1000

_NEW = sa.bindparam("new_generation", type_=sa.BigInteger)
_WAS_NO_TRY = sa.or_(items.c.state == ItemState.EXPIRED, items.c.state == ItemState.CANCELLED)
_NO_FAULT: Mapping[str, object] = {"error": None, "fault": None}
_BACK = sa.or_(items.c.state == ItemState.FAILED, _WAS_NO_TRY)
_UPDATED = ("rank", "size_bytes", "cost_bytes", "expires_at_s", "source", "kind", "basis")
_STATE = sa.case(
    (items.c.state == ItemState.CANCELLING, ItemState.RUNNING.value),
    (_BACK, ItemState.PLANNED.value),
    else_=items.c.state,
)
_RELISTED = (
    sa.update(items)
    .where(items.c.item_id == sa.bindparam("id"), items.c.generation < _NEW)
    .values(
        {name: sa.bindparam(f"new_{name}") for name in _UPDATED}
        | {
            "generation": _NEW,
            "state": _STATE,
            "attempts": sa.case((_BACK, 0), else_=items.c.attempts),
            "error": sa.case((_WAS_NO_TRY, None), else_=items.c.error),
            "fault": sa.case((_WAS_NO_TRY, None), else_=items.c.fault),
        }
    )
)


class Plans:
    """Changes of whole plans: recorded, replaced by newer ones, cancelled and expired.

    A plan of a million items is never written in one transaction. Its items are written first and do not
    count yet; then one short transaction changes its row in `push_plans`, which makes them count. The items
    that it replaces are cancelled after that, by the next run if this one dies (`cancel_superseded`).
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def cancel_superseded(self, cache: str, *, now_s: float) -> tuple[int, int]:
        return cancel_superseded(self._database, cache, now_s=now_s)

    def record_plan(self, plan: Items, *, now_s: float, empty: Heading | None = None) -> int:
        """Record the items of one plan and make it count; return how many are new to the journal.

        `empty`: of a plan without items that decides that nothing is to be done; else such a plan is none.

        The same plan again changes nothing, whatever its basis. Another plan of the same time replaces the
        first one: done items stay done, and unfinished items that are not part of it are cancelled. For each
        file the newest plan decides, and a newer PLAN replaces all unfinished items of older ones, whichever
        is recorded first. A pruned plan stays pruned. Raises InputError for a plan of the future, ValueError
        for an item without a basis, and ConflictError if another plan of that time is recorded meanwhile, or
        this one is cancelled.
        """
        head, n_new = tables.heading(plan) if len(plan) else empty, 0
        if head is None:
            return 0
        if head.as_of_s > now_s + tables.CLOCK_SLACK_S:
            raise InputError(
                f"the plan of cache {head.cache!r} is of {as_of_label(head.as_of_s)}, and it is only "
                f"{as_of_label(int(now_s))} by this machine's clock: a plan of the future would replace "
                "those of today; give another --as-of, or set the clock"
            )
        generation = self._begin(head, now_s)
        if generation is not None:
            for page in pages(plan, ITEMS_AT_ONCE):
                n_new += self._add(head, page, generation, now_s)
            self._publish(head, generation, is_large=n_new >= _MANY_ITEMS, now_s=now_s)
        self.cancel_superseded(head.cache, now_s=now_s)
        return n_new

    def overtake(self, cache: str, as_of_s: int, *, by_s: int, now_s: float) -> None:
        """Replace a plan that stands as a newer one at `by_s` would, which may have no items."""
        this = (plans.c.cache == cache, plans.c.as_of_s == as_of_s, plans.c.state == tables.STANDING)
        with self._database.writing() as connection:
            connection.execute(sa.update(plans).where(*this).values(**_replaced(by_s)))
        self.cancel_superseded(cache, now_s=now_s)

    def recorded_as(self, plan: Items) -> str | None:
        """The basis that the items of models in `plan` were recorded with; None: it was not recorded."""
        if not len(plan):
            return None
        head = tables.heading(plan)
        whose = tables.of_plan(head.cache, head.as_of_s)
        with self._database.reading() as connection:
            known = _known(connection, head)
            if known is None or known.digest != head.digest:
                return None
            query = sa.select(items.c.basis).where(*whose, items.c.generation == known.generation).distinct()
            bases = set(connection.scalars(query))
        return next(
            (basis for basis in (tables.UNPROVEN, tables.PROMOTED, tables.KNOWN) if basis in bases), None
        )

    def cancel(self, cache: str, as_of_s: int | None = None, *, now_s: float) -> tuple[int, int]:
        """Cancel the items of one plan, or of all plans for a cache, that are unfinished, or failed in time.

        Return how many were waiting or failed, and how many a run is working on. A try under way ends as it
        does, and is not repeated. The plan is never carried out again and no longer replaces others; another
        plan of its time may be recorded.
        """
        failed = sa.and_(items.c.state == ItemState.FAILED, items.c.expires_at_s > now_s)
        left = sa.or_(items.c.state.in_(tables.UNDONE), cleanup.expired_early(now_s), failed)
        undone = sa.exists().where(tables.of_its_plan, left)
        whose = [plans.c.cache == cache, *([] if as_of_s is None else [plans.c.as_of_s == as_of_s])]
        with self._database.writing() as connection:
            advisory_lock(connection, cleanup.recorder(cache))
            moments = sa.select(plans.c.as_of_s).where(
                *whose, sa.or_(undone, plans.c.state == tables.RECORDING)
            )
            cancelled = plans.c.as_of_s.in_(connection.scalars(moments).all())
            change = sa.update(plans).where(plans.c.cache == cache, cancelled)
            connection.execute(change.values(state=tables.CANCELLED, is_settled=False))
        given_up = {"state": ItemState.CANCELLED, "updated_at_s": now_s}
        n_failed = change_all(self._database, (*tables.of_plan(cache, as_of_s), failed), given_up)
        n_waiting, n_under_way = self.cancel_superseded(cache, now_s=now_s)
        return n_failed + n_waiting, n_under_way

    def unpin(self, cache: str, as_of_s: int | None = None, *, now_s: float) -> int:
        """End the time of the pins of one plan, or of all for a cache, done or under way; return how many."""
        stands = (
            *tables.of_plan(cache, as_of_s),
            items.c.state.in_((ItemState.DONE, *tables.CLAIMED)),
            items.c.action == Action.PIN,
            items.c.expires_at_s > int(now_s),
        )
        return change_all(self._database, stands, {"expires_at_s": int(now_s)})

    def retry(self, cache: str, *, now_s: float) -> int:
        """Plan again what failed of standing plans, unless it expired or a newer plan decides; how many."""
        standing = sa.select(plans).where(plans.c.cache == cache, plans.c.state == tables.STANDING)
        with self._database.reading() as connection:
            plans_that_stand = connection.execute(standing).all()
        again = {"state": ItemState.PLANNED, "attempts": 0, "updated_at_s": now_s, **_NO_FAULT}
        # Of a plan that is cancelled or replaced meanwhile, nothing would end what is planned again.
        stands = sa.exists().where(tables.of_standing_plan)
        due = (items.c.state == ItemState.FAILED, items.c.expires_at_s > now_s, stands)
        n_items = 0
        for plan in plans_that_stand:
            where = (*tables.of_plan(cache, plan.as_of_s), *due, ~cleanup.decided_by_newer(plan, now_s))
            n_items += change_all(self._database, where, again)
        return n_items

    def expire(self, cache: str, *, now_s: float, uncounted: Collection[Action] = ()) -> int:
        """Mark what is still planned after its time as expired; return how many, but for some actions.

        What a wrong clock let expire before its time is planned again.
        """
        planned = {"state": ItemState.PLANNED, "updated_at_s": now_s, **_NO_FAULT}
        counts = sa.exists().where(tables.of_standing_plan, plans.c.as_of_s <= now_s + tables.CLOCK_SLACK_S)
        restorable = (items.c.cache == cache, cleanup.expired_early(now_s), counts)
        change_all(self._database, restorable, planned)
        late = (items.c.cache == cache, items.c.state == ItemState.PLANNED, items.c.expires_at_s <= now_s)
        expired = {"state": ItemState.EXPIRED, "updated_at_s": now_s}
        change_all(self._database, (*late, items.c.action.in_(uncounted)), expired)
        return change_all(self._database, late, expired)

    def _begin(self, head: Heading, now_s: float) -> int | None:
        """The generation to record; None: the journal has this plan."""
        with self._database.writing() as connection:
            advisory_lock(connection, cleanup.recorder(head.cache))
            if cleanup.pruned_at(connection, head.cache, head.as_of_s) is not None:
                return None
            known = _known(connection, head)
            if known is not None and known.digest == head.digest:
                if known.state == tables.RECORDING:
                    return int(known.generation)
                if known.state != tables.REPLACED or cleanup.newest_plan_s(
                    connection, head.cache, head.as_of_s, now_s
                ):
                    return None
            generation = 1 if known is None else known.generation + 1
            new = {"generation": generation, "state": tables.RECORDING, "replaced_by_s": None}
            row = dataclasses.asdict(head) | new | {"is_settled": True, "recorded_at_s": now_s}
            upsert(connection, plans, [row])
        return generation

    def _add(self, head: Heading, page: Sequence[Item], generation: int, now_s: float) -> int:
        # In one order, so that two runs that record one plan cannot wait for each other.
        ordered = sorted(page, key=lambda item: item.item_id)
        rows = [tables.new_row(item, generation, now_s) for item in ordered]
        with self._database.writing() as connection:
            advisory_lock(connection, cleanup.recorder(head.cache))
            if not _is_recording(connection, head, generation):
                return 0
            n_new = insert_new(connection, items, rows)
            if n_new < len(rows):
                renamed = {"item_id": "id"} | {name: f"new_{name}" for name in (*_UPDATED, "generation")}
                relisted = [{new: row[name] for name, new in renamed.items()} for row in rows]
                connection.execute(_RELISTED, relisted)
        return n_new

    def _publish(self, head: Heading, generation: int, *, is_large: bool, now_s: float) -> None:
        this = (plans.c.cache == head.cache, plans.c.as_of_s == head.as_of_s)
        with self._database.writing() as connection:
            advisory_lock(connection, cleanup.recorder(head.cache))
            if not _is_recording(connection, head, generation):
                return
            if is_large:
                analyze(connection, items)
            newest_s = None
            if head.kind == tables.PLAN:
                newest_s = cleanup.newest_plan_s(connection, head.cache, head.as_of_s, now_s)
                replaced = _replaced(head.as_of_s if newest_s is None else newest_s)
                standing = (plans.c.kind == tables.PLAN, plans.c.state == tables.STANDING)
                older = (plans.c.cache == head.cache, plans.c.as_of_s < head.as_of_s, *standing)
                connection.execute(sa.update(plans).where(*older).values(**replaced))
            stands = {"state": tables.STANDING, "is_settled": False}
            state = stands if newest_s is None else _replaced(newest_s)
            connection.execute(sa.update(plans).where(*this).values(**state))


def _known(connection: sa.Connection, head: Heading) -> sa.Row[Any] | None:
    this = (plans.c.cache == head.cache, plans.c.as_of_s == head.as_of_s)
    return connection.execute(sa.select(plans).where(*this)).one_or_none()


def _is_recording(connection: sa.Connection, head: Heading, generation: int) -> bool:
    """False: another run was quicker with the same plan. Raises ConflictError if it must not go on."""
    known = _known(connection, head)
    if known is None or known.generation != generation or known.state == tables.CANCELLED:
        raise ConflictError(
            f"the plan of cache {head.cache!r} at {as_of_label(head.as_of_s)} was cancelled, or another one "
            "of that time was pushed, while it was being recorded; run again to push it anyway"
        )
    return bool(known.state == tables.RECORDING)


def _replaced(by_s: int) -> dict[str, object]:
    return {"state": tables.REPLACED, "replaced_by_s": by_s, "is_settled": False}


class Journal:
    """The journal at `url`: an SQLAlchemy URL, or the path of an SQLite file.

    Its parts: `plans` (recorded, cancelled, expired), `pruning` (old ones deleted), `leases` (who may push),
    `reports` (queries). Their methods raise ServiceError if the database is unavailable, or
    `must_exist` and there is no journal: none is made then. With it a file that was put in the place of
    another is noticed at once.
    """

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        self._database = Database(
            url,
            tables.metadata,
            setting="push.journal",
            what="push journal",
            patience_s=_PATIENCE_S,
            keep_open=not must_exist,
            must_have=items.name if must_exist else None,
        )
        self.plans, self.pruning = Plans(self._database), Pruning(self._database)
        self.leases, self.reports = Leases(self._database), Reports(self._database)

    def make(self) -> None:
        with self._database.writing():
            pass

    def close(self) -> None:
        self._database.close()
