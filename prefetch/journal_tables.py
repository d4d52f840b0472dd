"""The journal's table, and what differs between the databases that hold it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from features.errors import ConfigError

_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_BUSY_S = 60

items = sa.Table(
    "push_items",
    sa.MetaData(),
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
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("confirmed_by", sa.String(32)),
    sa.Column("updated_at_s", sa.Double, nullable=False),
    sa.Column("renewed_at_s", sa.Double),
    sa.Column("owner", sa.String(255)),
    sa.Column("heartbeat_s", sa.Double),
    sa.Index("push_items_waiting", "cache", "state", "action", "attempts", "as_of_s", "rank"),
)


def engine_for(url: str) -> sa.Engine:
    """An engine for `url`, or for the SQLite file at path `url`. Raises ConfigError."""
    try:
        parsed = sa.make_url(url if "://" in url else f"sqlite:///{url}")
        if parsed.get_backend_name() not in _INSERTS:
            raise ConfigError(
                "push.journal", f"{parsed.get_backend_name()} is not supported; use sqlite or postgresql"
            )
        engine = sa.create_engine(parsed)
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError) as error:
        raise ConfigError(
            "push.journal", "not a database URL with an installed driver, nor a file's path"
        ) from error
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _tune_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def insert_ignoring(dialect: str) -> Any:
    """An INSERT that leaves rows whose item_id is known untouched."""
    return _INSERTS[dialect](items).on_conflict_do_nothing(index_elements=["item_id"])


def write_lock(connection: sa.Connection) -> None:
    """From here to the end of the transaction no other run writes. PostgreSQL locks rows instead."""
    if connection.dialect.name == "sqlite":
        # A transaction that reads first and then writes fails if another wrote in between.
        connection.execute(sa.update(items).where(sa.false()).values(owner=None))


def _tune_sqlite(connection: Any, _record: object) -> None:
    # The driver would begin transactions late, and only for some statements.
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", f"busy_timeout={_BUSY_S * 1000}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN")
