"""Queries of a push journal; nothing is changed."""

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from features.schema import RECEIPTS
from prefetch.actions import Action, ItemState
from prefetch.databases import Database
from prefetch.journal import tables
from prefetch.journal.tables import Item, Try, items, of_plan, plans

_ROWS_AT_ONCE = 5000
_RECEIPT_COLUMNS = dict.fromkeys((*RECEIPTS.column_names, "cache", "as_of_s"))
_MOST_ERRORS = 3
_DECIDES = (Action.PIN, Action.UNPIN, Action.EVICT)


class Reports:
    """Queries; each raises ServiceError if the database is unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def counts(self, cache: str | None = None, as_of_s: int | None = None) -> dict[str, int]:
        """Number of items per state, of one cache or of all, of one time of planning or of all."""
        n_items = self._count_by(items.c.state, *([] if cache is None else of_plan(cache, as_of_s)))
        return {state.value: n_items.get(state, 0) for state in ItemState}

    def planned(self, cache: str, *, evicts: bool = True) -> int:
        """Number of items that are planned; `evicts` False: but for evictions."""
        counted = sa.true() if evicts else items.c.action != Action.EVICT
        return self._count(items.c.cache == cache, items.c.state == ItemState.PLANNED, counted)

    def oldest_s(self, cache: str) -> int | None:
        """The time of the oldest plan that the journal has of a cache; None: it has none."""
        return self._time(sa.select(sa.func.min(items.c.as_of_s)).where(items.c.cache == cache))

    def faults(self, cache: str, as_of_s: int | None = None) -> dict[str, int]:
        return self._count_by(items.c.fault, *of_plan(cache, as_of_s), items.c.fault.is_not(None))

    def last_errors(self, cache: str, as_of_s: int | None = None) -> list[str]:
        """The errors of the last tries that failed, at most three, the newest first."""
        query = sa.select(items.c.error).where(*of_plan(cache, as_of_s), items.c.fault.is_not(None))
        return self._scalars(query.order_by(items.c.updated_at_s.desc()).limit(_MOST_ERRORS))

    def changed_plans(self, cache: str, *, since_s: float) -> list[int]:
        query = sa.select(items.c.as_of_s).where(items.c.cache == cache, items.c.updated_at_s >= since_s)
        return sorted(self._scalars(query.distinct()))

    def newest_s(self, cache: str, *, now_s: float) -> int | None:
        """The time of the newest plan that counts, of any kind; None: there is none."""
        counts = (plans.c.state.in_(tables.COUNTED), plans.c.as_of_s <= now_s + tables.CLOCK_SLACK_S)
        return self._time(sa.select(sa.func.max(plans.c.as_of_s)).where(plans.c.cache == cache, *counts))

    def stands(self, cache: str, as_of_s: int) -> bool:
        """Whether a PLAN of that time is carried out, or being recorded."""
        whose = (plans.c.cache == cache, plans.c.as_of_s == as_of_s, plans.c.kind == tables.PLAN)
        return bool(self._count(*whose, plans.c.state.in_((tables.RECORDING, tables.STANDING))))

    def tries(self, cache: str, *, since_s: float, until_s: float = math.inf) -> list[Try]:
        """Tries to fetch that ended in this time and whose result depended on the source, oldest first."""
        # What was on disk already says nothing of its source.
        fetched = sa.and_(items.c.state == ItemState.DONE, items.c.bytes > 0)
        query = (
            sa.select(items.c.source, items.c.updated_at_s, items.c.seconds, items.c.fault)
            .where(items.c.cache == cache, items.c.updated_at_s >= since_s, items.c.action == Action.PREFETCH)
            .where(items.c.updated_at_s <= until_s)
            .where(sa.or_(fetched, items.c.fault == "source"))
            # These changed since their last try.
            .where(items.c.state.not_in((ItemState.EXPIRED, ItemState.CANCELLED)))
            .order_by(items.c.updated_at_s)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query)
            return [Try(row[0] or "", row[1], row[2], row.fault == "source") for row in rows]

    def pushed(self, cache: str, *, since_s: float, until_s: float) -> list[tuple[str, int | None, float]]:
        """Files that pushes have fetched, with their sizes, or evicted (None), and when, oldest first."""
        done = (items.c.cache == cache, items.c.state == ItemState.DONE)
        query = (
            sa.select(items.c.name, items.c.action, items.c.size_bytes, items.c.updated_at_s)
            .where(*done, items.c.action.in_((Action.PREFETCH, Action.EVICT)))
            .where(items.c.updated_at_s >= since_s, items.c.updated_at_s <= until_s)
            .order_by(items.c.updated_at_s)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query)
            return [(row[0], None if row.action == Action.EVICT else row[2], row[3]) for row in rows]

    def evictions(self, cache: str, *, now_s: float) -> list[str]:
        """Names that plans evict and no push has evicted yet: newest plan first, then by rank."""
        query = (
            sa.select(items.c.name)
            .join(plans, tables.of_standing_plan)
            .where(items.c.cache == cache, items.c.action == Action.EVICT, items.c.expires_at_s > now_s)
            .where(items.c.state.in_((ItemState.PLANNED, ItemState.FAILED)))
            .where(plans.c.as_of_s <= now_s + tables.CLOCK_SLACK_S)
            .order_by(items.c.as_of_s.desc(), items.c.rank)
        )
        return self._scalars(query)

    def unproven(self, cache: str, *, now_s: float) -> int:
        """Number of items that no promotion covers and that are unfinished, and not expired.

        Failed items count until their plan is replaced or cancelled: a steward goes on with evictions that
        failed, and another push may. Pins that stand are given by `pins`; what is fetched or evicted is done.
        """
        failed = sa.and_(items.c.state == ItemState.FAILED, sa.exists().where(tables.of_standing_plan))
        stands = (sa.or_(items.c.state.in_(tables.UNDONE), failed), items.c.expires_at_s > now_s)
        return self._count(items.c.cache == cache, tables.is_unproven, *stands)

    def pins(self, cache: str, *, now_s: float) -> list[Item]:
        """Pins that stand, by rank: of each file the latest decision, if it is a pin that has not expired."""
        return [tables.item_of(row, row["attempts"]) for row in self._standing_pins(cache, now_s)]

    def due_pins(self, cache: str, *, now_s: float, touch_every_s: int) -> list[Item]:
        """Pins that stand and were not renewed for `touch_every_s`, by rank."""
        standing = self._standing_pins(cache, now_s)
        since_s, until_s = now_s - touch_every_s, now_s + tables.CLOCK_SLACK_S
        due = [row for row in standing if not since_s < (row["renewed_at_s"] or 0.0) <= until_s]
        return [tables.item_of(row, row["attempts"]) for row in due]

    def _count_by(self, of: sa.Column[Any], *where: sa.ColumnElement[bool]) -> dict[str, int]:
        """The number of items by a column."""
        query = sa.select(of, sa.func.count()).where(*where).group_by(of)
        with self._database.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def _count(self, *where: sa.ColumnElement[bool]) -> int:
        return int(self._scalars(sa.select(sa.func.count()).where(*where))[0])

    def _time(self, query: sa.Select[tuple[Any]]) -> int | None:
        time_s = self._scalars(query)[0]
        return None if time_s is None else int(time_s)

    def _scalars(self, query: sa.Select[Any]) -> list[Any]:
        with self._database.reading() as connection:
            return list(connection.scalars(query))

    def _standing_pins(self, cache: str, now_s: float) -> Sequence[Mapping[Any, Any]]:
        """As far back as the oldest pin that has not expired: what was decided before does not matter."""
        no_future = items.c.as_of_s <= now_s + tables.CLOCK_SLACK_S
        done = (items.c.cache == cache, items.c.state == ItemState.DONE, no_future)
        stands = (*done, items.c.action == Action.PIN, items.c.expires_at_s > now_s)
        oldest = sa.select(sa.func.min(items.c.as_of_s)).where(*stands).correlate(None).scalar_subquery()
        is_pin = items.c.action == Action.PIN
        newest_first = (items.c.as_of_s.desc(), items.c.generation.desc(), is_pin.desc())
        turn = sa.func.row_number().over(partition_by=items.c.name, order_by=newest_first).label("turn")
        decides = (*done, items.c.action.in_(_DECIDES), items.c.as_of_s >= oldest)
        decisions = sa.select(items, turn).where(*decides).subquery()
        decided = decisions.c
        pins = (decided.turn == 1, decided.action == Action.PIN, decided.expires_at_s > now_s)
        query = sa.select(decisions).where(*pins).order_by(decided.rank, decided.item_id)
        with self._database.reading() as connection:
            return connection.execute(query).mappings().all()

    def receipts(self, cache: str | None = None, as_of_s: int | None = None) -> Iterator[dict[str, Any]]:
        """Rows as `features.schema.RECEIPTS`, `cache` and `as_of_s`: of a cache or all, of a plan or all.

        They come as they are read; until the last one was, a transaction is open.
        """
        query = sa.select(items).order_by(items.c.as_of_s, items.c.cache, items.c.action, items.c.rank)
        if cache is not None:
            query = query.where(*of_plan(cache, as_of_s))
        with self._database.reading() as connection:
            rows = connection.execute(query.execution_options(yield_per=_ROWS_AT_ONCE)).mappings()
            for row in rows:
                updated_at = dt.datetime.fromtimestamp(row["updated_at_s"], dt.UTC)
                known = {**row, "updated_at": updated_at}
                yield {column: known[column] for column in _RECEIPT_COLUMNS}
