"""What each pushed item earned: receipts joined with the reads that came after them."""

from __future__ import annotations

import pandas as pd

from features.schema import OUTCOMES
from prefetch.actions import Action, ItemState

_KEY = ["cache", "did"]
_COUNTS = ("bytes_hit", "bytes_missed", "n_reads")


def outcomes(receipts: pd.DataFrame, accesses: pd.DataFrame) -> pd.DataFrame:
    """Rows of `features.schema.OUTCOMES`, with `cache`: one per done prefetch or pin, read or not.

    `receipts`: columns of RECEIPTS, with `cache`. `accesses`: did, cache, accessed_at, bytes_hit,
    bytes_missed, n_reads of ACCESSES, our own prefetches and touches already dropped by the reader. Times are
    timestamps in UTC.

    A read counts for the latest item of its file in its cache that was done *before* the read began, so no
    read counts twice. A hit is a read that fetched nothing (`bytes_missed` 0, `bytes_hit` above 0): XCache
    5.x counts blocks in flight as hit, so a mostly-hit read may have been a cold one. An item earns nothing
    after the first read that missed: what is on disk then is not its work.
    """
    done = _done(receipts)
    credited = _credited(done, accesses)
    hits = credited[_before_first_miss(credited)]
    earned = hits.groupby("item_id").agg(
        n_hits=("n_reads", "sum"), bytes_saved=("bytes_hit", "sum"), first_hit_delay_s=("delay_s", "min")
    )
    rows = done.join(earned, on="item_id")
    rows["bytes_spent"] = rows["bytes"].where(rows["action"] == Action.PREFETCH, 0)
    for column in ("n_hits", "bytes_saved", "bytes_spent"):
        rows[column] = pd.to_numeric(rows[column]).fillna(0).astype("int64")
    rows["bytes_wasted"] = rows["bytes_spent"].where(rows["n_hits"] == 0, 0)
    rows["first_hit_delay_s"] = rows["first_hit_delay_s"].astype("float64")
    return rows[[*OUTCOMES.column_names, "cache"]].sort_values("item_id", ignore_index=True)


def _done(receipts: pd.DataFrame) -> pd.DataFrame:
    placed = (receipts["state"] == ItemState.DONE) & receipts["action"].isin([Action.PREFETCH, Action.PIN])
    columns = ["item_id", *_KEY, "action", "bytes", "updated_at"]
    done = receipts.loc[placed, columns]
    return done.assign(updated_at=_utc(done["updated_at"]))


def _credited(done: pd.DataFrame, accesses: pd.DataFrame) -> pd.DataFrame:
    """The reads with the item each counts for, in order of time; reads before any item are left out."""
    columns = [*_KEY, "accessed_at", *_COUNTS]
    reads = accesses.loc[accesses["cache"].notna(), columns]
    texts = dict.fromkeys(_KEY, "object")
    # A column of a few nulls, or of no rows, comes as objects.
    counts = {column: pd.to_numeric(reads[column]) for column in _COUNTS}
    reads = reads.assign(accessed_at=_utc(reads["accessed_at"]), **counts)
    joined = pd.merge_asof(
        reads.astype(texts).sort_values("accessed_at", kind="stable"),
        done.astype(texts).sort_values(["updated_at", "item_id"]),
        left_on="accessed_at",
        right_on="updated_at",
        by=_KEY,
        allow_exact_matches=False,
    )
    joined = joined[joined["item_id"].notna()]
    return joined.assign(delay_s=(joined["accessed_at"] - joined["updated_at"]).dt.total_seconds())


def _before_first_miss(credited: pd.DataFrame) -> pd.Series[bool]:
    # Reads that began at the same moment are one: if any of them missed, none of them hit.
    missed = ~((credited["bytes_missed"] == 0) & (credited["bytes_hit"] > 0))
    at_once = missed.groupby([credited["item_id"], credited["accessed_at"]]).transform("any")
    return ~at_once.groupby(credited["item_id"]).cummax().astype("bool")


def _utc(times: pd.Series) -> pd.Series:
    return pd.to_datetime(times, utc=True).astype("datetime64[us, UTC]")
