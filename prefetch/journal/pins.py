"""The pins that a journal's plans hold, and those due for renewal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from prefetch.actions import Action, ItemState
from prefetch.databases import Database
from prefetch.journal.items import Item, item_of
from prefetch.journal.tables import CLOCK_SLACK_S, generation_of, items

_DECIDES = (Action.PIN, Action.UNPIN, Action.EVICT)


class Pins:
    """Pins; every method raises ServiceError if the database is unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def standing(self, cache: str, *, now_s: float) -> list[Item]:
        """Pins that stand, by rank: of each file the latest decision, if it is a pin that has not expired."""
        return [item_of(row, row["attempts"]) for row in self._standing(cache, now_s)]

    def due(self, cache: str, *, now_s: float, touch_every_s: int) -> list[Item]:
        """Pins that stand and were not renewed for `touch_every_s`, by rank."""
        standing = self._standing(cache, now_s)
        since_s, until_s = now_s - touch_every_s, now_s + CLOCK_SLACK_S
        due = [row for row in standing if not since_s < (row["renewed_at_s"] or 0.0) <= until_s]
        return [item_of(row, row["attempts"]) for row in due]

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
