"""The pins that a journal's plans hold, and their renewal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from prefetch.actions import Action, ItemState
from prefetch.databases import Database
from prefetch.journal.items import Item, item_of
from prefetch.journal.tables import CLOCK_SLACK_S, MAX_ERROR_CHARS, generation_of, items

_DECIDES = (Action.PIN, Action.UNPIN, Action.EVICT)


class Pins:
    """Pins; every method raises ServiceError if the database is unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pins(self, cache: str, *, now_s: float) -> list[Item]:
        """Pins that stand, by rank: of each file the latest decision, if it is a pin that has not expired."""
        return [item_of(row, row["attempts"]) for row in self._standing(cache, now_s)]

    def due_pins(self, cache: str, *, now_s: float, touch_every_s: int) -> list[Item]:
        """Pins that stand and were not renewed for `touch_every_s`, by rank."""
        standing = self._standing(cache, now_s)
        since_s, until_s = now_s - touch_every_s, now_s + CLOCK_SLACK_S
        due = [row for row in standing if not since_s < (row["renewed_at_s"] or 0.0) <= until_s]
        return [item_of(row, row["attempts"]) for row in due]

    def claim_pins(
        self, pins: Sequence[Item], *, owner: str, now_s: float, used_until_s: float
    ) -> list[Item]:
        """Those of `pins` last used at `used_until_s` or before that nobody else renews, now ours."""
        used_at_s = sa.func.coalesce(items.c.renewed_at_s, 0.0)
        due = sa.or_(used_at_s <= used_until_s, used_at_s > now_s + CLOCK_SLACK_S)
        these = items.c.item_id.in_([pin.item_id for pin in pins])
        free = (these, items.c.state == ItemState.DONE, items.c.owner.is_(None), due)
        lock = sa.select(items.c.item_id).where(*free).with_for_update(skip_locked=True)
        with self._database.writing() as connection:
            ours = set(connection.scalars(lock))
            mine = sa.update(items).where(items.c.item_id.in_(ours))
            connection.execute(mine.values(owner=owner, heartbeat_s=now_s))
        return [pin for pin in pins if pin.item_id in ours]

    def renewed(self, used_at_s: Mapping[str, float]) -> None:
        """Note the last uses of pinned files, by item_id, and give the pins back."""
        rows = [{"id": at, "renewed_at_s": used_at_s[at], "owner": None} for at in sorted(used_at_s)]
        self._note(rows)

    def lose_pin(self, item_id: str, error: str, *, now_s: float) -> None:
        """Note that a pinned file is gone: the pin is failed, and is not renewed again."""
        lost = {"state": ItemState.FAILED, "error": error[:MAX_ERROR_CHARS], "fault": "file"}
        self._note([{"id": item_id, "updated_at_s": now_s, "owner": None, **lost}])

    def _note(self, rows: Sequence[Mapping[str, object]]) -> None:
        if rows:
            with self._database.writing() as connection:
                connection.execute(sa.update(items).where(items.c.item_id == sa.bindparam("id")), rows)

    def _standing(self, cache: str, now_s: float) -> Sequence[Mapping[Any, Any]]:
        """As far back as the oldest pin that has not expired: what was decided before does not matter."""
        no_future = items.c.as_of_s <= now_s + CLOCK_SLACK_S
        done = (items.c.cache == cache, items.c.state == ItemState.DONE, no_future)
        stands = (*done, items.c.action == Action.PIN, items.c.expires_at_s > now_s)
        oldest = sa.select(sa.func.min(items.c.as_of_s)).where(*stands).correlate(None).scalar_subquery()
        newest_first = (items.c.as_of_s.desc(), generation_of.desc(), (items.c.action == Action.PIN).desc())
        turn = sa.func.row_number().over(partition_by=items.c.name, order_by=newest_first).label("turn")
        decisions = (
            sa.select(items, turn)
            .where(*done, items.c.action.in_(_DECIDES), items.c.as_of_s >= oldest)
            .subquery()
        )
        decided = decisions.c
        query = (
            sa.select(decisions)
            .where(decided.turn == 1, decided.action == Action.PIN, decided.expires_at_s > now_s)
            .order_by(decided.rank, decided.item_id)
        )
        with self._database.reading() as connection:
            return connection.execute(query).mappings().all()
