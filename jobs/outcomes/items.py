"""The outcome of each file pushed for one plan, by the cache's own records since."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pyarrow as pa

from features.common.errors import StaleInputError
from features.schema import ACCESSES, OUTCOMES, RECEIPTS
from jobs.settings.tree import Settings
from jobs.store.keys import MomentKey
from jobs.store.tables import Tables
from prefetch.accounting.outcomes import outcomes
from prefetch.actions import Action

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
    """Write the outcomes of the plan of `cache` at `as_of_s`, as far as its reads are known by now.

    Raises StaleInputError without receipts.
    """
    tables, cache = Tables(settings.tables.root), settings.cache(cache).name
    key = MomentKey.at(as_of_s, cache)
    if not tables.exists(RECEIPTS):
        raise StaleInputError(f"no receipts of cache {cache!r} at {key.as_of}; push first")
    receipts = tables.read_arrow(RECEIPTS, as_of=key.as_of, owner=cache).to_pandas()
    accesses = tables.read_arrow(ACCESSES, since=key.day, columns=_READ).to_pandas()
    # Records of other sources lack the bytes that the cache served.
    own = (accesses["cache"] == cache) & accesses["bytes_hit"].notna()
    outcome_rows = outcomes(receipts, accesses[own])
    tables.replace_partition(OUTCOMES, pa.Table.from_pandas(outcome_rows, preserve_index=False), key)
    return _summary(cache, key.as_of, outcome_rows)


def _summary(cache: str, as_of: str, outcome_rows: pd.DataFrame) -> OutcomeSummary:
    prefetched, pinned = outcome_rows["action"] == Action.PREFETCH, outcome_rows["action"] == Action.PIN
    was_read = outcome_rows["n_hits"] > 0
    return OutcomeSummary(
        cache=cache,
        as_of=as_of,
        prefetched_files=int(prefetched.sum()),
        prefetched_files_read=int((prefetched & was_read).sum()),
        pinned_files=int(pinned.sum()),
        pinned_files_read=int((pinned & was_read).sum()),
        **{
            name: int(outcome_rows[name].sum())
            for name in ("n_hits", "bytes_saved", "bytes_spent", "bytes_wasted")
        },
    )
