"""What outlives the service: its tables, read and written, and nothing decided."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import sqlalchemy as sa

from prefetch import databases
from prefetch.databases import upsert
from prefetch.placement.fleet import CacheServer

KEPT_SNAPSHOTS = 2
_PATIENCE_S = 5
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
_plans = sa.Table(
    "placement_plans",
    _metadata,
    sa.Column("cache", _NAME, primary_key=True),
    sa.Column("as_of", sa.String(32), nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
)


@dataclasses.dataclass(frozen=True)
class Pending:
    """What the service has to store, by site and id; `after`: the number of the refresh it has."""

    heard: Mapping[tuple[str, str], CacheServer]
    dropped: Mapping[tuple[str, str], CacheServer]
    after: int


@dataclasses.dataclass(frozen=True)
class Refresh:
    """A refresh as its job wrote it: the snapshot's bytes, and plans as compressed JSON by cache."""

    number: int
    snapshot: bytes
    plans: Mapping[str, bytes]


@dataclasses.dataclass(frozen=True)
class Stored:
    """The content of the database; `refresh`: None if there is none newer than asked for."""

    servers: tuple[CacheServer, ...]
    serves: Mapping[str, str]
    reassigned: Mapping[str, tuple[str, ...]]
    refresh: Refresh | None


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
        """Give back its connections."""
        self._database.close()

    def sync(self, pending: Pending) -> Stored:
        """Store what is pending, and read all there is."""
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
        """Let a client site be served by the caches of a site; None: by its own."""
        with self._database.writing() as connection:
            if cache_site is None:
                connection.execute(sa.delete(_serves).where(_serves.c.client == client))
            else:
                upsert(connection, _serves, [{"client": client, "cache_site": cache_site}])

    def reassign(self, dataset: str, sites: tuple[str, ...] | None) -> None:
        """Place a dataset at sites by hand; None: by its popularity again."""
        with self._database.writing() as connection:
            if sites is None:
                mine = _reassigned.c.dataset == dataset
                connection.execute(sa.delete(_reassigned).where(mine))
            else:
                upsert(connection, _reassigned, [{"dataset": dataset, "sites": json.dumps(sites)}])

    def refresh(self, snapshot: bytes, as_of: str, plans: Mapping[str, bytes]) -> int:
        """Store a new snapshot and its plans in place of the last; return its number."""
        with self._database.writing() as connection:
            insert = sa.insert(_snapshots).values(as_of=as_of, payload=snapshot)
            inserted = connection.execute(insert).inserted_primary_key
            assert inserted is not None
            number = int(inserted[0])
            old = _snapshots.c.id <= number - KEPT_SNAPSHOTS
            connection.execute(sa.delete(_snapshots).where(old))
            connection.execute(sa.delete(_plans))
            rows = [{"cache": cache, "as_of": as_of, "payload": plan} for cache, plan in plans.items()]
            upsert(connection, _plans, rows)
        return number


def _refresh(connection: sa.Connection, after: int) -> Refresh | None:
    newest = connection.scalar(sa.select(sa.func.max(_snapshots.c.id)))
    if newest is None or newest <= after:
        return None
    query = sa.select(_snapshots.c.payload).where(_snapshots.c.id == newest)
    plans = {row.cache: row.payload for row in connection.execute(sa.select(_plans))}
    return Refresh(newest, connection.execute(query).scalar_one(), plans)
