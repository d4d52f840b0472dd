"""The lease of a cache: its holder is the only pusher of that cache, and alone writes results of its items.

Each taking of a lease raises its fencing number. Every write of the holder checks that number in the same
transaction, so a pusher that was paused, cut off or slow writes nothing after another one has taken over. The
holder is named by machine, process and start of the process: another pusher there knows whether it is dead.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from features.common.errors import ConflictError
from features.common.times import as_of_label
from prefetch.actions import Action, ItemState
from prefetch.databases import Database, advisory_lock, upsert
from prefetch.journal import tables
from prefetch.journal.tables import Item, Receipt, items, leases, plans


def new_owner() -> str:
    """A name unique to this run: machine, process, the process's start time, and a random part."""
    return "|".join((_machine(), str(os.getpid()), _started(os.getpid()), secrets.token_hex(4)))


def is_dead(owner: str) -> bool:
    """Whether the process of run `owner` is known to be gone; False for runs on other machines."""
    machine, pid, started, _ = owner.split("|")
    return machine == _machine() and _started(int(pid)) != started


def label(owner: str) -> str:
    machine, pid, *_ = owner.split("|")
    return f"process {pid} on {machine.partition('/')[0]}"


def _machine() -> str:
    """Host, boot and process namespace: hosts and containers can share a name, copied ones a machine id."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}/{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"


def _started(pid: int) -> str:
    # A process id is used again; with the start time (clock ticks since boot) it is unique.
    try:
        # Its name may be bytes that are no text.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    return "gone" if fields[0] == "Z" else fields[19]


LEASE_S = 300.0
"""Seconds after its last renewal at which another pusher may take a lease."""

BEAT_S = LEASE_S / 10
"""Seconds between renewals of a lease."""

# Written once: to put a statement together takes longer than to carry it out.
_OURS = (leases.c.cache == sa.bindparam("of_cache"), leases.c.fence == sa.bindparam("at_fence"))
_IS_OURS = sa.select(leases.c.fence).where(*_OURS).with_for_update(read=True)
_RENEW = sa.update(leases).where(*_OURS).values(until_s=sa.bindparam("to_s"))
_RELEASE = sa.update(leases).where(*_OURS).values(holder=None, until_s=0.0)
_IS_CANCELLING = items.c.state == ItemState.CANCELLING
_AT_S = sa.bindparam("now_s", type_=sa.Double)
_RETRY_AT_S = sa.case(
    (sa.or_(items.c.error.is_(None), items.c.updated_at_s > _AT_S + tables.CLOCK_SLACK_S), 0.0),
    else_=items.c.updated_at_s + items.c.attempts * sa.bindparam("retry_after_s", type_=sa.Double),
)
_WAITING = (
    items.c.cache == sa.bindparam("of_cache"),
    items.c.action == sa.bindparam("to_do"),
    items.c.state == ItemState.PLANNED,
    items.c.expires_at_s > _AT_S,
    sa.func.coalesce(items.c.source, "").not_in(sa.bindparam("but", expanding=True)),
    plans.c.as_of_s <= _AT_S + tables.CLOCK_SLACK_S,
)
_NEXT = (
    sa.select(items)
    .join(plans, tables.of_standing_plan)
    .where(*_WAITING, _RETRY_AT_S <= _AT_S)
    .order_by(items.c.attempts, items.c.as_of_s, items.c.rank, items.c.item_id)
    .limit(sa.bindparam("n_items"))
    .with_for_update(skip_locked=True, of=items)
)
_BEGIN = (
    sa.update(items)
    .where(items.c.item_id.in_(sa.bindparam("ids", expanding=True)))
    .values(state=ItemState.RUNNING, attempts=items.c.attempts + 1)
)
_NEXT_RETRY = (
    sa.select(sa.func.min(_RETRY_AT_S)).join_from(items, plans, tables.of_standing_plan).where(*_WAITING)
)
_RESULT = sa.bindparam("new_state", type_=sa.String)
_FINISH = (
    sa.update(items)
    .where(items.c.item_id == sa.bindparam("id"))
    .values(
        state=sa.case(
            (sa.and_(_IS_CANCELLING, _RESULT == ItemState.PLANNED), ItemState.CANCELLED.value), else_=_RESULT
        )
    )
)


class Leases:
    """The leases of a journal's caches."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def held(self, cache: str, now_s: Callable[[], float]) -> Iterator[Lease]:
        lease = self.take(cache, now_s=now_s())
        try:
            yield lease
        finally:
            lease.release(now_s=now_s())

    def take(self, cache: str, *, now_s: float) -> Lease:
        """Take the lease; plan again what a dead pusher left. Raises ConflictError while it is held."""
        holder = new_owner()
        with self._database.writing() as connection:
            advisory_lock(connection, f"push to {cache}")
            now = _row(connection, cache)
            if now is not None and _is_held(now, now_s):
                raise ConflictError(
                    f"{label(now.holder)} pushes to cache {cache!r} and holds its lease until "
                    f"{as_of_label(int(now.until_s))}: it carries out every recorded plan; when it has "
                    f"ended, continue with `cachecast push resume --cache {cache}`"
                )
            fence = 1 if now is None else int(now.fence) + 1
            row = {"cache": cache, "holder": holder, "fence": fence, "until_s": now_s + LEASE_S}
            upsert(connection, leases, [row])
            _plan_again(connection, cache, now_s)
        return Lease(self._database, cache, fence)

    def holder(self, cache: str, *, now_s: float) -> str | None:
        """The process that holds the lease of `cache`, and until when; None: nobody holds it."""
        with self._database.reading() as connection:
            now = _row(connection, cache)
        if now is None or not _is_held(now, now_s):
            return None
        return f"{label(now.holder)}, until {as_of_label(int(now.until_s))}"


@dataclasses.dataclass
class Lease:
    """The lease of `cache` as taken with the fencing number `fence`.

    Every method raises ServiceError if the database is unavailable. Once another pusher has taken the lease,
    all that write, but `release`, raise ConflictError and write nothing.
    """

    database: Database
    cache: str
    fence: int

    def __post_init__(self) -> None:
        self._renewed = time.monotonic()

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction in which the lease is ours until its end."""
        with self.database.writing() as connection:
            if connection.execute(_IS_OURS, self._ours).first() is None:
                raise self._lost(connection)
            yield connection

    def keep(self, *, now_s: float) -> None:
        if time.monotonic() - self._renewed >= BEAT_S:
            self.renew(now_s=now_s)

    def renew(self, *, now_s: float) -> None:
        with self.database.writing() as connection:
            if not connection.execute(_RENEW, self._ours | {"to_s": now_s + LEASE_S}).rowcount:
                raise self._lost(connection)
        self._renewed = time.monotonic()

    def release(self, *, now_s: float) -> None:
        """Give the lease back, and plan again what is in flight; nothing if another pusher has taken it."""
        with self.database.writing() as connection:
            if connection.execute(_RELEASE, self._ours).rowcount:
                _plan_again(connection, self.cache, now_s)

    def begin(
        self,
        action: Action,
        n_items: int,
        *,
        now_s: float,
        but: Collection[str] = (),
        retry_after_s: float = 0.0,
    ) -> list[Item]:
        """Up to `n_items` items to try now, marked as running: fewest tries first, then by rank.

        Files of the sources `but` are left out, and failed items for `retry_after_s` seconds per try.
        """
        parameters = self._asked(action, now_s, but, retry_after_s) | {"n_items": n_items}
        with self.writing() as connection:
            rows = connection.execute(_NEXT, parameters).mappings().all()
            if rows:
                connection.execute(_BEGIN, {"ids": [row["item_id"] for row in rows]})
        return [tables.item_of(row, row["attempts"] + 1) for row in rows]

    def next_retry_s(
        self, action: Action, *, now_s: float, but: Collection[str] = (), retry_after_s: float = 0.0
    ) -> float | None:
        """When the first waiting item may be tried, s since 1970; None if none waits."""
        with self.database.reading() as connection:
            retry_at_s = connection.scalar(_NEXT_RETRY, self._asked(action, now_s, but, retry_after_s))
        return None if retry_at_s is None else float(retry_at_s)

    def finish(self, receipts: Mapping[str, Receipt], *, now_s: float) -> None:
        # In one order: runs that cancel items meanwhile lock them in the same one.
        rows = [_finished(at, receipts[at], now_s) for at in sorted(receipts)]
        with self.writing() as connection:
            if rows:
                connection.execute(_FINISH, rows)

    def give_back(self, item_ids: Collection[str], *, now_s: float) -> None:
        these = (items.c.item_id.in_(item_ids), items.c.state.in_(tables.CLAIMED))
        with self.writing() as connection:
            tables.change_in_order(connection, these, given_back(now_s) | {"attempts": items.c.attempts - 1})

    def cancelled(self) -> set[str]:
        query = sa.select(items.c.item_id).where(items.c.cache == self.cache, _IS_CANCELLING)
        with self.database.reading() as connection:
            return set(connection.scalars(query))

    def renewed(self, used_at_s: Mapping[str, float]) -> None:
        self._note([{"id": at, "renewed_at_s": used_at_s[at]} for at in sorted(used_at_s)])

    def lose_pin(self, item_id: str, error: str, *, now_s: float) -> None:
        """Write that a pinned file is gone: the pin is failed, and is not renewed again."""
        lost = {"state": ItemState.FAILED, "error": error[: tables.MAX_ERROR_CHARS], "fault": "file"}
        self._note([{"id": item_id, "updated_at_s": now_s, **lost}])

    def _note(self, rows: Sequence[Mapping[str, object]]) -> None:
        if rows:
            with self.writing() as connection:
                connection.execute(sa.update(items).where(items.c.item_id == sa.bindparam("id")), rows)

    def _asked(
        self, action: Action, now_s: float, but: Collection[str], retry_after_s: float
    ) -> dict[str, Any]:
        waiting = {"of_cache": self.cache, "to_do": action, "now_s": now_s}
        return waiting | {"but": list(but), "retry_after_s": retry_after_s}

    @property
    def _ours(self) -> dict[str, Any]:
        return {"of_cache": self.cache, "at_fence": self.fence}

    def _lost(self, connection: sa.Connection) -> ConflictError:
        now = _row(connection, self.cache)
        by = "another pusher" if now is None or now.holder is None else label(now.holder)
        return ConflictError(
            f"this push to cache {self.cache!r} lost its lease to {by}, because it was silent for more than "
            f"{LEASE_S:.0f} s; it stops, and what it has not written is looked up at the cache again"
        )


def given_back(now_s: float) -> dict[str, object]:
    """Column values that plan items in flight again, or cancel them; the time of their last try stays."""
    state = sa.case((_IS_CANCELLING, ItemState.CANCELLED.value), else_=ItemState.PLANNED.value)
    return {"state": state, "updated_at_s": sa.case((_IS_CANCELLING, now_s), else_=items.c.updated_at_s)}


def _plan_again(connection: sa.Connection, cache: str, now_s: float) -> None:
    in_flight = (items.c.cache == cache, items.c.state.in_(tables.CLAIMED))
    tables.change_in_order(connection, in_flight, given_back(now_s))


def _row(connection: sa.Connection, cache: str) -> sa.Row[Any] | None:
    return connection.execute(sa.select(leases).where(leases.c.cache == cache)).one_or_none()


def _is_held(lease: sa.Row[Any], now_s: float) -> bool:
    """Not if it expired, a wrong clock wrote it, or its holder is known to be dead."""
    if lease.holder is None or not now_s < lease.until_s <= now_s + LEASE_S + tables.CLOCK_SLACK_S:
        return False
    return not is_dead(lease.holder)


def _finished(item_id: str, receipt: Receipt, now_s: float) -> dict[str, Any]:
    row = dataclasses.asdict(receipt)
    del row["already"]
    if receipt.error is not None:
        row["error"] = receipt.error[: tables.MAX_ERROR_CHARS]
    return {"id": item_id, "new_state": row.pop("state"), **row, "updated_at_s": now_s}
