"""What was meant and what came of it, kept so that a crash anywhere loses nothing and repeats nothing.

SQLite by default (WAL: readers never wait), PostgreSQL by URL. An item is planned, running, done, failed or
expired. A running item belongs to one run; if that run is dead or silent, the next run takes the item over.
The journal never asks the clock: every time is given, in s since 1970.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from features.schema import RECEIPTS
from prefetch.journal_tables import engine_for, insert_ignoring, items, write_lock
from prefetch.owner import is_dead

MAX_ERROR_CHARS = 300
LEASE_S = 300.0
STATES = ("planned", "running", "done", "failed", "expired")


@dataclasses.dataclass(frozen=True)
class Item:
    """One plan item; columns as in `features.schema.PLANS`. `attempts` counts this try too."""

    item_id: str
    cache: str
    as_of_s: int
    did: str
    name: str
    action: str
    rank: int
    size_bytes: int
    cost_bytes: int
    expires_at_s: int
    attempts: int = 0


@dataclasses.dataclass(frozen=True)
class Receipt:
    """What became of one try. `bytes`: fetched or freed; `renewed_at_s`: the last use of a pinned file."""

    state: str
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    confirmed_by: str | None = None
    renewed_at_s: float | None = None


class Journal:
    """The journal at `url`: an SQLAlchemy URL, or the path of an SQLite file."""

    def __init__(self, url: str) -> None:
        self._engine = engine_for(url)
        items.metadata.create_all(self._engine)

    def close(self) -> None:
        """Give back its connections."""
        self._engine.dispose()

    def record_plan(self, plan: Iterable[Item], *, now_s: float) -> int:
        """Add the items not yet known; return how many. An item known already stays as it is."""
        fields = ("item_id", "cache", "as_of_s", "did", "name", "action", "rank")
        sizes = ("size_bytes", "cost_bytes", "expires_at_s")
        new = {"state": "planned", "attempts": 0, "bytes": 0, "seconds": 0.0, "updated_at_s": now_s}
        rows = [{field: getattr(item, field) for field in fields + sizes} | new for item in plan]
        with self._engine.begin() as connection:
            write_lock(connection)
            before = connection.scalar(sa.select(sa.func.count()).select_from(items)) or 0
            if rows:
                connection.execute(insert_ignoring(connection.dialect.name), rows)
            return (connection.scalar(sa.select(sa.func.count()).select_from(items)) or 0) - before

    def claim(self, cache: str, action: str, n_items: int, *, owner: str, now_s: float) -> list[Item]:
        """Up to `n_items` items to try now, marked as running and ours; fewest tries first, then by rank."""
        waiting = (items.c.cache == cache, items.c.action == action, items.c.state == "planned")
        query = (
            sa.select(items)
            .where(*waiting, items.c.expires_at_s > now_s)
            .order_by(items.c.attempts, items.c.as_of_s, items.c.rank, items.c.item_id)
            .limit(n_items)
            .with_for_update(skip_locked=True)
        )
        with self._engine.begin() as connection:
            write_lock(connection)
            rows = connection.execute(query).mappings().all()
            change = {"state": "running", "owner": owner, "heartbeat_s": now_s, "updated_at_s": now_s}
            chosen = items.c.item_id.in_([row["item_id"] for row in rows])
            connection.execute(sa.update(items).where(chosen).values(attempts=items.c.attempts + 1, **change))
        return [_item(row, row["attempts"] + 1) for row in rows]

    def finish(self, item_id: str, receipt: Receipt, *, owner: str, now_s: float) -> bool:
        """Write what became of a claimed item; False if another run has taken it over meanwhile."""
        values = {
            "state": receipt.state,
            "bytes": receipt.bytes,
            "seconds": receipt.seconds,
            "error": None if receipt.error is None else receipt.error[:MAX_ERROR_CHARS],
            "confirmed_by": receipt.confirmed_by,
            "renewed_at_s": receipt.renewed_at_s,
            "updated_at_s": now_s,
            "owner": None,
        }
        ours = (items.c.item_id == item_id, items.c.state == "running", items.c.owner == owner)
        return self._update(ours, values) == 1

    def heartbeat(self, owner: str, *, now_s: float) -> None:
        """Tell other runs that `owner` still works; due well within `LEASE_S`."""
        self._update((items.c.owner == owner, items.c.state == "running"), {"heartbeat_s": now_s})

    def release(self, owner: str, *, now_s: float) -> int:
        """Put the running items of `owner` back to planned; return how many."""
        ours = (items.c.owner == owner, items.c.state == "running")
        return self._update(ours, {"state": "planned", "owner": None, "updated_at_s": now_s})

    def recover(self, cache: str, *, now_s: float) -> int:
        """Put back to planned what dead runs left running; return how many."""
        running = (items.c.cache == cache, items.c.state == "running")
        with self._engine.connect() as connection:
            query = sa.select(items.c.owner, sa.func.max(items.c.heartbeat_s)).where(*running)
            owners = connection.execute(query.group_by(items.c.owner)).all()
        dead = [owner for owner, beat in owners if is_dead(owner) or beat < now_s - LEASE_S]
        return sum(self.release(owner, now_s=now_s) for owner in dead)

    def expire(self, cache: str, *, now_s: float) -> int:
        """Mark what is still planned after its time as expired; return how many."""
        late = (items.c.cache == cache, items.c.state == "planned", items.c.expires_at_s <= now_s)
        return self._update(late, {"state": "expired", "updated_at_s": now_s})

    def pins(self, cache: str, *, now_s: float) -> list[Item]:
        """Pins that stand, by rank: of each file the latest decision, if it is a pin that has not expired."""
        return [_item(row, row["attempts"]) for row in self._standing(cache, now_s)]

    def due_pins(self, cache: str, *, now_s: float, touch_every_s: int) -> list[Item]:
        """Pins that stand and were not renewed for `touch_every_s`, by rank."""
        standing = self._standing(cache, now_s)
        due = [row for row in standing if (row["renewed_at_s"] or 0.0) <= now_s - touch_every_s]
        return [_item(row, row["attempts"]) for row in due]

    def renewed(self, item_id: str, *, at_s: float) -> None:
        """Note the last use of a pinned file."""
        self._update((items.c.item_id == item_id,), {"renewed_at_s": at_s})

    def lose_pin(self, item_id: str, error: str, *, now_s: float) -> None:
        """Note that a pinned file is gone: the pin is failed, and is not renewed again."""
        values = {"state": "failed", "error": error[:MAX_ERROR_CHARS], "updated_at_s": now_s}
        self._update((items.c.item_id == item_id,), values)

    def counts(self, cache: str | None = None) -> dict[str, int]:
        """Number of items per state, of one cache or of all."""
        query = sa.select(items.c.state, sa.func.count().label("n_items")).group_by(items.c.state)
        if cache is not None:
            query = query.where(items.c.cache == cache)
        with self._engine.connect() as connection:
            found = {row.state: row.n_items for row in connection.execute(query)}
        return {state: found.get(state, 0) for state in STATES}

    def receipts(self, as_of_s: int | None = None) -> list[dict[str, Any]]:
        """Rows as `features.schema.RECEIPTS`, `cache` and `as_of_s`: of one time of planning, or of all."""
        query = sa.select(items).order_by(items.c.as_of_s, items.c.cache, items.c.action, items.c.rank)
        if as_of_s is not None:
            query = query.where(items.c.as_of_s == as_of_s)
        with self._engine.connect() as connection:
            return [_receipt_row(row) for row in connection.execute(query).mappings()]

    def _standing(self, cache: str, now_s: float) -> list[Mapping[Any, Any]]:
        decided = (items.c.cache == cache, items.c.action.in_(("pin", "unpin", "evict")))
        query = (
            sa.select(items)
            .where(*decided, items.c.state == "done")
            .order_by(items.c.as_of_s, items.c.action == "pin")
        )
        with self._engine.connect() as connection:
            latest = {row["name"]: row for row in connection.execute(query).mappings()}
        pins = [row for row in latest.values() if row["action"] == "pin" and row["expires_at_s"] > now_s]
        return sorted(pins, key=lambda row: row["rank"])

    def _update(self, where: tuple[sa.ColumnElement[bool], ...], values: dict[str, Any]) -> int:
        with self._engine.begin() as connection:
            return connection.execute(sa.update(items).where(*where).values(**values)).rowcount


def _item(row: Mapping[Any, Any], attempts: int) -> Item:
    fields = [field.name for field in dataclasses.fields(Item)]
    return Item(**{field: row[field] for field in fields if field != "attempts"}, attempts=attempts)


def _receipt_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    updated_at = dt.datetime.fromtimestamp(row["updated_at_s"], dt.UTC)
    known = dict(row) | {"updated_at": updated_at}
    return {column: known[column] for column in RECEIPTS.column_names} | {
        field: row[field] for field in ("cache", "as_of_s")
    }
