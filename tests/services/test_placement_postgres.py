"""The placement service on a real PostgreSQL: two of them on one database, and the database away."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemons import needed
from placement_server import PlacementServer, refresh, serving
from postgres_server import PostgresServer, running
from waiting import eventually

pytestmark = pytest.mark.service


@pytest.fixture
def postgres(folder_of_all: Path) -> Iterator[PostgresServer]:
    yield from needed("a real PostgreSQL", running(folder_of_all))


def answer_of(server: PlacementServer, path: str) -> Any:
    return server.get(path).json()


def test_two_services_agree_and_outlive_their_database(postgres: PostgresServer) -> None:
    refresh(postgres.url)
    with serving(postgres.url) as first, serving(postgres.url) as second:
        for id in ("a", "b", "c"):
            (first if id == "b" else second).beat(id)
        assert eventually(
            lambda: len(answer_of(first, "/serverRanges").get("EDGE", {}).get("servers", [])) == 3
        )
        assert eventually(lambda: answer_of(first, "/serverRanges") == answer_of(second, "/serverRanges"))
        with first.client() as operator:
            operator.put("/ds/reassign/cms:/P/E/HOT/other").raise_for_status()
        assert eventually(lambda: answer_of(second, "/ds/5/cms:/P/E/HOT") == ["other"])
        with second.client() as operator:
            operator.delete("/liveness/EDGE/c").raise_for_status()
        assert eventually(lambda: len(answer_of(first, "/serverRanges")["EDGE"]["servers"]) == 2)
        ranges = answer_of(first, "/serverRanges")
        postgres.stop()
        try:
            assert eventually(lambda: answer_of(first, "/health")["status"] == "degraded")
            assert "not-shown" not in answer_of(first, "/health")["database"]
            assert answer_of(first, "/serverRanges") == ranges
            assert answer_of(first, "/ds/5/cms:/P/E/AOD") == ["EDGE"]
            first.beat("d")
            assert len(answer_of(first, "/serverRanges")["EDGE"]["servers"]) == 3
            with first.client() as operator:
                refused = operator.put("/serve", json={"client": "T2", "cache_site": "EDGE"})
            assert refused.status_code == 503
        finally:
            postgres.start()
        assert eventually(lambda: answer_of(first, "/health")["status"] == "ok")
        assert eventually(lambda: answer_of(first, "/serverRanges") == answer_of(second, "/serverRanges"))
        assert len(answer_of(second, "/serverRanges")["EDGE"]["servers"]) == 3
    with serving(postgres.url) as again:
        assert len(answer_of(again, "/serverRanges")["EDGE"]["servers"]) == 3
        assert answer_of(again, "/ds/5/cms:/P/E/HOT") == ["other"]
