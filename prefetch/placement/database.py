"""What outlives the service: its tables, and the exchange that keeps memory and tables in step."""

import asyncio
import contextlib
import dataclasses
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import sqlalchemy as sa

from features.common.errors import CachecastError, InputError, NotDueError
from prefetch import databases
from prefetch.databases import advisory_lock, upsert
from prefetch.placement.fleet import CacheServer, Pending, Refresh, Stored
from prefetch.placement.service import Service
from prefetch.placement.snapshot import Snapshot, load

KEPT_SNAPSHOTS = 2
_PATIENCE_S = 5
_log = logging.getLogger(__name__)
_NAME = sa.String(255)

_metadata = sa.MetaData()

_servers = sa.Table(
    "placement_servers",
    _metadata,
    sa.Column("site", _NAME, primary_key=True),
    sa.Column("id", _NAME, primary_key=True),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("size", sa.Double, nullable=False),
    sa.Column("seen_at_s", sa.Double, nullable=False),
)
_serves = sa.Table(
    "placement_serves",
    _metadata,
    sa.Column("client", _NAME, primary_key=True),
    sa.Column("cache_site", _NAME, nullable=False),
)
_reassigned = sa.Table(
    "placement_reassigned",
    _metadata,
    sa.Column("dataset", sa.Text, primary_key=True),
    sa.Column("sites", sa.Text, nullable=False),
)
_snapshots = sa.Table(
    "placement_snapshots",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("as_of", sa.String(32), nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)


class PlacementTables:
    """The tables at `url`. Every method raises ServiceError if the database is unavailable."""

    def __init__(self, url: str) -> None:
        """Nothing is opened yet. Raises ConfigError."""
        self._database = databases.Database(
            url,
            _metadata,
            setting="serve.database",
            what="placement database",
            patience_s=_PATIENCE_S,
            keep_open=False,
        )

    def close(self) -> None:
        self._database.close()

    def sync(self, pending: Pending) -> Stored:
        with self._database.writing() as connection:
            for site, id in pending.dropped:
                mine = (_servers.c.site == site, _servers.c.id == id)
                connection.execute(sa.delete(_servers).where(*mine))
            upsert(connection, _servers, [dataclasses.asdict(server) for server in pending.heard.values()])
            return Stored(
                tuple(CacheServer(**row) for row in connection.execute(sa.select(_servers)).mappings()),
                {row.client: row.cache_site for row in connection.execute(sa.select(_serves))},
                {
                    row.dataset: tuple(json.loads(row.sites))
                    for row in connection.execute(sa.select(_reassigned))
                },
                _refresh(connection, pending.after),
            )

    def serve(self, client: str, cache_site: str | None) -> None:
        self._put(_serves, client, cache_site)

    def reassign(self, dataset: str, sites: tuple[str, ...] | None) -> None:
        self._put(_reassigned, dataset, None if sites is None else json.dumps(sites))

    def _put(self, table: sa.Table, key: str, value: str | None) -> None:
        """Set the value of a key in a table of two columns; None: delete it."""
        key_column, value_column = table.columns.keys()
        with self._database.writing() as connection:
            if value is None:
                connection.execute(sa.delete(table).where(table.c[key_column] == key))
            else:
                upsert(connection, table, [{key_column: key, value_column: value}])

    def refresh(self, snapshot: bytes, as_of: str, *, now: str | None = None) -> int:
        """Store a new snapshot in place of the last; return its number.

        With `now`, raises NotDueError if the last one is of a later decision time that has come by then.
        """
        with self._database.writing() as connection:
            advisory_lock(connection, "placement refresh")
            last = connection.scalar(sa.select(_snapshots.c.as_of).order_by(_snapshots.c.id.desc()).limit(1))
            if now is not None and last is not None and as_of < last <= now:
                raise NotDueError(f"datasets are placed as of {last} meanwhile, which is later than {as_of}")
            insert = sa.insert(_snapshots).values(as_of=as_of, payload=snapshot)
            inserted = connection.execute(insert).inserted_primary_key
            assert inserted is not None
            number = int(inserted[0])
            old = _snapshots.c.id <= number - KEPT_SNAPSHOTS
            connection.execute(sa.delete(_snapshots).where(old))
        return number


def _refresh(connection: sa.Connection, after: int) -> Refresh | None:
    newest = connection.scalar(sa.select(sa.func.max(_snapshots.c.id)))
    if newest is None or newest == after:  # an earlier one is the last of a restored database
        return None
    query = sa.select(_snapshots.c.payload).where(_snapshots.c.id == newest)
    return Refresh(newest, connection.execute(query).scalar_one())


TICK_S = 0.5


class Synchroniser:
    """Keeps a service and its database in step, every `every_s`; `faults`: failures by type of error."""

    def __init__(self, service: Service, database: PlacementTables, *, every_s: float) -> None:
        self._service, self._database, self._every_s = service, database, every_s
        self._one_at_a_time = asyncio.Lock()
        self._fault: str | None = "the placement database was not read yet"
        self._damage: str | None = None
        self._damaged_refresh = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.faults: Counter[str] = Counter()
        self.synced_at_s: float | None = None

    @property
    def fault(self) -> str | None:
        """Why memory and database are out of step; None: they are not."""
        ended = any(task.done() for task in self._tasks)
        return "the service's upkeep has ended; restart it" if ended else self._fault

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Restore what is stored, and keep in step until the block ends; then store the rest."""
        await self.sync()
        self._tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._sync())]
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            for task in self._tasks:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await self.sync()
            self._database.close()

    async def sync(self) -> None:
        """Store and read once. A failure is reported in `fault`, counted in `faults`, and loses nothing."""
        async with self._one_at_a_time:
            pending = self._service.pending()
            try:
                # The damaged refresh is not asked for again: reading it again mends nothing.
                newer = dataclasses.replace(pending, after=self._damaged_refresh or pending.after)
                stored, snapshot = await asyncio.to_thread(self._exchange, newer)
            except asyncio.CancelledError:
                self._service.give_back(pending)
                raise
            except Exception as error:  # noqa: BLE001  whatever fails, answers go on; it is stated and counted
                self._service.give_back(pending)
                kind = type(error).__name__
                is_foreseen = isinstance(error, CachecastError)
                self._fault = str(error) if is_foreseen else f"storing failed ({kind})"
                if not (is_foreseen or self.faults[kind]):
                    _log.exception("storing failed as no code foresaw; said once for each type of error")
                self.faults[kind] += 1
                return
            self._service.take(stored, snapshot)
            self._fault, self.synced_at_s = self._damage, self._service.now_s()

    async def change(self, make: Callable[[PlacementTables | Service], None]) -> None:
        """Make an operator's change: first in the database, then in memory. Raises ServiceError."""
        async with self._one_at_a_time:
            await asyncio.to_thread(make, self._database)
            make(self._service)

    def _exchange(self, pending: Pending) -> tuple[Stored, Snapshot | None]:
        stored = self._database.sync(pending)
        if stored.refresh is None:
            return stored, None
        try:
            snapshot = load(stored.refresh.snapshot)
        except InputError as error:
            # Heartbeats and operators' changes are taken over all the same; the placements before it stay.
            self._damage, self._damaged_refresh = str(error), stored.refresh.number
            self.faults[type(error).__name__] += 1
            return stored, None
        self._damage, self._damaged_refresh = None, 0
        return stored, snapshot

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._service.tick()

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self.sync()
