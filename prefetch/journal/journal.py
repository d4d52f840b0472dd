"""A journal of plan items and their results: a crash anywhere loses nothing and repeats nothing.

SQLite by default (WAL: readers never wait), PostgreSQL by URL where several pushers share it. A run leases
what it works on: while its heartbeats come, nobody else does; if it is dead or silent for `LEASE_S`, others
take its items over, and what it says of them afterwards no longer counts. The journal never asks the clock:
every time is given, in s since 1970, so clocks of pushers must agree to well within `LEASE_S`. Nothing waits
for a time more than `CLOCK_SLACK_S` ahead: a wrong clock wrote it.
"""

from __future__ import annotations

from prefetch.databases import Database
from prefetch.journal.items import Item, Patience, Receipt
from prefetch.journal.leases import LEASE_S, Leases
from prefetch.journal.pins import Pins
from prefetch.journal.plans import Plans
from prefetch.journal.reports import Reports
from prefetch.journal.tables import items, metadata

__all__ = ["LEASE_S", "Item", "Journal", "Patience", "Receipt"]

_PATIENCE_S = 60


class Journal:
    """The journal at `url`: an SQLAlchemy URL, or the path of an SQLite file.

    It holds the database; its methods are those of `Reports`, `Plans`, `Leases` and `Pins`. Each raises
    ServiceError if the database is unavailable, or `must_exist` and there is no journal: none is made then.
    """

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        self._database = Database(
            url,
            metadata,
            setting="push.journal",
            what="push journal",
            patience_s=_PATIENCE_S,
            must_have=items.name if must_exist else None,
        )
        reports, plans = Reports(self._database), Plans(self._database)
        leases, pins = Leases(self._database), Pins(self._database)

        self.counts, self.undone, self.faults = reports.counts, reports.undone, reports.faults
        self.oldest_s, self.newest_s = reports.oldest_s, reports.newest_s
        self.last_errors, self.holders = reports.last_errors, reports.holders
        self.changed_plans, self.tries, self.receipts = reports.changed_plans, reports.tries, reports.receipts
        self.evictions, self.unproven = reports.evictions, reports.unproven

        self.record_plan, self.recorded_as = plans.record_plan, plans.recorded_as
        self.cancel, self.settle = plans.cancel, plans.settle
        self.expire, self.prunable = plans.expire, plans.prunable
        self.forget, self.pruned_at_s = plans.forget, plans.pruned_at_s

        self.claim, self.next_retry_s, self.finish = leases.claim, leases.next_retry_s, leases.finish
        self.give_back, self.cancelled, self.heartbeat = leases.give_back, leases.cancelled, leases.heartbeat
        self.release, self.recover = leases.release, leases.recover

        self.pins, self.due_pins, self.claim_pins = pins.pins, pins.due_pins, pins.claim_pins
        self.renewed, self.lose_pin = pins.renewed, pins.lose_pin

    def make(self) -> None:
        """Make the journal, if there is none."""
        with self._database.writing():
            pass

    def close(self) -> None:
        """Give back its connections."""
        self._database.close()
