"""A cache to test against: a directory, or a real XCache on loopback, behind the same few handles."""

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

import postgres_server
import pytest
import sqlalchemy as sa
import xcache_server
from daemons import needed
from postgres_server import PostgresServer

from jobs.local_site.local.xrootd import Loopback
from prefetch.directory import DirectoryTarget
from prefetch.journal.journal import Journal
from prefetch.target import CacheTarget
from prefetch.xcache.client import XCacheTarget


@dataclasses.dataclass(frozen=True)
class World:
    """A cache under test, its origin's folder, and where its files and its events lie."""

    kind: str
    target: CacheTarget
    origin: Path
    namespace: Path
    gstream: Path

    def add(self, lfn: str, content: bytes) -> str:
        path = self.origin / lfn[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return lfn


@pytest.fixture(scope="session")
def xcache() -> Iterator[tuple[Loopback, Path]]:
    yield from needed("a real XCache", xcache_server.running())


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    # pytest's own folders are closed to the user that PostgreSQL runs as.
    with tempfile.TemporaryDirectory() as folder:
        yield from needed("a real PostgreSQL", postgres_server.running(Path(folder)))


@pytest.fixture
def empty_postgres(postgres: PostgresServer) -> str:
    """The URL of a real PostgreSQL without the journal's tables."""
    engine = sa.create_engine(postgres.url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS push_items, push_plans, push_pruned, push_leases"))
    engine.dispose()
    return postgres.url


@pytest.fixture(params=["directory", pytest.param("xcache", marks=pytest.mark.service)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "directory":
        origin = tmp_path / "origin"
        origin.mkdir()
        target = DirectoryTarget("dir", origin, tmp_path / "cache")
        return World("directory", target, origin, target.namespace, target.gstream)
    running, capture = request.getfixturevalue("xcache")
    real = XCacheTarget("xc", running.cache_url, running.namespace, capture)
    return World("xcache", real, running.origin_root, running.namespace, capture)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal(str(tmp_path / "journal.db"))
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    database: str = request.getfixturevalue("empty_postgres")
    return database


@pytest.fixture
def any_journal(url: str) -> Iterator[Journal]:
    opened = Journal(url)
    yield opened
    opened.close()
