"""The service over real HTTP: a process of `cachecast serve`, and what Rucio, caches and operators call."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_server import OPERATOR, PLAN, ROOT, PlacementServer, eventually, refresh, serving, threaded

Get = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementServer]:
    database = tmp_path_factory.mktemp("placement") / "placement.db"
    refresh(database)
    with serving(database) as started:
        for id in ("xc1", "xc2"):
            started.beat(id)
        started.beat("xf1", "FAR", size=300)
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
def get(anyone: httpx.Client) -> Get:
    return anyone.get


def test_rucio_reads_ranges(get: Get) -> None:
    reply = get("/serverRanges")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "application/json"
    told = reply.json()
    assert set(told) == {"EDGE", "FAR"}
    assert told["FAR"] == {"servers": [["xf1:1094", 300]], "ranges": [[0, 1.0]]}
    assert told["EDGE"]["servers"] == [["xc1:1094", 100], ["xc2:1094", 100]]
    assert told["EDGE"]["ranges"][-1][1] == 1.0


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
    found = [get(f"/ds/5/mc:d{i}").json()[0] for i in range(300)]
    assert 0.5 < found.count("FAR") / 300 < 0.7  # 300 of 500


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


def test_reads_may_be_cached(get: Get) -> None:
    for path in ("/serverRanges", "/ds/5/cms:/P/E/AOD", "/plan/xc1"):
        first = get(path)
        assert "max-age=" in first.headers["cache-control"]
        again = get(path, headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert get(path, headers={"if-none-match": '"other"'}).content == first.content
    head = httpx.head(get("/serverRanges").url)
    assert (head.status_code, head.content) == (200, b"")


@given(st.text(min_size=1, max_size=60).filter(lambda name: name.isprintable()))
@settings(max_examples=100, deadline=None)
def test_a_prefix_is_the_server_that_rucio_would_take(anyone: httpx.Client, get: Get, name: str) -> None:
    reply = anyone.post("/prefix", json={"client": "EDGE", "filename": name})
    told = get("/serverRanges").json()["EDGE"]
    h = struct.unpack("Q", hashlib.sha256(name.partition(":")[2].encode() or name.encode()).digest()[:8])[0]
    rucio = next(told["servers"][i][0] for i, upper in told["ranges"] if h / 2**64 < upper)
    assert (reply.status_code, reply.text) == (200, rucio)


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
    ("POST", "/liveness", {"id": "evil", "site": "EDGE", "address": "evil:1", "size": 10**9}),
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
        wrong.append("Bearer caches-token-of-the-tests")
    for header in wrong:
        headers = {} if header is None else {"authorization": header}
        reply = anyone.request(method, path, json=body, headers=headers)
        assert reply.status_code == 401, header
        assert reply.headers["www-authenticate"] == "Bearer"
    assert before == (get("/serverRanges").content, get("/ds/5/cms:/P/E/AOD").content, get("/serve").content)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
FIELDS = ["id", "site", "address", "size", "client", "filename", "cache_site", "inputs", "waited_s", "did"]
fields = st.sampled_from(FIELDS)
bodies = st.one_of(
    st.binary(max_size=60),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(fields, json_values, max_size=6).map(lambda value: json.dumps(value).encode()),
)
routes = st.sampled_from(
    ["POST /liveness", "PUT /serve", "DELETE /serve", "POST /prefix", "POST /score"]
).map(str.split)


@given(routes, bodies)
@settings(max_examples=150, deadline=None)
def test_any_body_gets_an_answer_that_is_no_fault_of_ours(
    operator: httpx.Client, route: list[str], body: bytes
) -> None:
    headers = {"content-type": "application/json"}
    reply = operator.request(route[0], route[1], content=body, headers=headers)
    assert reply.status_code in (200, 400, 422)
    if reply.status_code != 200:
        assert 0 < len(reply.json()["error"]) <= 700


@pytest.mark.parametrize(
    "changed",
    [
        {"address": "xc9"},
        {"address": "xc9:0"},
        {"address": "xc9:70000"},
        {"address": "evil/x:1094"},
        {"address": "a b:1094"},
        {"size": 0},
        {"size": -1},
        {"size": "inf"},
        {"size": None},
        {"site": ""},
        {"site": "a/b"},
        {"id": "x" * 65},
        {"id": "x\n"},
    ],
    ids=str,
)
def test_a_heartbeat_that_makes_no_sense_changes_nothing(
    operator: httpx.Client, get: Get, changed: dict[str, Any]
) -> None:
    body = {"id": "xc9", "site": "EDGE", "address": "xc9:1094", "size": 100} | changed
    before = get("/liveness").json().keys(), get("/serverRanges").content
    assert operator.post("/liveness", json=body).status_code == 400
    assert before == (get("/liveness").json().keys(), get("/serverRanges").content)


def test_long_bodies_are_refused(anyone: httpx.Client) -> None:
    assert anyone.post("/score", content=b"x" * 3_000_000).status_code == 413
    assert anyone.post("/score", content=iter([b"{}"])).status_code == 411


def test_a_roots_address_is_told_as_rucio_needs_it(server: PlacementServer, get: Get) -> None:
    server.beat("xc3", "OTHERS", address="root://xc3.example.org:1094/")
    assert get("/serverRanges").json()["OTHERS"]["servers"] == [["xc3.example.org:1094", 100]]
    with server.client() as operator:
        operator.delete("/liveness/OTHERS/xc3").raise_for_status()
        assert operator.delete("/liveness/OTHERS/xc3").status_code == 404
    assert "OTHERS" not in get("/serverRanges").json()
    assert "OTHERS" not in get("/liveness").json()


def test_liveness_is_told_by_site_and_id(get: Get) -> None:
    told = get("/liveness").json()["EDGE"]["xc1"]
    assert told["live"]
    assert (told["address"], told["size"]) == ("xc1:1094", 100)
    assert told["timestamp"] > 1_700_000_000_000


def test_plans_are_told(get: Get) -> None:
    assert get("/plan/xc1").json() == PLAN
    assert get("/plan/xc1", headers={"accept-encoding": "identity"}).json() == PLAN
    assert get("/plan/unknown").status_code == 404


def test_sites_are_scored(anyone: httpx.Client) -> None:
    reply = anyone.post("/score", json={"inputs": ["cms:/f"], "waited_s": 0, "max_wait_s": 60})
    told = reply.json()
    best = told["sites"][0]
    assert (best["site"], best["rank"], best["cached_fraction"]) == ("EDGE", 1, 0.8)
    # Eq. 1: 1 TB; two live nodes; compute 1000 slots × 2.4 MB/s is the longest.
    assert best["processing_s"] == pytest.approx(1e12 / 2.4e9, rel=1e-6)
    assert best["predicted_fraction"] == 0.9
    far = told["sites"][1]
    assert far["processing_s"] == pytest.approx(1e12 / 750e6, rel=1e-5)
    assert (told["max_wait_s"], told["released"]) == (60, False)
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
    assert {"/serverRanges", "/ds/{n}/{did}", "/liveness", "/score", "/prefix", "/plan/{cache}"} <= set(paths)
    assert get("/docs").status_code == 200
    health = get("/health").json()
    assert (health["status"], health["datasets"], health["as_of"]) == ("ok", 5, PLAN["as_of"])
    assert get("/nothing").status_code == 404
    assert OPERATOR not in figures


def test_a_restart_keeps_state_and_a_refresh_is_noticed(tmp_path: Path) -> None:
    database = tmp_path / "placement.db"
    with serving(database) as first:
        for id, size in (("b", 100), ("a", 50), ("c", 300)):
            first.beat(id, size=size)
        with first.client() as operator:
            operator.put("/serve", json={"client": "T2", "cache_site": "EDGE"}).raise_for_status()
            operator.put("/ds/reassign/cms:/X/EDGE").raise_for_status()
            ranges = operator.get("/serverRanges").json()
    with serving(database) as second, second.client() as operator:
        assert operator.get("/serverRanges").json() == ranges
        assert operator.get("/serve").json() == {"T2": "EDGE"}
        assert operator.get("/health").json()["datasets"] == 0
        refresh(database)
        eventually(lambda: bool(operator.get("/health").json()["datasets"] == 5))
        assert operator.get("/ds/5/cms:/P/E/AOD").json() == ["EDGE"]


def test_a_killed_service_lost_no_operators_change(tmp_path: Path) -> None:
    with serving(tmp_path / "p.db") as first:
        first.beat("a")
        with first.client() as operator:
            operator.put("/ds/reassign/cms:/X/EDGE").raise_for_status()
            eventually(lambda: (operator.get("/health").json()["synced_at_s"] or 0) > 0)
            assert first.process is not None
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
    with serving(tmp_path / "p.db") as second, second.client() as operator:
        operator.put("/ds/reassign/cms:/Y/other").raise_for_status()
        assert operator.delete("/ds/reassign/cms:/X").status_code == 200


def test_it_answers_from_memory_while_the_database_is_away(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    refresh(folder / "p.db")
    with serving(folder / "p.db") as started, started.client() as operator:
        started.beat("xc1")
        ranges = operator.get("/serverRanges").json()
        folder.rename(tmp_path / "away")
        eventually(lambda: bool(operator.get("/health").json()["status"] == "degraded"))
        assert operator.get("/serverRanges").json() == ranges
        assert operator.get("/ds/5/cms:/P/E/AOD").json() == ["EDGE"]
        assert operator.get("/plan/xc1").json() == PLAN
        assert operator.post("/score", json={"inputs": ["cms:/f"]}).status_code == 200
        assert "cachecast_placement_database_up 0.0" in operator.get("/metrics").text
        started.beat("xc2")
        assert len(operator.get("/serverRanges").json()["EDGE"]["servers"]) == 2
        refused = operator.put("/serve", json={"client": "T2", "cache_site": "EDGE"})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
        assert operator.get("/serve").json() == {}
        (tmp_path / "away").rename(folder)
        eventually(lambda: bool(operator.get("/health").json()["status"] == "ok"))
        assert len(operator.get("/serverRanges").json()["EDGE"]["servers"]) == 2
    with serving(folder / "p.db") as again:
        assert len(httpx.get(f"{again.url}/serverRanges").json()["EDGE"]["servers"]) == 2


def test_it_starts_without_its_database_and_finds_it_later(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    refresh(tmp_path / "p.db")
    with serving(folder / "p.db") as started, started.client() as operator:
        assert operator.get("/health").json()["status"] == "degraded"
        assert operator.get("/serverRanges").json() == {}
        assert operator.get("/ds/5/cms:/P/E/AOD").json() == ["other"]
        started.beat("xc1")
        assert operator.get("/ds/5/cms:/P/E/AOD").json() == ["EDGE"]
        folder.mkdir()
        shutil.copy(tmp_path / "p.db", folder / "p.db")
        eventually(lambda: bool(operator.get("/health").json()["datasets"] == 5))
        assert operator.get("/serverRanges").json()["EDGE"]["servers"] == [["xc1:1094", 100]]


def test_dead_caches_leave_and_return_by_the_clock(tmp_path: Path) -> None:
    clock = [1_772_323_200.0]
    with threaded(tmp_path / "p.db", lambda: clock[0]) as started, started.client() as client:
        started.beat("a")
        started.beat("b")
        both = client.get("/serverRanges").json()
        clock[0] += 100
        started.beat("a")
        clock[0] += 79
        assert client.get("/serverRanges").json() == both
        clock[0] += 1
        eventually(lambda: len(client.get("/serverRanges").json()["EDGE"]["servers"]) == 1)
        assert not client.get("/liveness").json()["EDGE"]["b"]["live"]
        started.beat("b")
        assert client.get("/serverRanges").json() == both
        clock[0] += 180
        eventually(lambda: client.get("/serverRanges").json() == {})
        assert client.get("/ds/5/cms:/any").json() == ["other"]


def test_the_answers_are_the_same_from_two_services_of_one_database(tmp_path: Path) -> None:
    with serving(tmp_path / "p.db") as one, serving(tmp_path / "p.db") as two:
        for id in ("a", "b", "c"):
            (one if id == "b" else two).beat(id)

        def ranges(server: PlacementServer) -> Any:
            return httpx.get(f"{server.url}/serverRanges").json()

        eventually(lambda: len(ranges(one)["EDGE"]["servers"]) == 3 and ranges(one) == ranges(two))


def test_tokens_come_from_private_files_and_tls_is_spoken(tmp_path: Path) -> None:
    token, cert, key = tmp_path / "token", tmp_path / "cert.pem", tmp_path / "key.pem"
    token.write_text("a-token-from-a-private-file\n")
    token.chmod(0o600)
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    given = {"token": "", "token_file": str(token), "tls_cert": str(cert), "tls_key": str(key)}
    with serving(tmp_path / "p.db", **given) as started:
        assert started.url.startswith("https://")
        headers = {"authorization": "Bearer a-token-from-a-private-file"}
        body = {"id": "a", "site": "EDGE", "address": "a:1094", "size": 1}
        with httpx.Client(base_url=started.url, verify=False, headers=headers) as client:
            assert client.post("/liveness", json=body).status_code == 200
            assert client.get("/serverRanges").json()["EDGE"]["servers"] == [["a:1094", 1]]


def test_without_a_token_nothing_can_be_changed(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "p.db", token="", cache_token="") as started,
        started.client("whatever") as client,
    ):
        body = {"id": "a", "site": "EDGE", "address": "a:1094", "size": 1}
        assert client.post("/liveness", json=body).status_code == 401
        assert client.get("/serverRanges").json() == {}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"TOKEN": "short"}, "shorter than 16"),
        ({"TOKEN_FILE": "/dev/null/token"}, "cannot read"),
        ({"DATABASE": "mysql://x"}, "use sqlite or postgresql"),
        ({"TLS_CERT": "x"}, "go together"),
        ({"FORGET": "1m"}, "longer than liveness"),
        ({"HOST": "203.0.113.7"}, "cannot listen"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_one_line(tmp_path: Path, given: dict[str, str], told: str) -> None:
    env = {
        f"CACHECAST_SERVE__{key}": value
        for key, value in ({"DATABASE": str(tmp_path / "p.db")} | given).items()
    }
    answer = subprocess.run(
        [sys.executable, "-c", "from jobs.cli import main; main()", "serve", "--port", "0"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)} | env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 1
    assert told in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
