"""Break the lock of pulls on tables that several machines share."""

from __future__ import annotations

import dataclasses

from jobs.settings.tree import Settings
from jobs.store.tables import Tables


@dataclasses.dataclass(frozen=True)
class Unlocked:
    """The pull that held the lock of `tables` until it was broken; None if nobody held it."""

    tables: str
    held_by: str | None


def run(settings: Settings) -> Unlocked:
    """Break the lock of pulls."""
    tables = Tables(settings.tables.root)
    return Unlocked(tables.root, tables.unlock("pull"))
