"""Nodes that are not configured: admitted by the token of their federation, and by nothing else."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from placement_server import PlacementServer, threaded
from waiting import eventually

from prefetch.placement import fleet, service
from prefetch.placement.fleet import Refresh, Stored
from prefetch.placement.messages import Member
from prefetch.placement.service import Options, Service
from prefetch.placement.snapshot import NOTHING
from replay.ranges import Layout, layout_of
from replay.study.benefit import Cluster

NEW = {"id": "n7", "address": "n7.example.org:1094", "size": 5 * 10**12}
NOW_S = 1_772_323_200
TOKENS = {"EDGE": "token-of-the-federation-EDGE", "FAR": "token-of-the-federation-FAR"}
OPTIONS = Options(
    liveness_s=180,
    forget_s=900,
    max_wait_s=60,
    never=(),
    members={},
    federations=frozenset({"A"}),
    taken=frozenset(),
    clusters={},
    cluster=Cluster(1e9, 1e9, 1, 1e7, 100),
)


DIRECTORY = """name = "d1"
kind = "directory"
url = "{path}/d1"
origin = "{path}/origin"
site = "EDGE"
capacity = "1TB"
"""


def serving_at(tmp_path: Path) -> AbstractContextManager[PlacementServer]:
    at, caches = tmp_path / "fed", {"e1": ("EDGE", 10**12), "f1": ("FAR", 10**12)}
    at.mkdir(mode=0o700, exist_ok=True)
    for site, token in TOKENS.items():
        (at / site).touch(mode=0o600)
        (at / site).write_text(token)
    folder = tmp_path / "conf" / "caches"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "d1.toml").write_text(DIRECTORY.format(path=tmp_path))
    return threaded(tmp_path / "p.db", lambda: NOW_S, caches=caches, federation_tokens=str(at))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PlacementServer]:
    with serving_at(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementServer]:
    """For tests after which it knows what it knew before."""
    with serving_at(tmp_path_factory.mktemp("unchanged")) as started:
        yield started


def beat(server: PlacementServer, body: dict[str, Any], token: str = TOKENS["EDGE"]) -> httpx.Response:
    with server.client(token) as client:
        return client.post("/liveness", json=body)


def known(server: PlacementServer) -> dict[str, Any]:
    alive: dict[str, Any] = server.get("/liveness").json()
    return alive


def test_a_new_node_is_admitted_serves_and_stays(server: PlacementServer, tmp_path: Path) -> None:
    assert beat(server, NEW).text == "OK"
    assert beat(server, {"id": "e1"}, "token-of-e1-in-the-tests").text == "OK"
    edge = known(server)["EDGE"]
    assert (edge["n7"]["address"], edge["n7"]["live"]) == ("n7.example.org:1094", True)
    servers = server.get("/serverRanges").json()["EDGE"]["servers"]
    assert ["n7.example.org:1094", 5 * 10**12] in servers
    # Another service that shares the database knows it too.
    with serving_at(tmp_path) as other:
        assert eventually(lambda: "n7" in known(other).get("EDGE", {}))


@pytest.mark.parametrize(
    ("body", "token", "status", "words"),
    [
        (NEW, "token-of-e1-in-the-tests", 403, "not the token of n7"),
        (NEW, "nobodys-token-1234567890", 401, "needs a bearer token"),
        (NEW | {"id": "e1"}, TOKENS["EDGE"], 403, "not the token of e1"),
        (NEW | {"id": "f1"}, TOKENS["EDGE"], 403, "not the token of f1"),
        (NEW | {"id": "d1"}, TOKENS["EDGE"], 403, "not the token of d1"),
        (NEW | {"address": "E1.:1094"}, TOKENS["EDGE"], 400, "another cache has the address"),
        (NEW | {"site": "FAR"}, TOKENS["EDGE"], 400, "token of federation EDGE"),
        (NEW | {"address": "e1:1094"}, TOKENS["EDGE"], 400, "another cache has the address"),
        (NEW | {"address": "f1:01094"}, TOKENS["EDGE"], 400, "another cache has the address"),
        (NEW | {"address": None}, TOKENS["EDGE"], 400, "gives its address"),
        (NEW | {"address": "root://x/y"}, TOKENS["EDGE"], 400, "not an address"),
        (NEW | {"address": "169.254.169.254:80"}, TOKENS["EDGE"], 400, "would not come"),
        *(
            (NEW | {"address": f"{host}:1094"}, TOKENS["EDGE"], 400, "would not come")
            for host in ("[::ffff:127.0.0.1]", "127.1", "0", "0x7f000001", "2130706433")
        ),
        (NEW | {"address": "Localhost.:1094"}, TOKENS["EDGE"], 400, "would not come"),
        (NEW | {"size": True}, TOKENS["EDGE"], 400, "its size in bytes"),
        (NEW | {"size": 0}, TOKENS["EDGE"], 400, "its size in bytes"),
        (NEW | {"size": 2**70}, TOKENS["EDGE"], 400, "its size in bytes"),
        (NEW | {"size": "5TB"}, TOKENS["EDGE"], 400, "its size in bytes"),
        (NEW | {"id": "../x"}, TOKENS["EDGE"], 400, "not a site"),
    ],
)
def test_nothing_else_is(
    unchanged: PlacementServer, body: dict[str, Any], token: str, status: int, words: str
) -> None:
    answer = beat(unchanged, body, token)
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text
    assert known(unchanged) == {}


def test_a_flood_of_nodes_is_cut_and_an_address_is_not_taken_over(
    server: PlacementServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_NODES", 25)
    with server.client(TOKENS["EDGE"]) as client:
        answers = [
            client.post("/liveness", json=NEW | {"id": f"n{i}", "address": f"n{i}:1094"}) for i in range(27)
        ]
    assert [answer.status_code for answer in answers] == [200] * 25 + [400] * 2
    assert "25 nodes" in answers[-1].json()["error"]
    assert "another cache" in beat(server, NEW | {"id": "n3", "address": "n4:1094"}).json()["error"]
    assert beat(server, NEW | {"id": "n3", "address": "n3:1095"}).text == "OK"
    of_far = beat(server, NEW | {"id": "n5", "address": "n5:1094"}, TOKENS["FAR"])
    assert "another cache" in of_far.json()["error"]


def test_a_node_that_changes_its_size_with_each_heartbeat_makes_no_layout_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serving, calls = Service(OPTIONS, now_s=lambda: NOW_S), list[Mapping[str, float]]()

    def counted(sizes: Mapping[str, float]) -> Layout:
        calls.append(sizes)
        return layout_of(sizes)

    monkeypatch.setattr(fleet, "layout_of", counted)
    for size in range(1, 20):
        serving.admit("n1", Member("A", "n1:1094", size))
    assert len(calls) == 1
    serving.tick()
    assert calls[1:] == [{"n1": 19}]


def test_no_folder_and_no_drained_cache_is_missed() -> None:
    members = {"a": Member("A", "a:1", 1), "b": Member("A", "b:1", 1, is_drained=True)}
    options = dataclasses.replace(OPTIONS, members=members, taken=frozenset({"a", "b", "folder"}))
    serving = Service(options, now_s=lambda: NOW_S)
    planned = dataclasses.replace(NOTHING, capacities={"A": dict.fromkeys(("a", "b", "folder", "new"), 1)})
    serving.take(Stored((), {}, {}, Refresh(1, b"")), planned)
    assert serving.silent() == [("A", "a"), ("A", "new")]
