"""The placement service on a real PostgreSQL: two of them on one database, and the database away."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from daemons import needed
from placement_server import PlacementServer, eventually, refresh, serving
from postgres_server import PostgresServer, running

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    # pytest's own folders are closed to the user that PostgreSQL runs as.
    with tempfile.TemporaryDirectory() as folder:
        yield from needed("a real PostgreSQL", running(Path(folder)))


def told(server: PlacementServer, path: str) -> Any:
    return httpx.get(f"{server.url}{path}", timeout=90).json()


def test_two_services_agree_and_outlive_their_database(postgres: PostgresServer) -> None:
    refresh(postgres.url)
    with serving(postgres.url) as one, serving(postgres.url) as two:
        for id in ("a", "b", "c"):
            (one if id == "b" else two).beat(id)
        eventually(lambda: len(told(one, "/serverRanges").get("EDGE", {}).get("servers", [])) == 3)
        eventually(lambda: told(one, "/serverRanges") == told(two, "/serverRanges"))
        with one.client() as operator:
            operator.put("/ds/reassign/cms:/P/E/HOT/other").raise_for_status()
        eventually(lambda: told(two, "/ds/5/cms:/P/E/HOT") == ["other"])
        with two.client() as operator:
            operator.delete("/liveness/EDGE/c").raise_for_status()
        eventually(lambda: len(told(one, "/serverRanges")["EDGE"]["servers"]) == 2)
        ranges = told(one, "/serverRanges")
        postgres.stop()
        try:
            eventually(lambda: told(one, "/health")["status"] == "degraded")
            assert "not-shown" not in told(one, "/health")["database"]
            assert told(one, "/serverRanges") == ranges
            assert told(one, "/ds/5/cms:/P/E/AOD") == ["EDGE"]
            one.beat("d")
            assert len(told(one, "/serverRanges")["EDGE"]["servers"]) == 3
            with one.client() as operator:
                refused = operator.put("/serve", json={"client": "T2", "cache_site": "EDGE"})
            assert refused.status_code == 503
        finally:
            postgres.start()
        eventually(lambda: told(one, "/health")["status"] == "ok")
        eventually(lambda: told(one, "/serverRanges") == told(two, "/serverRanges"))
        assert len(told(two, "/serverRanges")["EDGE"]["servers"]) == 3
    with serving(postgres.url) as again:
        assert len(told(again, "/serverRanges")["EDGE"]["servers"]) == 3
        assert told(again, "/ds/5/cms:/P/E/HOT") == ["other"]
