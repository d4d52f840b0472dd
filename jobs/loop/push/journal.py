"""The push journal and the tables: receipts, pruning, and a new journal in place of a lost one."""

import dataclasses
import datetime as dt
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import pages
from features.common.errors import ConflictError, ServiceError
from features.common.times import as_of_label, day_label, parse_as_of
from features.schema import PLANS, RECEIPTS, arrow_schema
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables, repeated_on_conflict
from prefetch.actions import Action, ItemState
from prefetch.databases import without_password
from prefetch.journal.journal import Journal

_PARTS = ("", "-wal", "-shm")  # of an SQLite database
_ROWS_AT_ONCE = 5000


@dataclasses.dataclass(frozen=True)
class NewJournal:
    """A journal that was made. `set_aside`: where the file is now that was there before."""

    journal: str
    set_aside: str | None
    pins_forgotten: dict[str, int]


def check_known(settings: Settings, tables: Tables, journal: Journal, cache: str, *, now_s: float) -> None:
    """Raise ServiceError if receipts show that plans of the cache were pushed, and the journal has none."""
    # Those of the future, which a wrong clock wrote, would stay newer than any journal that is made.
    known = tables.newest(RECEIPTS, owner=cache, until=as_of_label(int(now_s))).partitions
    newest = next((key[1] for key in known), None)
    if newest is None or now_s - parse_as_of(newest) > settings.push.keep:
        return
    given_up_s = journal.pruning.given_up_s(cache) or 0.0
    if journal.reports.oldest_s(cache) is None and given_up_s < parse_as_of(newest):
        raise ServiceError(
            f"the push journal has no plan of cache {cache!r}, and there are receipts of {newest}: it is "
            "a new one, or another; restore the one that was there, or forget its pins by "
            "`cachecast push new-journal`"
        )


def new_journal(settings: Settings, *, now_s: float) -> NewJournal:
    """Set a lost journal's file aside, and make another. Raises ConflictError if it is none: it has plans."""
    url, tables = settings.push.journal, Tables.of(settings)
    set_aside = _set_aside(url, f"{url}.lost-{as_of_label(int(now_s)).replace(':', '')}")
    with closing(Journal(url)) as journal:
        for cache in sorted({key[2] for key in tables.head(RECEIPTS).partitions}):
            journal.pruning.give_up(cache, now_s=now_s)
    return NewJournal(without_password(url), set_aside, _pins(tables, now_s=now_s, keep_s=settings.push.keep))


def _set_aside(url: str, to: str) -> str | None:
    """Rename a journal's file that cannot be read; None: it can, and has no plan, or it is no file."""
    try:
        with closing(Journal(url)) as journal:
            n_items = sum(journal.reports.counts().values())
    except ServiceError:
        if "://" in url or not Path(url).exists() or not _is_damaged(Path(url)):
            raise
        for part in _PARTS:
            if Path(url + part).exists():
                Path(url + part).rename(to + part)
        return to
    if n_items:
        raise ConflictError(
            f"the push journal at {without_password(url)} can be read and has {n_items} items: keep it"
        )
    return None


def _is_damaged(file: Path) -> bool:
    """Whether a file is no database: one that is locked, or another account's, may be a good one."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("SELECT * FROM sqlite_schema").fetchall()
    except sqlite3.OperationalError:
        return False
    except sqlite3.DatabaseError:
        return True
    return not file.stat().st_size


def _pins(tables: Tables, *, now_s: float, keep_s: float) -> dict[str, int]:
    """The pins by cache that were done and have not expired, by plans and receipts."""
    days = {"since": day_label(int(now_s - keep_s)), "until": day_label(int(now_s))}
    done = tables.head(RECEIPTS).rows(["item_id", "action", "state"], **days)
    is_done = pc.equal(done["state"], ItemState.DONE.value)
    pinned = done.filter(pc.and_(is_done, pc.equal(done["action"], Action.PIN.value)))["item_id"]
    plans = tables.head(PLANS).rows(["item_id", "expires_at", "cache"], **days)
    stands = pc.greater(plans["expires_at"], pa.scalar(dt.datetime.fromtimestamp(now_s, dt.UTC)))
    is_pin = pc.is_in(plans["item_id"], value_set=pinned.combine_chunks())
    return dict(Counter(plans.filter(pc.and_(is_pin, stands))["cache"].to_pylist()))


def prune(tables: Tables, journal: Journal, cache: str, *, now_s: float, keep_s: float) -> None:
    """Delete a cache's plans that were settled `keep_s` ago.

    The receipts of a plan are written first: if the table is unavailable, nothing is deleted. Ages are
    counted from the newest plan at the latest, so that a clock that is a year ahead does not delete the
    current pins.
    """
    newest_s = journal.reports.newest_s(cache, now_s=now_s)
    if newest_s is None:
        return
    now_s = min(now_s, newest_s)
    before_s = now_s - keep_s
    for as_of_s in journal.pruning.prunable(cache, before_s=before_s, now_s=now_s):
        write_receipts(tables, journal, cache, as_of_s)
        journal.pruning.forget(cache, as_of_s, before_s=before_s, now_s=now_s)


@repeated_on_conflict
def write_receipts(tables: Tables, journal: Journal, cache: str, as_of_s: int) -> None:
    """Replace the receipts of one plan by those in the journal; those of a pruned plan stay as they are.

    Raises ConflictError if other pushers of the plan commit first, time after time; the journal is newer.
    """
    base = tables.head(RECEIPTS)  # before the rows are read, as others may write newer ones meanwhile
    rows = _in_journal(journal, cache, as_of_s)
    # Checked after the rows were read: if the plan is pruned meanwhile, some of them may be missing.
    if journal.pruning.pruned_at_s(cache, as_of_s) is None:
        tables.replace_partition(RECEIPTS, rows, MomentKey.at(as_of_s, cache), base=base)


def _in_journal(journal: Journal, cache: str, as_of_s: int) -> pa.Table:
    """The receipts of one plan as columns: as Python rows, a million of them would take some GB."""
    schema = arrow_schema(RECEIPTS)
    batches = (
        pa.RecordBatch.from_pylist(rows, schema)
        for rows in pages(journal.reports.receipts(cache, as_of_s), _ROWS_AT_ONCE)
    )
    return pa.Table.from_batches(batches, schema)
