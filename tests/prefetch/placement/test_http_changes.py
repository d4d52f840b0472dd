"""What caches and operators change over real HTTP, and what nobody may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from placement_server import OPERATOR, PlacementServer, token_of

Get = Callable[..., httpx.Response]


def test_a_client_is_served_by_the_site_that_operators_say(operator: httpx.Client) -> None:
    asked = {"client": "TIER2", "filename": "f"}
    assert operator.post("/prefix", json=asked).text == ""
    reply = operator.put("/serve", json={"client": "TIER2", "cache_site": "FAR"})
    assert reply.status_code == 200
    assert operator.get("/serve").json() == {"TIER2": "FAR"}
    assert operator.post("/prefix", json=asked).text == "xf1:1094"
    assert operator.put("/serve", json={"client": "TIER2", "cache_site": "NONE"}).status_code == 400
    operator.request("DELETE", "/serve", json={"client": "TIER2"}).raise_for_status()
    assert operator.get("/serve").json() == {}


def test_a_dataset_is_placed_by_hand_and_back(operator: httpx.Client, get: Get) -> None:
    reply = operator.put("/ds/reassign/cms:/P/E/AOD/FAR,EDGE")
    assert (reply.status_code, reply.text) == (200, "Done.")
    assert get("/ds/5/cms:/P/E/AOD").json() == ["FAR", "EDGE"]
    assert get("/ds/5/cms:/P/E/AOD%23block").json() == ["FAR", "EDGE"]
    operator.put("/ds/reassign/cms:/P/E/AOD/other").raise_for_status()
    assert get("/ds/5/cms:/P/E/AOD").json() == ["other"]
    for wrong in ("NONE", "FAR,NONE", "a b", ","):
        assert operator.put(f"/ds/reassign/cms:/P/E/AOD/{wrong}").status_code == 400
    operator.delete("/ds/reassign/cms:/P/E/AOD").raise_for_status()
    assert get("/ds/5/cms:/P/E/AOD").json() == ["EDGE"]


CHANGES: list[tuple[str, str, Any]] = [
    ("POST", "/liveness", {"id": "xc3"}),
    ("PUT", "/serve", {"client": "EDGE", "cache_site": "FAR"}),
    ("DELETE", "/serve", {"client": "EDGE"}),
    ("PUT", "/ds/reassign/cms:/P/E/AOD/FAR", None),
    ("DELETE", "/ds/reassign/cms:/P/E/AOD", None),
    ("DELETE", "/liveness/EDGE/xc1", None),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=lambda value: str(value)[:20])
def test_changes_need_the_right_token(
    anyone: httpx.Client, get: Get, method: str, path: str, body: Any
) -> None:
    before = get("/serverRanges").content, get("/ds/5/cms:/P/E/AOD").content, get("/serve").content
    wrong = [None, "Bearer", "Bearer wrong", f"Basic {OPERATOR}", "Bearer constructor", OPERATOR]
    if path != "/liveness":
        wrong.append(f"Bearer {token_of('xc1')}")
    for header in wrong:
        headers = {} if header is None else {"authorization": header}
        reply = anyone.request(method, path, json=body, headers=headers)
        assert reply.status_code == 401, header
        assert reply.headers["www-authenticate"] == "Bearer"
    assert before == (get("/serverRanges").content, get("/ds/5/cms:/P/E/AOD").content, get("/serve").content)


@pytest.mark.parametrize(
    "body",
    [
        {"id": "evil"},
        {"id": ""},
        {"id": "x" * 65},
        {"id": "x\n"},
        {"id": "xc3", "site": "PIC"},
        {"id": "xc3", "site": "a/b"},
        {"id": "xc3", "address": "evil.example.org:1094"},
        {"id": "xc3", "address": "xc3"},
        {"id": "xc3", "address": "evil/x:1094"},
        {"site": "EDGE"},
    ],
    ids=str,
)
def test_a_heartbeat_that_is_none_of_a_configured_cache_changes_nothing(
    operator: httpx.Client, get: Get, body: dict[str, Any]
) -> None:
    before = get("/liveness").json().keys(), get("/serverRanges").content
    assert operator.post("/liveness", json=body).status_code == 400
    assert before == (get("/liveness").json().keys(), get("/serverRanges").content)


def test_a_caches_token_is_good_for_its_own_heartbeats_alone(server: PlacementServer, get: Get) -> None:
    before = get("/serverRanges").content
    huge = {"site": "FAR", "address": "evil.example.org:1094", "size": 10**18}
    with server.client(token_of("xc1")) as cache:
        for body in ({"id": "xc3"}, {"id": "xf1"}, {"id": "evil", **huge}):
            assert cache.post("/liveness", json=body).status_code == 403
        assert cache.post("/liveness", json={"id": "xc1", **huge}).status_code == 400
        # What VPservice's caches send: their size is in a unit of their own, and is not read.
        said = {"id": "xc1", "site": "EDGE", "address": "root://xc1:1094/", "size": 10**18}
        assert cache.post("/liveness", json=said).status_code == 200
    assert get("/serverRanges").content == before


def test_long_bodies_are_refused_and_longer_ones_are_for_scores_alone(anyone: httpx.Client) -> None:
    long = {"client": "EDGE", "filename": "x" * 20_000}
    assert anyone.post("/prefix", json=long).status_code == 413
    assert anyone.post("/score", json={"inputs": ["x" * 20_000]}).status_code == 400
    assert anyone.post("/score", content=b"x" * 3_000_000).status_code == 413
    assert anyone.post("/score", content=iter([b"{}"])).status_code == 411


def test_a_dropped_server_is_gone_until_its_next_heartbeat(server: PlacementServer, get: Get) -> None:
    server.beat("xc3")
    assert ["xc3:1094", 100] in get("/serverRanges").json()["EDGE"]["servers"]
    with server.client() as operator:
        operator.delete("/liveness/EDGE/xc3").raise_for_status()
        assert operator.delete("/liveness/EDGE/xc3").status_code == 404
    assert ["xc3:1094", 100] not in get("/serverRanges").json()["EDGE"]["servers"]
    assert "xc3" not in get("/liveness").json()["EDGE"]
