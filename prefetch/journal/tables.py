"""The journal's tables, and the states of its items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sqlalchemy as sa

STATES = ("planned", "running", "cancelling", "done", "failed", "expired", "cancelled")
CLAIMED = ("running", "cancelling")
"""A run holds the item; `cancelling`: it will not be tried again."""

UNDONE = ("planned", *CLAIMED)
"""Something may still be done for the item."""

PLAN, PREFILL = "plan", "prefill"
"""Kinds of plans: one that decides over the whole cache, and files that are asked for beside it."""

metadata = sa.MetaData()

items = sa.Table(
    "push_items",
    metadata,
    sa.Column("item_id", sa.String(64), primary_key=True),
    sa.Column("cache", sa.String(255), nullable=False),
    sa.Column("as_of_s", sa.BigInteger, nullable=False),
    sa.Column("did", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("action", sa.String(16), nullable=False),
    sa.Column("rank", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("cost_bytes", sa.BigInteger, nullable=False),
    sa.Column("expires_at_s", sa.BigInteger, nullable=False),
    sa.Column("source", sa.Text),
    sa.Column("kind", sa.String(16)),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("fault", sa.String(16)),
    sa.Column("confirmed_by", sa.String(32)),
    sa.Column("updated_at_s", sa.Double, nullable=False),
    sa.Column("renewed_at_s", sa.Double),
    sa.Column("owner", sa.String(255)),
    sa.Column("heartbeat_s", sa.Double),
    sa.Index("push_items_waiting", "cache", "state", "action", "attempts", "as_of_s", "rank"),
    sa.Index("push_items_of_plan", "cache", "as_of_s"),
    sa.Index("push_items_standing", "cache", "action", "expires_at_s"),
    sa.Index("push_items_changed", "cache", "updated_at_s"),
)

_held = items.c.owner.is_not(None)
sa.Index("push_items_held", items.c.owner, sqlite_where=_held, postgresql_where=_held)

pruned = sa.Table(
    "push_pruned",
    metadata,
    sa.Column("cache", sa.String(255), primary_key=True),
    sa.Column("as_of_s", sa.BigInteger, primary_key=True),
    sa.Column("n_items", sa.BigInteger, nullable=False),
    sa.Column("pruned_at_s", sa.Double, nullable=False),
)
"""Plans whose items are deleted: they must not be recorded, and carried out, a second time."""


def change_in_order(
    connection: sa.Connection, where: Iterable[sa.ColumnElement[bool]], values: Mapping[str, object]
) -> int:
    """Give the items `where` new values; return how many.

    All who change several items lock them in this order: no two of them can wait for each other.
    """
    chosen = sa.select(items.c.item_id).where(*where).order_by(items.c.item_id).with_for_update()
    change = sa.update(items).where(items.c.item_id.in_(chosen.correlate(None)))
    return connection.execute(change.values(**values)).rowcount
