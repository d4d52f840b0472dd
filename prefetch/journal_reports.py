"""What the journal of pushes tells; nothing is changed."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from features.schema import RECEIPTS
from prefetch.databases import Database
from prefetch.journal_tables import STATES, items


@dataclasses.dataclass(frozen=True)
class Holder:
    """A run that has items in hand, and when it was last heard of, s since 1970."""

    owner: str
    n_items: int
    heard_at_s: float


class JournalReports:
    """The questions that a journal answers; every one raises ServiceError where the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def counts(self, cache: str | None = None, as_of_s: int | None = None) -> dict[str, int]:
        """Number of items per state, of one cache or of all, of one time of planning or of all."""
        query = sa.select(items.c.state, sa.func.count().label("n_items")).group_by(items.c.state)
        if cache is not None:
            query = query.where(*_of(cache, as_of_s))
        with self._database.reading() as connection:
            found = {row.state: row.n_items for row in connection.execute(query)}
        return {state: found.get(state, 0) for state in STATES}

    def faults(self, cache: str, as_of_s: int | None = None) -> dict[str, int]:
        """Items whose last try failed, by whose fault it was."""
        query = sa.select(items.c.fault, sa.func.count().label("n_items")).group_by(items.c.fault)
        failed = (*_of(cache, as_of_s), items.c.fault.is_not(None))
        with self._database.reading() as connection:
            return {row.fault: row.n_items for row in connection.execute(query.where(*failed))}

    def last_errors(self, cache: str, as_of_s: int | None = None, *, n: int = 3) -> list[str]:
        """The errors noted last, newest first."""
        query = sa.select(items.c.error).where(*_of(cache, as_of_s), items.c.error.is_not(None))
        with self._database.reading() as connection:
            return list(connection.scalars(query.order_by(items.c.updated_at_s.desc()).limit(n)))

    def holders(self, cache: str) -> list[Holder]:
        """The runs that have items of `cache` in hand, the most silent first."""
        heard = sa.func.min(items.c.heartbeat_s).label("heard")
        query = (
            sa.select(items.c.owner, sa.func.count().label("n_items"), heard)
            .where(items.c.cache == cache, items.c.owner.is_not(None))
            .group_by(items.c.owner)
            .order_by(heard)
        )
        with self._database.reading() as connection:
            return [Holder(row.owner, row.n_items, row.heard) for row in connection.execute(query)]

    def rows(self, cache: str, *columns: str, since_s: float) -> list[Mapping[Any, Any]]:
        """The named columns of a cache's items that changed since `since_s`, oldest change first."""
        query = sa.select(*(items.c[name] for name in columns))
        query = query.where(items.c.cache == cache, items.c.updated_at_s >= since_s)
        with self._database.reading() as connection:
            return list(connection.execute(query.order_by(items.c.updated_at_s)).mappings())

    def receipts(self, as_of_s: int | None = None) -> list[dict[str, Any]]:
        """Rows as `features.schema.RECEIPTS`, `cache` and `as_of_s`: of one time of planning, or of all."""
        query = sa.select(items).order_by(items.c.as_of_s, items.c.cache, items.c.action, items.c.rank)
        if as_of_s is not None:
            query = query.where(items.c.as_of_s == as_of_s)
        with self._database.reading() as connection:
            return [_receipt_row(row) for row in connection.execute(query).mappings()]


def _of(cache: str, as_of_s: int | None) -> list[sa.ColumnElement[bool]]:
    return [items.c.cache == cache, *([] if as_of_s is None else [items.c.as_of_s == as_of_s])]


def _receipt_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    updated_at = dt.datetime.fromtimestamp(row["updated_at_s"], dt.UTC)
    known = dict(row) | {"updated_at": updated_at}
    return {column: known[column] for column in RECEIPTS.column_names} | {
        field: row[field] for field in ("cache", "as_of_s")
    }
