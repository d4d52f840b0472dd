"""The journal's table, and the states of its items."""

from __future__ import annotations

import sqlalchemy as sa

STATES = ("planned", "running", "cancelling", "done", "failed", "expired", "cancelled")
CLAIMED = ("running", "cancelling")
"""A run holds the item; `cancelling`: it will not be tried again."""

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
)
