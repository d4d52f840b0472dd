"""Volatile replicas in step with a cache: reported through the broker, confirmed by Rucio itself.

`ReportedReplicas` keeps, beside the push journal, what was reported of a cache and whether Rucio accepted it.
A replica is `adding` or `removing` until Rucio's own answer confirms it; then it is `there`, or its row gone.
`unknown` is a file that Rucio does not know. The broker's topic keeps nothing for an absent consumer, so what
is not confirmed is reported again.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import sqlalchemy as sa

from features.common.arrays import pages
from prefetch.databases import Database, upsert
from prefetch.rucio import bulk
from prefetch.rucio.broker import Broker
from prefetch.rucio.dids import Did
from prefetch.rucio.session import Session

State = Literal["adding", "there", "removing", "unknown"]
_PATIENCE_S = 60

_replicas = sa.Table(
    "rucio_replicas",
    sa.MetaData(),
    sa.Column("rse", sa.String(255), primary_key=True),
    sa.Column("scope", sa.String(255), primary_key=True),
    sa.Column("name", sa.String(1024), primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("told_at_s", sa.Double, nullable=False),
)


class ReportedReplicas:
    """What was reported, kept in the database at `url`: an SQLAlchemy URL, or the path of an SQLite file."""

    def __init__(self, url: str) -> None:
        self._database = Database(
            url, _replicas.metadata, setting="push.journal", what="push journal", patience_s=_PATIENCE_S
        )

    def close(self) -> None:
        """Give back its connections."""
        self._database.close()

    def states(self, rse: str) -> dict[Did, str]:
        """What is known of each file at `rse`."""
        query = sa.select(_replicas.c.scope, _replicas.c.name, _replicas.c.state).where(
            _replicas.c.rse == rse
        )
        with self._database.reading() as connection:
            return {Did(row.scope, row.name): row.state for row in connection.execute(query)}

    def note(self, rse: str, dids: Iterable[Did], state: State, *, now_s: float) -> None:
        """Write that the files are in `state` at `rse`; `now_s`: s since 1970."""
        new = {"rse": rse, "state": state, "told_at_s": now_s}
        with self._database.writing() as connection:
            upsert(connection, _replicas, ({**did._asdict(), **new} for did in dids))

    def forget(self, rse: str, dids: Iterable[Did]) -> None:
        """Drop the rows of files that are not at `rse`, as Rucio says too."""
        these = {name: _replicas.c[name] == sa.bindparam(f"of_{name}") for name in ("rse", "scope", "name")}
        with self._database.writing() as connection:
            for rows in pages({"of_rse": rse, "of_scope": s, "of_name": n} for s, n in dids):
                connection.execute(sa.delete(_replicas).where(*these.values()), rows)


_POLL_S = 0.5


class ReplicaChanges(NamedTuple):
    """What to report to Rucio, in order of the names; `forget`: what it never knew and the cache lost."""

    add: list[Did]
    remove: list[Did]
    forget: list[Did]


@dataclasses.dataclass(frozen=True)
class SyncSummary:
    """One cache's replicas in Rucio after a sync.

    `held`: complete files in the cache; `unnamed`: of them those whose path gives no DID. `added`, `removed`:
    confirmed by Rucio. `unknown`: files that Rucio does not know. `unconfirmed`: reported, but not yet seen
    in Rucio; the next sync reports them again.
    """

    cache: str
    rse: str
    held: int
    unnamed: int
    added: int
    removed: int
    unknown: int
    unconfirmed: int


def changes(
    held: Iterable[Did], reported: Mapping[Did, str], unreadable: Iterable[Did] = ()
) -> ReplicaChanges:
    """What to report so that Rucio has the files `held` and no others; `reported`: what was reported before.

    `unreadable` files are there, but may be incomplete: they are neither added nor withdrawn.
    """
    held_dids = set(held)
    add = {did for did in held_dids if reported.get(did) not in ("there", "unknown")}
    gone = reported.keys() - held_dids - set(unreadable)
    forget = {did for did in gone if reported[did] == "unknown"}
    return ReplicaChanges(sorted(add), sorted(gone - forget), sorted(forget))


class Sync:
    """Keeps one RSE in step with what a cache holds."""

    def __init__(self, rse: str, *, reported: ReportedReplicas, broker: Broker, session: Session) -> None:
        self._rse, self._reported, self._broker, self._session = rse, reported, broker, session

    def recheck(self) -> None:
        """Forget replicas that Rucio no longer has, and files that it did not know, to report them again."""
        known = self._reported.states(self._rse)
        there = [did for did, state in known.items() if state == "there"]
        lost = set(there) - self._present(there)
        self._reported.forget(
            self._rse, [*lost, *(did for did, state in known.items() if state == "unknown")]
        )

    def report(self, pending: ReplicaChanges, *, now_s: float) -> None:
        """Publish the changes and record them. Raises ServiceError; what was published is then recorded."""
        self._reported.forget(self._rse, pending.forget)
        # Noted before: if this dies in between, what Rucio may have got is not forgotten.
        self._reported.note(self._rse, pending.remove, "removing", now_s=now_s)
        self._reported.note(self._rse, pending.add, "adding", now_s=now_s)
        if pending.remove:
            self._broker.publish("delete_replicas", self._rse, pending.remove)
        if pending.add:
            self._broker.publish("add_replicas", self._rse, pending.add)

    def confirm(self, *, wait_s: float) -> dict[str, int]:
        """Ask Rucio until it shows all that was reported, for at most `wait_s`; counts as in SyncSummary."""
        deadline = time.monotonic() + wait_s
        counts = {"added": 0, "removed": 0}
        while True:
            open_ = {d: s for d, s in self._reported.states(self._rse).items() if s in ("adding", "removing")}
            present = self._present(list(open_))
            added = [did for did, state in open_.items() if state == "adding" and did in present]
            removed = [did for did, state in open_.items() if state == "removing" and did not in present]
            self._reported.note(self._rse, added, "there", now_s=time.time())
            self._reported.forget(self._rse, removed)
            counts["added"] += len(added)
            counts["removed"] += len(removed)
            left = [did for did in open_ if did not in {*added, *removed}]
            if not left or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_S)
        unknown = self._unknown([did for did in left if open_[did] == "adding"])
        self._reported.note(self._rse, unknown, "unknown", now_s=time.time())
        n_unknown = sum(state == "unknown" for state in self._reported.states(self._rse).values())
        return counts | {"unknown": n_unknown, "unconfirmed": len(left) - len(unknown)}

    def _present(self, dids: Sequence[Did]) -> set[Did]:
        """Those of `dids` that Rucio shows as available at the RSE."""
        return {did for did, at in bulk.replicas(self._session, dids, self._rse) if self._rse in at}

    def _unknown(self, dids: Sequence[Did]) -> list[Did]:
        """Those of `dids` that Rucio does not know at all."""
        known = set(map(bulk.did_of, bulk.metadata(self._session, dids)[0]))
        return [did for did in dids if did not in known]
