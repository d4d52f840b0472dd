"""The operator's pages over real HTTP, from a source of the test's: kept, limited, checked, never a 500."""

import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from placement_server import PlacementServer, threaded
from waiting import eventually

from features.common.errors import ServiceError
from prefetch.placement import pages
from prefetch.placement.pages import LastHeartbeat, PageRequest


class WatchedSource:
    """A source that says what it was asked; `wait` holds its answers, `fault` is raised."""

    def __init__(self) -> None:
        self.caches: Collection[str] = ("xc1",)
        self.style = b"body { color: black }"
        self.asked = list[tuple[PageRequest, Mapping[str, LastHeartbeat]]]()
        self.fault: Exception | None = None
        self.go, self.is_closed = threading.Event(), False
        self.go.set()

    def page(self, request: PageRequest, heard: Mapping[str, LastHeartbeat]) -> bytes:
        self.asked.append((request, heard))
        self.go.wait(90)
        if self.fault is not None:
            raise self.fault
        return f"<!doctype html><p>{request}</p>".encode()

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def source() -> WatchedSource:
    return WatchedSource()


@pytest.fixture
def server(source: WatchedSource, tmp_path: Path) -> Iterator[PlacementServer]:
    with threaded(tmp_path / "p.db", time.time, operator=source) as started:
        yield started


@pytest.fixture
def get(server: PlacementServer) -> Iterator[Callable[..., httpx.Response]]:
    with server.client(None) as client:
        yield client.get


Get = Callable[..., httpx.Response]


def test_pages_need_no_token_and_allow_nothing_but_themselves(get: Get, source: WatchedSource) -> None:
    reply = get("/operator")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'")
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert reply.headers["refresh"] == "60" and "refresh" not in get("/operator?still=true").headers
    style = get("/operator/style.css")
    assert (style.content, style.headers["content-type"]) == (source.style, "text/css; charset=utf-8")
    assert "operator" in get("/").text
    assert "/operator" not in get("/openapi.json").json()["paths"]


def test_only_reading_is_possible(server: PlacementServer) -> None:
    with server.client() as operators:
        for path in ("/operator", "/operator/caches/xc1"):
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                assert operators.request(method, path).status_code == 405


def test_what_is_asked_reaches_the_source_with_the_heartbeats(
    get: Get, source: WatchedSource, server: PlacementServer
) -> None:
    server.beat("xc1")
    get("/operator")
    request, heard = source.asked[-1]
    assert request == PageRequest() and heard["xc1"].is_alive and time.time() - heard["xc1"].seen_at_s < 60
    get("/operator/caches/xc1", params={"action": "pin", "after": 100, "file": "cms:/store/f ü&<.root"})
    assert source.asked[-1][0] == PageRequest("xc1", "pin", 100, "cms:/store/f ü&<.root")


BAD = [
    ("/operator/caches/unknown", 404),
    ("/operator/caches/..%2f..%2fetc", 404),
    ("/operator/caches/xc1%00", 400),
    (f"/operator/caches/{'x' * 65}", 400),
    ("/operator/caches/xc1?file=%00", 400),
    (f"/operator/caches/xc1?file={'x' * 1025}", 400),
    ("/operator/caches/xc1?file=%0aa", 400),
    ("/operator/caches/xc1?action=drop", 400),
    ("/operator/caches/xc1?after=-1", 400),
    ("/operator/caches/xc1?after=1e9", 400),
    ("/operator/caches/xc1?after=99999999999999999999", 400),
    ("/operator/nothing", 404),
]


def test_names_are_checked_before_anyone_is_asked(get: Get, source: WatchedSource) -> None:
    for path, status in BAD:
        reply = get(path)
        assert reply.status_code == status and reply.json()["error"], path
    assert not source.asked


def test_many_requests_read_once(
    server: PlacementServer, source: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "KEPT_S", 3600.0)
    source.go.clear()
    with ThreadPoolExecutor(6) as clients:
        replies = [clients.submit(server.get, "/operator") for _ in range(6)]
        assert eventually(lambda: bool(source.asked))
        source.go.set()
        assert {reply.result().status_code for reply in replies} == {200}
    assert len(source.asked) == 1
    server.get("/operator")
    assert len(source.asked) == 1
    monkeypatch.setattr(pages, "KEPT_S", 0.0)
    server.get("/operator")
    assert len(source.asked) == 2


def test_kept_pages_are_bounded(get: Get, source: WatchedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "KEPT_S", 3600.0)
    for after in (*range(150), 149, 0):
        get("/operator/caches/xc1", params={"after": after})
    assert [request.after for request, _ in source.asked] == [*range(150), 0], "the last one is kept"


def test_one_client_is_refused_beyond_its_limit_and_heartbeats_go_on(
    server: PlacementServer, source: WatchedSource
) -> None:
    source.go.clear()
    with ThreadPoolExecutor(20) as clients:
        replies = [clients.submit(server.get, f"/operator/caches/xc1?after={i}") for i in range(20)]
        assert eventually(lambda: sum(reply.done() for reply in replies) == 12)
        refused = [reply.result() for reply in replies if reply.done()]
        assert {(reply.status_code, reply.headers["retry-after"]) for reply in refused} == {(503, "10")}
        server.beat("xc1")
        assert server.get("/serverRanges").json()["EDGE"]["servers"] == [["xc1:1094", 100]]
        source.go.set()
        assert sorted(reply.result().status_code for reply in replies) == [200] * 8 + [503] * 12
    figures = server.get("/metrics").text
    assert 'cachecast_placement_requests_total{route="operator",status="503"} 12.0' in figures


def test_a_source_that_fails_is_unknown_since_and_asked_again(get: Get, source: WatchedSource) -> None:
    source.fault = ServiceError("the tables cannot be read: <b>no answer within 45 s</b>")
    reply = get("/operator")
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "10")
    assert re.search(
        "The state is unknown: .*\n.*No page was made since the service started at 20", reply.text
    )
    assert "&lt;b&gt;no answer" in reply.text and "<b>" not in reply.text
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    source.fault = None
    assert get("/operator").status_code == 200
    source.fault = ServiceError("away")
    assert "The last page was made at 20" in get("/operator/caches/xc1").text


def test_who_asks_hears_in_time_that_there_is_no_page_yet(
    get: Get, source: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "ANSWER_WITHIN_S", 0.3)
    source.go.clear()
    for path in ("/operator", "/operator", "/operator/caches/xc1"):
        reply = get(path)
        assert reply.status_code == 503 and "still at work" in reply.text
    assert [request for request, _ in source.asked] == [PageRequest()]
    source.go.set()
    assert eventually(lambda: get("/operator").status_code == 200)
    assert len(source.asked) == 1


def test_the_source_is_closed_with_the_service(source: WatchedSource, tmp_path: Path) -> None:
    with threaded(tmp_path / "p.db", time.time, operator=source):
        pass
    assert source.is_closed
