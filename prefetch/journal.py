"""What was meant and what came of it, kept so that a crash anywhere loses nothing and repeats nothing.

SQLite by default (WAL: readers never wait), PostgreSQL by URL where several pushers share it. A run leases
what it works on: while its heartbeats come, nobody else does; if it is dead or silent for `LEASE_S`, others
take its items over, and what it says of them afterwards no longer counts. The journal never asks the clock:
every time is given, in s since 1970, so clocks of pushers must agree to well within `LEASE_S`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from prefetch.databases import Database, insert_new
from prefetch.journal_reports import JournalReports
from prefetch.journal_tables import CLAIMED, items, metadata
from prefetch.owner import is_dead

MAX_ERROR_CHARS = 300
LEASE_S = 300.0
_PATIENCE_S = 60


@dataclasses.dataclass(frozen=True)
class Item:
    """One plan item; columns as in `features.schema.PLANS`. `attempts` counts this try too.

    `source`: where its bytes come from, empty where that is not known. `size_bytes` 0: not known.
    """

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
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Receipt:
    """What became of one try. `bytes`: fetched or freed; `renewed_at_s`: the last use of a pinned file.

    `fault`: whose it was where there is an `error`: `cache`, `source`, or `file`: refused for good.
    """

    state: str
    bytes: int = 0
    seconds: float = 0.0
    error: str | None = None
    fault: str | None = None
    confirmed_by: str | None = None
    renewed_at_s: float | None = None


@dataclasses.dataclass(frozen=True)
class Patience:
    """What is not claimed now: files of the sources `but`, and, for `retry_after_s` a try, what failed."""

    but: Collection[str] = ()
    retry_after_s: float = 0.0


class Journal(JournalReports):
    """The journal at `url`: an SQLAlchemy URL, or the path of an SQLite file.

    Every method raises ServiceError where the database is away.
    """

    def __init__(self, url: str) -> None:
        database = Database(
            url, metadata, setting="push.journal", what="push journal", patience_s=_PATIENCE_S
        )
        super().__init__(database)

    def close(self) -> None:
        """Give back its connections."""
        self._database.close()

    def record_plan(self, plan: Iterable[Item], *, now_s: float) -> int:
        """Add the items not yet known; return how many. An item known already stays as it is."""
        fields = [field.name for field in dataclasses.fields(Item) if field.name != "attempts"]
        new = {"state": "planned", "attempts": 0, "bytes": 0, "seconds": 0.0, "updated_at_s": now_s}
        # In one order, so that two runs that record one plan cannot wait for each other.
        ordered = sorted(plan, key=lambda item: item.item_id)
        rows = ({field: getattr(item, field) for field in fields} | new for item in ordered)
        with self._database.writing() as connection:
            return insert_new(connection, items, rows)

    def claim(
        self, cache: str, action: str, n_items: int, *, owner: str, now_s: float, patience: Patience
    ) -> list[Item]:
        """Up to `n_items` items to try now, marked as running and ours; fewest tries first, then by rank."""
        query = (
            sa.select(items)
            .where(*_waiting(cache, action, now_s, patience.but), _retry_at(patience) <= now_s)
            .order_by(items.c.attempts, items.c.as_of_s, items.c.rank, items.c.item_id)
            .limit(n_items)
            .with_for_update(skip_locked=True)
        )
        with self._database.writing() as connection:
            rows = connection.execute(query).mappings().all()
            change = {"state": "running", "owner": owner, "heartbeat_s": now_s, "updated_at_s": now_s}
            chosen = items.c.item_id.in_([row["item_id"] for row in rows])
            connection.execute(sa.update(items).where(chosen).values(attempts=items.c.attempts + 1, **change))
        return [_item(row, row["attempts"] + 1) for row in rows]

    def next_retry_s(self, cache: str, action: str, *, now_s: float, patience: Patience) -> float | None:
        """When the first of the items that wait may be tried; None: none waits."""
        waiting = _waiting(cache, action, now_s, patience.but)
        with self._database.reading() as connection:
            return connection.scalar(sa.select(sa.func.min(_retry_at(patience))).where(*waiting))

    def finish(self, item_id: str, receipt: Receipt, *, owner: str, now_s: float) -> bool:
        """Write what became of a claimed item; False if another run has taken it over meanwhile."""
        values = {
            **dataclasses.asdict(receipt),
            "state": _planned_again() if receipt.state == "planned" else receipt.state,
            "error": None if receipt.error is None else receipt.error[:MAX_ERROR_CHARS],
            "updated_at_s": now_s,
            "owner": None,
        }
        ours = (items.c.item_id == item_id, items.c.state.in_(CLAIMED), items.c.owner == owner)
        return self._update(ours, values) == 1

    def heartbeat(self, owner: str, *, now_s: float) -> None:
        """Tell other runs that `owner` still works; due well within `LEASE_S`."""
        self._update((items.c.owner == owner,), {"heartbeat_s": now_s})

    def release(self, owner: str, *, now_s: float) -> int:
        """Give back what `owner` holds, to be tried again; return how many items."""
        return self._give_back(items.c.owner == owner, now_s)

    def recover(self, cache: str, *, now_s: float) -> int:
        """Give back what runs hold that are dead or silent; return how many items."""
        silent = self._give_back(
            sa.and_(items.c.cache == cache, items.c.heartbeat_s < now_s - LEASE_S), now_s
        )
        with self._database.reading() as connection:
            query = sa.select(items.c.owner).where(items.c.cache == cache, items.c.owner.is_not(None))
            owners = connection.scalars(query.distinct()).all()
        return silent + sum(self.release(owner, now_s=now_s) for owner in owners if is_dead(owner))

    def expire(self, cache: str, *, now_s: float) -> int:
        """Mark what is still planned after its time as expired; return how many."""
        late = (items.c.cache == cache, items.c.state == "planned", items.c.expires_at_s <= now_s)
        return self._update(late, {"state": "expired", "updated_at_s": now_s})

    def cancel(self, cache: str, as_of_s: int | None = None, *, now_s: float) -> tuple[int, int]:
        """Withdraw one plan's items, or all of a cache's; how many, and how many a run still has in hand.

        A try under way ends as it does, and is not repeated. What was withdrawn is never tried again.
        """
        whose = [items.c.cache == cache, *([] if as_of_s is None else [items.c.as_of_s == as_of_s])]
        planned = (*whose, items.c.state == "planned")
        running = (*whose, items.c.state == "running")
        n_cancelled = self._update(planned, {"state": "cancelled", "updated_at_s": now_s})
        return n_cancelled, self._update(running, {"state": "cancelling"})

    def pins(self, cache: str, *, now_s: float) -> list[Item]:
        """Pins that stand, by rank: of each file the latest decision, if it is a pin that has not expired."""
        return [_item(row, row["attempts"]) for row in self._standing(cache, now_s)]

    def due_pins(self, cache: str, *, now_s: float, touch_every_s: int) -> list[Item]:
        """Pins that stand and were not renewed for `touch_every_s`, by rank."""
        standing = self._standing(cache, now_s)
        due = [row for row in standing if (row["renewed_at_s"] or 0.0) <= now_s - touch_every_s]
        return [_item(row, row["attempts"]) for row in due]

    def claim_pins(
        self, pins: Sequence[Item], *, owner: str, now_s: float, used_until_s: float
    ) -> list[Item]:
        """Those of `pins` last used at `used_until_s` or before that nobody else renews, now ours."""
        due = sa.func.coalesce(items.c.renewed_at_s, 0.0) <= used_until_s
        these = items.c.item_id.in_([pin.item_id for pin in pins])
        free = (these, items.c.state == "done", items.c.owner.is_(None), due)
        change = sa.update(items).where(*free).values(owner=owner, heartbeat_s=now_s)
        with self._database.writing() as connection:
            ours = set(connection.scalars(change.returning(items.c.item_id)))
        return [pin for pin in pins if pin.item_id in ours]

    def renewed(self, item_id: str, *, at_s: float) -> None:
        """Note the last use of a pinned file, and give the pin back."""
        self._update((items.c.item_id == item_id,), {"renewed_at_s": at_s, "owner": None})

    def lose_pin(self, item_id: str, error: str, *, now_s: float) -> None:
        """Note that a pinned file is gone: the pin is failed, and is not renewed again."""
        lost = {"state": "failed", "error": error[:MAX_ERROR_CHARS], "fault": "file"}
        self._update((items.c.item_id == item_id,), {**lost, "updated_at_s": now_s, "owner": None})

    def _standing(self, cache: str, now_s: float) -> list[Mapping[Any, Any]]:
        decided = (items.c.cache == cache, items.c.action.in_(("pin", "unpin", "evict")))
        query = (
            sa.select(items)
            .where(*decided, items.c.state == "done")
            .order_by(items.c.as_of_s, items.c.action == "pin")
        )
        with self._database.reading() as connection:
            latest = {row["name"]: row for row in connection.execute(query).mappings()}
        pins = [row for row in latest.values() if row["action"] == "pin" and row["expires_at_s"] > now_s]
        return sorted(pins, key=lambda row: row["rank"])

    def _give_back(self, whose: sa.ColumnElement[bool], now_s: float) -> int:
        """Items under way are planned again; pins under renewal are done, as they were."""
        n_items = self._update(
            (whose, items.c.state.in_(CLAIMED)),
            {"state": _planned_again(), "owner": None, "updated_at_s": now_s},
        )
        return n_items + self._update((whose, items.c.owner.is_not(None)), {"owner": None})

    def _update(self, where: tuple[sa.ColumnElement[bool], ...], values: Mapping[str, Any]) -> int:
        with self._database.writing() as connection:
            return connection.execute(sa.update(items).where(*where).values(**values)).rowcount


def _waiting(cache: str, action: str, now_s: float, but: Collection[str]) -> list[sa.ColumnElement[bool]]:
    waiting = [items.c.cache == cache, items.c.action == action, items.c.state == "planned"]
    left_alone = [sa.func.coalesce(items.c.source, "").not_in(but)] if but else []
    return [*waiting, items.c.expires_at_s > now_s, *left_alone]


def _retry_at(patience: Patience) -> sa.ColumnElement[float]:
    """When an item may be tried; one that no try of failed, at once."""
    later = items.c.updated_at_s + items.c.attempts * patience.retry_after_s
    return sa.case((items.c.error.is_(None), 0.0), else_=later)


def _planned_again() -> sa.ColumnElement[str]:
    return sa.case((items.c.state == "cancelling", "cancelled"), else_="planned")


def _item(row: Mapping[Any, Any], attempts: int) -> Item:
    fields = [field.name for field in dataclasses.fields(Item)]
    known = {field: row[field] for field in fields} | {"attempts": attempts, "source": row["source"] or ""}
    return Item(**known)
