"""A journal of plan items and their results: a crash anywhere loses nothing and repeats nothing.

SQLite by default (WAL: readers never wait), PostgreSQL by URL where several hosts share it. A cache has one
pusher at a time, the holder of its lease: while it renews the lease, nobody else pushes; if it is dead, or
silent for `LEASE_S`, the next pusher plans its items in flight again, and what it writes afterwards is
refused. The journal never asks the clock: every time is given, in s since 1970, so clocks of pushers must
agree to well within `LEASE_S`. Nothing waits for a time more than `CLOCK_SLACK_S` ahead: a wrong clock wrote
it.
"""

from __future__ import annotations

from prefetch.databases import Database
from prefetch.journal.items import Item, Receipt
from prefetch.journal.lease import Leases
from prefetch.journal.plans import Plans
from prefetch.journal.pruning import Pruning
from prefetch.journal.reports import Reports
from prefetch.journal.tables import items, metadata

__all__ = ["Item", "Journal", "Receipt"]

_PATIENCE_S = 60


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
            metadata,
            setting="push.journal",
            what="push journal",
            patience_s=_PATIENCE_S,
            keep_open=not must_exist,
            must_have=items.name if must_exist else None,
        )
        self.plans, self.pruning = Plans(self._database), Pruning(self._database)
        self.leases, self.reports = Leases(self._database), Reports(self._database)

    def make(self) -> None:
        """Make the journal, if there is none."""
        with self._database.writing():
            pass

    def close(self) -> None:
        """Give back its connections."""
        self._database.close()
