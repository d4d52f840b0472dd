"""What outlives the service: its tables read and written, and nothing decided."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import sqlalchemy as sa

from prefetch import databases
from prefetch.databases import upsert
from prefetch.placement import tables
from prefetch.placement.fleet import Server

KEPT_SNAPSHOTS = 2
_PATIENCE_S = 5


@dataclasses.dataclass(frozen=True)
class Pending:
    """What the service has to store, by site and id, and the number of the refresh it has."""

    heard: Mapping[tuple[str, str], Server]
    dropped: Mapping[tuple[str, str], Server]
    after: int


@dataclasses.dataclass(frozen=True)
class Refresh:
    """What a refresh job wrote: the snapshot's bytes, and plans as compressed JSON by cache."""

    number: int
    snapshot: bytes
    plans: Mapping[str, bytes]


@dataclasses.dataclass(frozen=True)
class Stored:
    """The database's content; `refresh` only where it is newer than asked for."""

    servers: tuple[Server, ...]
    serves: Mapping[str, str]
    reassigned: Mapping[str, tuple[str, ...]]
    refresh: Refresh | None


class Database:
    """The tables at `url`. Every method raises ServiceError where the database is away."""

    def __init__(self, url: str) -> None:
        """Nothing is opened yet. Raises ConfigError."""
        self._database = databases.Database(
            url,
            tables.metadata,
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
                mine = (tables.servers.c.site == site, tables.servers.c.id == id)
                connection.execute(sa.delete(tables.servers).where(*mine))
            upsert(connection, tables.servers, [dataclasses.asdict(one) for one in pending.heard.values()])
            return Stored(
                tuple(Server(**row) for row in connection.execute(sa.select(tables.servers)).mappings()),
                {row.client: row.cache_site for row in connection.execute(sa.select(tables.serves))},
                {
                    row.dataset: tuple(json.loads(row.sites))
                    for row in connection.execute(sa.select(tables.reassigned))
                },
                _refresh(connection, pending.after),
            )

    def serve(self, client: str, cache_site: str | None) -> None:
        """Let a client be served by a site, or by none."""
        with self._database.writing() as connection:
            if cache_site is None:
                connection.execute(sa.delete(tables.serves).where(tables.serves.c.client == client))
            else:
                upsert(connection, tables.serves, [{"client": client, "cache_site": cache_site}])

    def reassign(self, dataset: str, sites: tuple[str, ...] | None) -> None:
        """Put a dataset at sites by hand, or (None) take that back."""
        with self._database.writing() as connection:
            if sites is None:
                mine = tables.reassigned.c.dataset == dataset
                connection.execute(sa.delete(tables.reassigned).where(mine))
            else:
                upsert(connection, tables.reassigned, [{"dataset": dataset, "sites": json.dumps(sites)}])

    def refresh(self, snapshot: bytes, as_of: str, plans: Mapping[str, bytes]) -> int:
        """Store a new snapshot and its plans in place of the last; return its number."""
        with self._database.writing() as connection:
            insert = sa.insert(tables.snapshots).values(as_of=as_of, payload=snapshot)
            inserted = connection.execute(insert).inserted_primary_key
            assert inserted is not None
            number = int(inserted[0])
            old = tables.snapshots.c.id <= number - KEPT_SNAPSHOTS
            connection.execute(sa.delete(tables.snapshots).where(old))
            connection.execute(sa.delete(tables.plans))
            rows = [{"cache": cache, "as_of": as_of, "payload": plan} for cache, plan in plans.items()]
            upsert(connection, tables.plans, rows)
        return number


def _refresh(connection: sa.Connection, after: int) -> Refresh | None:
    newest = connection.scalar(sa.select(sa.func.max(tables.snapshots.c.id)))
    if newest is None or newest <= after:
        return None
    query = sa.select(tables.snapshots.c.payload).where(tables.snapshots.c.id == newest)
    plans = {row.cache: row.payload for row in connection.execute(sa.select(tables.plans))}
    return Refresh(newest, connection.execute(query).scalar_one(), plans)
