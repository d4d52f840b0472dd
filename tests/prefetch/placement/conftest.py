"""A process of `cachecast serve` with three caches, and clients that ask it."""

from collections.abc import Callable, Iterator

import httpx
import pytest
from placement_server import PlacementServer, refresh, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementServer]:
    database = tmp_path_factory.mktemp("placement") / "placement.db"
    refresh(database)
    with serving(database) as started:
        for id in ("xc1", "xc2", "xf1"):
            started.beat(id)
        yield started


@pytest.fixture(scope="module")
def anyone(server: PlacementServer) -> Iterator[httpx.Client]:
    with server.client(None) as client:
        yield client


@pytest.fixture(scope="module")
def operator(server: PlacementServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def get(anyone: httpx.Client) -> Callable[..., httpx.Response]:
    return anyone.get
