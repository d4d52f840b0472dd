"""What the service tells over real HTTP, what caches and operators change, and what nobody may."""

import re
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from placement_server import OPERATOR, PLACED_AT, PlacementServer, loaded, token_of

Get = Callable[..., httpx.Response]


def test_rucio_reads_ranges(get: Get) -> None:
    reply = get("/serverRanges")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    answer = reply.json()
    assert set(answer) == {"EDGE", "FAR"}
    assert answer["FAR"] == {"servers": [["xf1:1094", 300]], "ranges": [[0, 1.0]]}
    assert answer["EDGE"]["servers"] == [["xc1:1094", 100], ["xc2:1094", 100]]
    assert answer["EDGE"]["ranges"][-1][1] == 1.0


def test_rucio_reads_placements(get: Get) -> None:
    for path, sites in (
        ("5/cms:/P/E/AOD", ["EDGE"]),
        ("5/cms:%2FP%2FE%2FAOD", ["EDGE"]),
        ("5/cms:/P/E/AOD%23a-block", ["EDGE"]),
        ("5/cms:/P/E/HOT", ["FAR", "EDGE"]),
        ("1/cms:/P/E/HOT", ["FAR"]),
        ("0/cms:/P/E/HOT", ["FAR", "EDGE"]),
        ("5/atlas:data24.nobody", ["other"]),
        ("5/panda:panda.um.something", ["other"]),
        ("5/panda:panda.um.known", ["other"]),
    ):
        reply = get(f"/ds/{path}")
        assert (reply.status_code, reply.json()) == (200, sites), path


def test_what_nobody_foresaw_or_lies_on_a_dead_site_goes_by_hash_and_always_there(get: Get) -> None:
    for did in ("cms:/new/thing/AOD", "cms:/P/E/GONE"):
        first = get(f"/ds/5/{did}").json()
        assert first in (["EDGE"], ["FAR"])
        assert all(get(f"/ds/5/{did}").json() == first for _ in range(5))
    sites = [get(f"/ds/5/mc:d{i}").json()[0] for i in range(300)]
    assert 0.5 < sites.count("FAR") / 300 < 0.7  # 300 of 500


BAD_PATHS = [
    "/ds/",
    "/ds/5",
    "/ds/5/",
    "/ds/x/a:b",
    "/ds/-1/a:b",
    "/ds/99999/a:b",
    "/ds/²/a:b",
    "/ds/5/a:%00",
]


@pytest.mark.parametrize("path", [*BAD_PATHS, f"/ds/5/{'x' * 2000}"])
def test_bad_paths_are_told_so(get: Get, path: str) -> None:
    reply = get(path)
    assert reply.status_code == 400
    assert reply.json()["error"]
    assert reply.headers["cache-control"] == "no-store"


def test_reads_may_be_cached(get: Get, anyone: httpx.Client) -> None:
    for path in ("/serverRanges", "/ds/5/cms:/P/E/AOD"):
        first = get(path)
        assert "max-age=" in first.headers["cache-control"]
        again = get(path, headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert get(path, headers={"if-none-match": '"other"'}).content == first.content
    head = anyone.head("/serverRanges")
    assert (head.status_code, head.content) == (200, b"")


def test_sites_are_scored(anyone: httpx.Client) -> None:
    reply = anyone.post("/score", json={"inputs": ["cms:/f"], "waited_s": 0, "max_wait_s": 60})
    answer = reply.json()
    best = answer["sites"][0]
    assert (best["site"], best["rank"], best["cached_fraction"]) == ("EDGE", 1, 0.8)
    # Eq. 1: 1 TB; two live nodes; compute 1000 slots × 2.4 MB/s is the longest.
    assert best["processing_s"] == pytest.approx(1e12 / 2.4e9, rel=1e-6)
    assert best["predicted_fraction"] == 0.9
    far = answer["sites"][1]
    assert far["processing_s"] == pytest.approx(1e12 / 750e6, rel=1e-5)
    assert (answer["max_wait_s"], answer["released"]) == (60, False)
    late = anyone.post("/score", json={"inputs": [{"did": "cms:/f"}], "waited_s": 61, "max_wait_s": 60})
    assert late.json()["released"]


def test_figures_and_docs(get: Get) -> None:
    figures = get("/metrics").text
    for line in (
        'cachecast_placement_server_alive{id="xc1",site="EDGE"} 1.0',
        "cachecast_placement_database_up 1.0",
        "cachecast_placement_datasets 5.0",
    ):
        assert line in figures
    paths = get("/openapi.json").json()["paths"]
    assert {"/serverRanges", "/ds/{n}/{did}", "/liveness", "/score", "/prefix"} <= set(paths)
    health = get("/health").json()
    assert (health["status"], health["datasets"], health["as_of"]) == ("ok", 5, PLACED_AT)
    assert get("/nothing").status_code == 404
    assert OPERATOR not in figures


def test_the_first_page_links_to_what_a_browser_can_open(get: Get) -> None:
    links = re.findall(r'href="([^"]+)"', get("/").text)
    assert {"docs", "health", "metrics", "serverRanges"} <= set(links)
    assert loaded(get, "/operator").status_code == 200
    assert {get(f"/{link}").status_code for link in links} == {200}


def test_the_docs_work_without_any_other_host(get: Get) -> None:
    page = get("/docs")
    assert not re.search("https?:", page.text)
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    for name, start in ((".js", b"/*! For license"), (".css", b".swagger-ui"), (".png", b"\x89PNG")):
        path = next(route for route in named if route.endswith(name))
        packed, plain = get(f"/{path}"), get(f"/{path}", headers={"accept-encoding": "identity"})
        assert packed.content == plain.content
        assert plain.content.startswith(start)
    assert get("/docs/../app.py").status_code == 404
    assert get("/docs/nothing.js").status_code == 404


def test_a_request_for_the_whole_server_is_answered_and_fills_no_log(
    get: Get, caplog: pytest.LogCaptureFixture
) -> None:
    host = get("/health").request.url
    with socket.create_connection((host.host, host.port or 80), 60) as client:
        client.sendall(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        reply = b"".join(iter(lambda: client.recv(4096), b""))
    assert reply.startswith(b"HTTP/1.1 404 ")
    assert not caplog.records


def test_a_client_is_served_by_the_site_that_operators_say(operator: httpx.Client) -> None:
    request = {"client": "TIER2", "filename": "f"}
    assert operator.post("/prefix", json=request).text == ""
    reply = operator.put("/serve", json={"client": "TIER2", "cache_site": "FAR"})
    assert reply.status_code == 200
    assert operator.get("/serve").json() == {"TIER2": "FAR"}
    assert operator.post("/prefix", json=request).text == "xf1:1094"
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
        heartbeat = {"id": "xc1", "site": "EDGE", "address": "root://xc1:1094/", "size": 10**18}
        assert cache.post("/liveness", json=heartbeat).status_code == 200
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
