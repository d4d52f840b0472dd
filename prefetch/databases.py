"""Databases by URL: SQLite in a file by default, PostgreSQL where several programs share one."""

import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from features.common.arrays import pages
from features.common.errors import ConfigError, ServiceError, bounded

_INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_LOOKS, _LOOK_S = 5, 0.1
_STATEMENT_PATIENCES, _IDLE_PATIENCES = 6, 2


class Database:
    """The tables of `metadata` in the database at `url`: an SQLAlchemy URL, or the path of an SQLite file.

    At the first use missing tables are made, and tables of other columns refused. `setting`: the URL's key in
    configuration; `what`: the database's name in errors; `patience_s`: how long a lock or a silent server is
    waited for. `keep_open`: SQLite's file stays open between transactions, some ten times as fast; without
    it a file that is moved or replaced is noticed. `must_have`: a table that has to be there: else it is an
    error, and nothing is made. Raises ConfigError for a URL that cannot be used, and for other columns.
    """

    def __init__(
        self,
        url: str,
        metadata: sa.MetaData,
        *,
        setting: str,
        what: str,
        patience_s: int,
        keep_open: bool = True,
        must_have: str | None = None,
    ) -> None:
        self._engine = _engine(url, setting, patience_s, keep_open)
        # SQLite: what reads first and then writes fails if another one wrote in between.
        self._reading, self._writing = (
            self._engine.execution_options(sqlite_begin=kind) for kind in ("DEFERRED", "IMMEDIATE")
        )
        self._metadata, self._what, self._setting = metadata, what, setting
        self._must_have = must_have
        self._is_made = False

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that changes nothing. Raises ServiceError if the database is unavailable."""
        with self._transaction(self._reading) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction in which no other one changes SQLite; PostgreSQL locks rows. Raises ServiceError."""
        with self._transaction(self._writing) as connection:
            yield connection

    @contextmanager
    def _transaction(self, engine: sa.Engine) -> Iterator[sa.Connection]:
        try:
            self._check_exists()
            if not self._is_made:
                with self._writing.begin() as connection:
                    self._make(connection)
                self._is_made = True
            with engine.begin() as connection:
                yield connection
        except (sa.exc.SQLAlchemyError, OSError) as error:
            # The driver's text can hold the URL with its password: only its kind is reported.
            fault = type(getattr(error, "orig", None) or error).__name__
            raise ServiceError(f"the {self._what} does not answer ({fault})") from None

    def _make(self, connection: sa.Connection) -> None:
        # Two programs may start at once.
        advisory_lock(connection, "make tables")
        self._metadata.create_all(connection)
        for table in self._metadata.sorted_tables:
            known = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
            if known != set(table.columns.keys()):
                what = f"the {self._what} was made by another version of cachecast (table {table.name})"
                raise ConfigError(self._setting, f"{what}; move it away, or name another one")

    def _check_exists(self) -> None:
        """Raise ServiceError if the database has to be there and is not, or its file is empty."""
        file = self._engine.url.database if self._engine.dialect.name == "sqlite" else None
        is_asked = self._must_have is not None or not self._is_made
        if is_asked and file is not None and _stays_empty(Path(file)):
            at = bounded(file, 200)
            raise ServiceError(f"the {self._what} at {at} has no byte: it was damaged; restore it")
        if self._must_have is None:
            return
        if file is None or Path(file).is_file():
            with self._reading.connect() as connection:
                if sa.inspect(connection).has_table(self._must_have):
                    return
        at = without_password(self._engine.url.render_as_string()) if file is None else file
        raise ServiceError(f"there is no {self._what} at {bounded(at, 200)}; correct {self._setting}")


def _stays_empty(file: Path) -> bool:
    """Whether a file has no byte for longer than another program takes that makes a database of it."""
    for _ in range(_LOOKS):
        if not file.is_file() or file.stat().st_size:
            return False
        time.sleep(_LOOK_S)
    return True


def upsert(connection: sa.Connection, table: sa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
    insert = _INSERTS[connection.dialect.name](table)
    key = [column.name for column in table.primary_key]
    rest = {c.name: insert.excluded[c.name] for c in table.columns if c.name not in key}
    for page in pages(rows):
        connection.execute(insert.on_conflict_do_update(index_elements=key, set_=rest), page)


def insert_new(connection: sa.Connection, table: sa.Table, rows: Iterable[Mapping[str, Any]]) -> int:
    """Insert the rows whose primary key is not there yet; return how many."""
    key = [column.name for column in table.primary_key]
    insert = _INSERTS[connection.dialect.name](table).on_conflict_do_nothing(index_elements=key)
    insert = insert.returning(*table.primary_key)
    return sum(len(connection.execute(insert, page).all()) for page in pages(rows))


def advisory_lock(connection: sa.Connection, what: str) -> None:
    """Hold the lock `what` until the transaction ends. SQLite has only one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(zlib.crc32(what.encode()))))


def analyze(connection: sa.Connection, table: sa.Table) -> None:
    """Let PostgreSQL update its statistics: by old ones it would sort all of a large plan for a few items."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"ANALYZE {table.name}"))


def without_password(url: str) -> str:
    """The URL without its password and options, which can hold one too; for messages."""
    if "://" not in url:
        return url
    try:
        return sa.make_url(url).set(query={}).render_as_string()
    except (sa.exc.ArgumentError, ValueError):
        return "a database"


def _engine(url: str, setting: str, patience_s: int, keep_open: bool) -> sa.Engine:
    try:
        # A path may hold what an URL takes for options.
        parsed = sa.make_url(url) if "://" in url else sa.URL.create("sqlite", database=url)
        backend = parsed.get_backend_name()
        if backend not in _INSERTS:
            raise ConfigError(setting, f"{backend} is not supported; use sqlite or postgresql")
        if backend == "postgresql":
            return sa.create_engine(parsed, pool_pre_ping=True, connect_args=_postgres_options(patience_s))
        pool = sa.QueuePool if keep_open else sa.NullPool
        engine = sa.create_engine(parsed, poolclass=pool, connect_args={"timeout": patience_s})
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError, ValueError, TypeError):
        # The cause would show the URL, and its password.
        raise ConfigError(setting, "not a database URL with an installed driver, nor a file's path") from None
    sa.event.listen(engine, "connect", _tune_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _postgres_options(patience_s: int) -> dict[str, Any]:
    # A server that vanishes silently must not hold a thread for minutes; a client that is paused or cut off
    # within a transaction must not hold the locks that others wait for.
    statement_s, idle_s = _STATEMENT_PATIENCES * patience_s, _IDLE_PATIENCES * patience_s
    options = f"-c statement_timeout={statement_s}s -c idle_in_transaction_session_timeout={idle_s}s"
    return {"connect_timeout": patience_s, "tcp_user_timeout": patience_s * 1000, "options": options}


def _tune_sqlite(connection: Any, _record: object) -> None:
    # The driver would begin transactions late, and only for some statements.
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql(f"BEGIN {connection.get_execution_options()['sqlite_begin']}")
