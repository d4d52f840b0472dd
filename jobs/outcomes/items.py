"""What each file pushed for one plan has earned since, by the cache's own records."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pyarrow as pa

from features.errors import StaleInputError
from features.schema import ACCESSES, OUTCOMES, RECEIPTS
from jobs.settings.tree import Settings
from jobs.store.keys import MomentKey
from jobs.store.tables import Tables
from prefetch.accounting.outcomes import outcomes

_READ = ["did", "cache", "accessed_at", "bytes_hit", "bytes_missed", "n_reads"]


@dataclasses.dataclass(frozen=True)
class OutcomeSummary:
    """One plan's earnings; bytes as in the outcomes table."""

    cache: str
    as_of: str
    prefetched_files: int
    prefetched_files_read: int
    pinned_files: int
    pinned_files_read: int
    n_hits: int
    bytes_saved: int
    bytes_spent: int
    bytes_wasted: int


def run(settings: Settings, *, cache: str, as_of_s: int) -> OutcomeSummary:
    """Account what the files of one plan have earned; raises as `account`."""
    return account(Tables(settings.tables.root), cache=settings.cache(cache).name, as_of_s=as_of_s)


def account(tables: Tables, *, cache: str, as_of_s: int) -> OutcomeSummary:
    """Write the outcomes of the plan of `cache` at `as_of_s`, as far as known; run it again later."""
    key = MomentKey.at(as_of_s, cache)
    if not tables.exists(RECEIPTS):
        raise StaleInputError(f"no receipts of cache {cache!r} at {key.as_of}; push first")
    receipts = tables.read_arrow(RECEIPTS, as_of=key.as_of, owner=cache).to_pandas()
    accesses = tables.read_arrow(ACCESSES, since=key.day, columns=_READ).to_pandas()
    # A read that another source tells too, without bytes of the cache, is not its own record.
    own = (accesses["cache"] == cache) & accesses["bytes_hit"].notna()
    earned = outcomes(receipts, accesses[own])
    rows = pa.Table.from_pandas(
        earned.assign(day=key.day, as_of=key.as_of, cache=cache), preserve_index=False
    )
    tables.replace_arrow(OUTCOMES, rows, cover=[key])
    return _summary(cache, key.as_of, earned)


def _summary(cache: str, as_of: str, earned: pd.DataFrame) -> OutcomeSummary:
    prefetched, pinned = earned["action"] == "prefetch", earned["action"] == "pin"
    was_read = earned["n_hits"] > 0
    return OutcomeSummary(
        cache=cache,
        as_of=as_of,
        prefetched_files=int(prefetched.sum()),
        prefetched_files_read=int((prefetched & was_read).sum()),
        pinned_files=int(pinned.sum()),
        pinned_files_read=int((pinned & was_read).sum()),
        **{
            name: int(earned[name].sum()) for name in ("n_hits", "bytes_saved", "bytes_spent", "bytes_wasted")
        },
    )
