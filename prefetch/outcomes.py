"""What each pushed item earned: receipts joined with the reads that came after them."""

from __future__ import annotations

import datetime as dt
import enum

import numpy as np
import pandas as pd

from features.schema import OUTCOMES
from prefetch.actions import Action, ItemState

_KEY = ["cache", "did"]
_COUNTS = ("bytes_hit", "bytes_missed", "n_reads")
_SECOND = dt.timedelta(seconds=1)


class Use(enum.StrEnum):
    """Whether a pushed item was read: so far, not yet, or not before it expired or was gone."""

    READ = "read"
    PENDING = "pending"
    UNREAD = "unread"


def outcomes(
    receipts: pd.DataFrame, accesses: pd.DataFrame, *, until: dt.datetime | None = None
) -> pd.DataFrame:
    """Rows of `features.schema.OUTCOMES`, with `cache`: one per done prefetch or pin, read or not.

    `receipts`: columns of RECEIPTS, with `cache` and `expires_at` of PLANS (null: not known). `accesses`:
    did, cache, accessed_at, closed_at, bytes_hit, bytes_missed, n_reads of ACCESSES, our own prefetches and
    touches already dropped by the reader; they are known up to `until`. Times are timestamps in UTC.

    A read counts for the latest item of its file in its cache that was done before the read began, so no read
    counts twice. A time without a fraction is that of a whole second, as XCache reports it: a read that began
    and ended in the second of the receipt counts for a prefetch, without which it could not have hit, but not
    for a pin. A hit is a read that fetched nothing (`bytes_missed` 0, `bytes_hit` above 0): XCache 5.x counts
    blocks in flight as hit, so a mostly-hit read may have been a cold one. An item earns nothing after the
    first read that missed, or may have: what is on disk then is not its work.

    A prefetch is wasted if nobody read the file before `expires_at`, or if the first read missed it. Before
    `expires_at` an item without a read is pending. A first read of which it is not known what it fetched is a
    read without savings.
    """
    done = _done(receipts)
    credited = _credited(done, accesses)
    missed = ~((credited["bytes_missed"] == 0) & (credited["bytes_hit"] > 0))
    # Reads that began at the same moment are one: if any of them missed, none of them hit.
    missed_at_once = missed.groupby([credited["item_id"], credited["accessed_at"]]).transform("any")
    hits = credited[~missed_at_once.groupby(credited["item_id"]).cummax().astype("bool")]
    earned = hits.groupby("item_id").agg(
        n_hits=("n_reads", "sum"), bytes_saved=("bytes_hit", "sum"), first_hit_delay_s=("delay_s", "min")
    )
    rows = done.join(earned, on="item_id")
    rows["bytes_spent"] = rows["bytes"].where(rows["action"] == Action.PREFETCH, 0)
    for column in ("n_hits", "bytes_saved", "bytes_spent"):
        rows[column] = pd.to_numeric(rows[column]).fillna(0).astype("int64")
    rows["use"] = _use(rows, credited, until)
    rows["bytes_wasted"] = rows["bytes_spent"].where(rows["use"] == Use.UNREAD, 0)
    rows["first_hit_delay_s"] = rows["first_hit_delay_s"].astype("float64")
    return rows[[*OUTCOMES.column_names, "cache"]].sort_values("item_id", ignore_index=True)


def _done(receipts: pd.DataFrame) -> pd.DataFrame:
    placed = (receipts["state"] == ItemState.DONE) & receipts["action"].isin([Action.PREFETCH, Action.PIN])
    columns = ["item_id", *_KEY, "action", "bytes", "updated_at", "expires_at"]
    done = receipts.loc[placed, columns]
    return done.assign(updated_at=_utc(done["updated_at"]), expires_at=_utc(done["expires_at"]))


def _credited(done: pd.DataFrame, accesses: pd.DataFrame) -> pd.DataFrame:
    """The reads with the item each counts for, in order of time; reads before any item are left out."""
    reads = accesses.loc[accesses["cache"].notna(), [*_KEY, "accessed_at", "closed_at", *_COUNTS]]
    # A column of a few nulls, or of no rows, comes as objects.
    counts = {column: pd.to_numeric(reads[column]) for column in _COUNTS}
    began, ended = _utc(reads["accessed_at"]), _utc(reads["closed_at"])
    # The read began before `latest_start`.
    latest_start = began.where(began != began.dt.floor("s"), began + _SECOND)
    reads = reads.assign(
        **counts, accessed_at=began, latest_start=latest_start, ended=ended.where(ended > began, began)
    )
    texts = dict.fromkeys(_KEY, "object")
    pairs = reads.astype(texts).reset_index(names="read").merge(done.astype(texts), on=_KEY)
    is_later = pairs["updated_at"] < pairs["latest_start"]
    is_later &= (pairs["updated_at"] < pairs["ended"]) | (pairs["action"] == Action.PREFETCH)
    pairs = pairs[is_later].sort_values(["updated_at", "item_id"]).drop_duplicates("read", keep="last")
    delay = (pairs["accessed_at"] - pairs["updated_at"]).dt.total_seconds()
    return pairs.assign(delay_s=delay.clip(lower=0)).sort_values("accessed_at", kind="stable")


def _use(rows: pd.DataFrame, credited: pd.DataFrame, until: dt.datetime | None) -> pd.Series[str]:
    first = credited.groupby("item_id")["accessed_at"].transform("min") == credited["accessed_at"]
    fetched = credited.loc[first & (credited["bytes_missed"] > 0), "item_id"]
    was_read = rows["item_id"].isin(credited["item_id"]) & ~rows["item_id"].isin(fetched)
    is_over = rows["item_id"].isin(fetched) | (rows["expires_at"] <= (pd.NaT if until is None else until))
    return pd.Series(np.select([was_read, is_over], [Use.READ, Use.UNREAD], Use.PENDING), rows.index)


def _utc(times: pd.Series) -> pd.Series:
    return pd.to_datetime(times, utc=True).astype("datetime64[us, UTC]")
