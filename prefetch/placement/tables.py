"""The service's tables, and the engine that reaches them: SQLite by path, or a database by URL."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from features.errors import ConfigError

_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_PATIENCE_S = 5
# A server that vanishes without a word must not hold a thread for minutes.
_POSTGRES = {
    "connect_timeout": _PATIENCE_S,
    "tcp_user_timeout": _PATIENCE_S * 1000,
    "options": f"-c statement_timeout={6 * _PATIENCE_S * 1000}",
}
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
homes = sa.Table(
    "placement_homes",
    metadata,
    sa.Column("site", _NAME, primary_key=True),
    sa.Column("layout", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
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


def engine_for(url: str) -> sa.Engine:
    """An engine for `url`, or for the SQLite file at path `url`; not opened yet. Raises ConfigError."""
    try:
        parsed = sa.make_url(url if "://" in url else f"sqlite:///{url}")
        backend = parsed.get_backend_name()
        if backend not in _INSERTS:
            raise ConfigError("serve.database", f"{backend} is not supported; use sqlite or postgresql")
        if backend == "postgresql":
            return sa.create_engine(parsed, pool_pre_ping=True, connect_args=_POSTGRES)
        # A connection of its own each time notices when the file is moved or replaced.
        engine = sa.create_engine(parsed, poolclass=sa.NullPool, connect_args={"timeout": _PATIENCE_S})
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError) as error:
        raise ConfigError(
            "serve.database", "not a database URL with an installed driver, nor a file's path"
        ) from error
    sa.event.listen(engine, "connect", _tune_sqlite)
    return engine


def put(connection: sa.Connection, table: sa.Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows, or replace those with the same primary key."""
    if not rows:
        return
    insert = _INSERTS[connection.dialect.name](table)
    key = [column.name for column in table.primary_key]
    rest = {c.name: insert.excluded[c.name] for c in table.columns if c.name not in key}
    connection.execute(insert.on_conflict_do_update(index_elements=key, set_=rest), rows)


def _tune_sqlite(connection: Any, _record: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
