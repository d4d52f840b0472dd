"""The current plan of each cache: what its pushes may still carry out."""

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc

from features.common.times import DAY_S, as_of_label
from features.schema import CONTENTS, PLANS, RECEIPTS
from jobs.ground.store.commits import Key
from jobs.ground.store.tables import Snapshot, Tables
from models.serving.versions import ModelVersion
from prefetch.actions import ItemState

_GIVEN_UP = pa.array([ItemState.FAILED, ItemState.CANCELLED, ItemState.CANCELLING])


def current_plan(tables: Tables, cache: str, as_of_s: int) -> pa.Table:
    """The items of a cache's newest plan of the last day, if any, and of prefills since; one row per file.

    Of a file in several of them, the latest item counts. Expired items are left out, and so are items that
    failed or were cancelled.
    """
    plans = tables.head(PLANS)
    keys = _partitions_of_last_day(plans, cache, as_of_s)
    inventories = tables.head(CONTENTS).partitions
    # A plan writes the cache's inventory, a prefill does not: the newest plan, and the prefills since.
    planned = [position for position, key in enumerate(keys) if key in inventories]
    keys = keys[planned[-1] if planned else 0 :]
    items = plans.rows_of(keys[-1:])
    for key in reversed(keys[:-1]):
        older = plans.rows_of([key])
        is_replaced = pc.is_in(older["did"], value_set=items["did"].combine_chunks())
        items = pa.concat_tables([items, older.filter(pc.invert(is_replaced))])
    rows = tables.head(RECEIPTS).rows_of(keys, ["item_id", "state"])
    given_up = rows.filter(pc.is_in(rows["state"], value_set=_GIVEN_UP))["item_id"].combine_chunks()
    is_given_up = pc.is_in(items["item_id"], value_set=given_up)
    is_valid = pc.greater(items["expires_at"], dt.datetime.fromtimestamp(as_of_s, dt.UTC))
    return items.filter(pc.and_(pc.invert(is_given_up), is_valid))


def acting_plan(tables: Tables, cache: str, as_of_s: int, champion: ModelVersion | None) -> pa.Table:
    """The items of `current_plan` that pushes may carry out: of `champion`, of no model, or pushed before."""
    plan, receipts = current_plan(tables, cache, as_of_s), tables.head(RECEIPTS)
    pushed = receipts.rows_of(_partitions_of_last_day(receipts, cache, as_of_s), ["item_id"])
    acts = pc.is_in(plan["item_id"], value_set=pushed["item_id"].combine_chunks())
    acts = pc.or_(acts, pc.invert(pc.coalesce(plan["needs_model"], pc.is_valid(plan["model_version"]))))
    if champion is not None and champion.digest is not None:
        of_champion = pc.and_(
            pc.equal(plan["model_version"], champion.version), pc.equal(plan["model_digest"], champion.digest)
        )
        acts = pc.or_(acts, pc.fill_null(of_champion, fill_value=False))
    return plan.filter(acts)


def _partitions_of_last_day(snapshot: Snapshot, cache: str, as_of_s: int) -> list[Key]:
    """The cache's partitions of the 24 hours up to `as_of_s`, oldest first."""
    since, until = as_of_label(as_of_s - DAY_S), as_of_label(as_of_s)
    keys = [key for key in snapshot.partitions if key[2] == cache and since < key[1] <= until]
    return sorted(keys, key=lambda key: key[1])
