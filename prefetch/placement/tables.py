"""The service's tables."""

from __future__ import annotations

import sqlalchemy as sa

_NAME = sa.String(255)

metadata = sa.MetaData()

servers = sa.Table(
    "placement_servers",
    metadata,
    sa.Column("site", _NAME, primary_key=True),
    sa.Column("id", _NAME, primary_key=True),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("size", sa.Double, nullable=False),
    sa.Column("seen_at_s", sa.Double, nullable=False),
)
serves = sa.Table(
    "placement_serves",
    metadata,
    sa.Column("client", _NAME, primary_key=True),
    sa.Column("cache_site", _NAME, nullable=False),
)
reassigned = sa.Table(
    "placement_reassigned",
    metadata,
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("sites", sa.Text, nullable=False),
)
snapshots = sa.Table(
    "placement_snapshots",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("as_of", sa.String(32), nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
plans = sa.Table(
    "placement_plans",
    metadata,
    sa.Column("cache", _NAME, primary_key=True),
    sa.Column("as_of", sa.String(32), nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
)
