"""The configured caches, listed for tasks that are mapped over them."""

from __future__ import annotations

import dataclasses

from features.common.times import DAY_S, as_of_label, day_label
from features.results import WORTH
from features.schema import RECEIPTS
from jobs.settings.sources import OF_CACHES
from jobs.settings.tree import Settings
from jobs.store.tables import Tables


@dataclasses.dataclass(frozen=True)
class CacheLine:
    """A cache; `rse`: its RSE in Rucio, empty if it has none; `day`: without a verdict, if asked for."""

    name: str
    rse: str
    day: str = ""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The conditions that listed caches meet.

    `pushed_at_s`: a plan of that decision time was pushed to the cache. `unjudged_s`: plans of the day that
    starts then were pushed, `[airflow] pull` names a source of caches' own records, and the day has no
    verdict yet; and of the days until `unjudged_to_s`, if given. `with_rse`: the cache has an RSE in Rucio.
    """

    pushed_at_s: int | None = None
    unjudged_s: int | None = None
    unjudged_to_s: int | None = None
    with_rse: bool = False


def listed(settings: Settings, wanted: Wanted) -> list[CacheLine]:
    """The caches that meet the conditions, in order of their names."""
    caches = [cache for _, cache in sorted(settings.caches.items()) if cache.rse or not wanted.with_rse]
    tables = Tables(settings.tables.root)
    if wanted.pushed_at_s is not None:
        at = as_of_label(wanted.pushed_at_s)
        pushed = {key[2] for key in tables.head(RECEIPTS).partitions if key[1] == at}
        caches = [cache for cache in caches if cache.name in pushed]
    if wanted.unjudged_s is None:
        return [CacheLine(cache.name, cache.rse) for cache in caches]
    lines = []
    for day_s in range(wanted.unjudged_s, (wanted.unjudged_to_s or wanted.unjudged_s) + 1, DAY_S):
        unjudged = _unjudged(tables, settings, day_label(day_s))
        lines += [CacheLine(one.name, one.rse, day_label(day_s)) for one in caches if one.name in unjudged]
    return lines


def _unjudged(tables: Tables, settings: Settings, day: str) -> set[str]:
    if not OF_CACHES & settings.airflow.pull.keys():
        return set()
    pushed = {key[2] for key in tables.head(RECEIPTS).partitions if key[0] == day}
    judged = {key[1] for key in tables.head(WORTH).partitions if key[0] == day}
    # A directory cache has no records of its own.
    with_records = {name for name, cache in settings.caches.items() if cache.kind == "xcache"}
    return (pushed - judged) & with_records
