"""The progress of a cache's pushes, as its journal knows it; the cache itself is not asked."""

from __future__ import annotations

import dataclasses

from features.common.times import as_of_label
from prefetch.journal.journal import Journal
from prefetch.push.attempt import PushLimits
from prefetch.push.push import sources_seen


@dataclasses.dataclass(frozen=True)
class PushStatus:
    """The progress of a cache's pushes; `as_of` None: of every plan in the journal.

    `items`: per state; `oldest`: the oldest plan that is not pruned; `faults`: items whose last attempt
    failed, by whose fault it was; `pusher`: the process that pushes now, and until when its lease lasts;
    `sources`: recent attempts per origin.
    """

    cache: str
    as_of: str | None
    items: dict[str, int]
    oldest: str | None
    pins: int
    faults: dict[str, int]
    last_errors: tuple[str, ...]
    pusher: str | None
    sources: tuple[str, ...]


def journal_status(
    journal: Journal, limits: PushLimits, *, cache: str, as_of_s: int | None, now_s: float
) -> PushStatus:
    """The progress at `now_s` of one plan, or of all plans for a cache."""
    sources = sources_seen(journal, cache, limits, now_s).states(now_s)
    oldest_s = journal.reports.oldest_s(cache)
    return PushStatus(
        cache=cache,
        as_of=None if as_of_s is None else as_of_label(as_of_s),
        items={state: n for state, n in journal.reports.counts(cache, as_of_s).items() if n},
        oldest=None if oldest_s is None else as_of_label(oldest_s),
        pins=len(journal.pins.standing(cache, now_s=now_s)),
        faults=journal.reports.faults(cache, as_of_s),
        last_errors=tuple(journal.reports.last_errors(cache, as_of_s)),
        pusher=journal.leases.holder(cache, now_s=now_s),
        sources=tuple(f"{state}{', left alone' if state.left_alone else ''}" for state in sources),
    )
