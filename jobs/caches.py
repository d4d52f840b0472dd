"""The configured caches as tasks are mapped over them."""

from __future__ import annotations

import dataclasses

from features.schema import RECEIPTS
from features.times import as_of_label
from jobs.settings import Settings
from jobs.tables import Tables


@dataclasses.dataclass(frozen=True)
class CacheLine:
    """A cache; `rse`: its RSE in Rucio, empty if Rucio is not told."""

    name: str
    rse: str


def listed(settings: Settings, *, pushed_at_s: int | None) -> list[CacheLine]:
    """The caches by name; with `pushed_at_s` only those that have receipts of a plan of that moment."""
    caches = [CacheLine(name, cache.rse) for name, cache in sorted(settings.caches.items())]
    if pushed_at_s is None:
        return caches
    keys = Tables(settings.tables.root).head(RECEIPTS).partitions
    pushed = {key[2] for key in keys if key[1] == as_of_label(pushed_at_s)}
    return [cache for cache in caches if cache.name in pushed]
