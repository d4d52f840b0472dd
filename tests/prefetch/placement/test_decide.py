"""Where datasets go; who counts as a client; and by which names the service answers, framed by nobody."""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from placement_server import PlacementServer, serving

from prefetch.placement.connections import client_of
from prefetch.placement.snapshot import NOBODY, NOWHERE, Supply, placed
from replay.ranges import keys_of, scores

N = 5000
KEYS = keys_of(f"cms:/P{i}/E/AOD" for i in range(N))
SUPPLY = Supply(("A", "B", "C"), (1.0, 1.0, 2.0), (100.0, 100.0, 200.0))
NOBODY_HOLDS = np.zeros((N, 3))
LITTLE, OFTEN = np.full(N, 1.0), np.full(N, 1.0)


def rows(
    held: np.ndarray = NOBODY_HOLDS, demand: np.ndarray = LITTLE, reads: np.ndarray = OFTEN
) -> np.ndarray:
    return placed(KEYS, held, demand, reads, SUPPLY, min_reads=0.1)


def test_what_nobody_holds_goes_by_hash_and_size_as_the_service_would_choose() -> None:
    first = rows()[:, 0]
    assert (first == scores(KEYS, SUPPLY.sites, SUPPLY.weights).argmax(axis=1)).all()
    assert abs((first == 2).mean() - 0.5) < 0.03


def test_who_holds_most_comes_first() -> None:
    held = np.random.default_rng(1).random((N, 3))
    first = rows(held)[:, 0]
    best = held.max(axis=1)
    assert (best - held[np.arange(N), first] < 1e-3).all()


def test_a_hot_dataset_goes_to_as_many_sites_as_its_readers_need() -> None:
    held = np.tile([0.9, 0.5, 0.1], (N, 1))
    for demand, sites in ((50.0, [0]), (100.0, [0]), (101.0, [0, 1]), (201.0, [0, 1, 2]), (1e9, [0, 1, 2])):
        expected = sites + [NOBODY] * (5 - len(sites))
        assert (rows(held, np.full(N, demand)) == expected).all()


def test_what_nobody_holds_or_reads_goes_nowhere() -> None:
    reads = np.where(np.arange(N) % 2, 0.05, 0.5)
    held = NOBODY_HOLDS.copy()
    held[1] = [0.0, 0.3, 0.0]
    decided = rows(held, reads=reads)
    assert decided[1, 0] == 1
    assert (decided[3::2, 0] == NOWHERE).all()
    assert (decided[::2, 0] < 3).all()


def test_a_client_is_an_address_or_a_network_of_version_6() -> None:
    assert client_of(("192.0.2.1", 5)) == "192.0.2.1"
    assert client_of(("::ffff:192.0.2.1", 5)) == "192.0.2.1"
    assert client_of(("2001:db8::1", 5)) == client_of(("2001:db8::ffff:2", 6)) == "2001:db8::/64"
    assert client_of(("fe80::1%eth0", 5)) == "fe80::/64"
    assert client_of(None) == ""


NAME = "placement.example.org"
PATHS = ("/operator", "/health", "/serverRanges", "/ds/a:b", "/docs", "/liveness", "/")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementServer]:
    database: Path = tmp_path_factory.mktemp("placement") / "placement.db"
    with serving(database, hosts=f'["{NAME}"]') as started:
        yield started


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example:8400", "localhost.evil.example"),
        *("[::1].evil.example", "[::1]evil", "[::1", "[127.0.0.1]", "localhost:evil.example", "::1"),
    ],
)
def test_a_strangers_name_for_this_machine_is_refused(anyone: httpx.Client, path: str, host: str) -> None:
    """DNS rebinding: a page of evil.example asks evil.example, which now is 127.0.0.1."""
    answer = anyone.get(path, headers={"host": host})
    assert (answer.status_code, "hosts" in answer.json()["error"]) == (421, True)


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8400", "127.0.0.1:1", "[::1]:8400", "192.0.2.7:8400"),
        *(socket.gethostname(), f"{socket.gethostname()}:8400", f"{NAME}:8400", NAME.upper()),
    ],
)
def test_its_own_names_and_addresses_are_answered(anyone: httpx.Client, host: str) -> None:
    for path in ("/health", "/serverRanges"):
        assert anyone.get(path, headers={"host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/operator/", "/docs/", "/health/", "/liveness/"])
def test_nobody_is_sent_to_the_host_that_he_names(anyone: httpx.Client, path: str) -> None:
    answer = anyone.get(path, headers={"host": "192.0.2.7"}, follow_redirects=False)
    assert (answer.status_code, answer.headers.get("location")) == (404, None)


@pytest.mark.parametrize("path", ["/operator", "/docs", "/", "/nothing", "/docs/swagger-ui.css"])
def test_no_page_may_be_framed(anyone: httpx.Client, path: str) -> None:
    headers = anyone.get(path).headers
    assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
    if headers["content-type"].startswith("text/html"):
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_two_hosts_are_as_bad_as_the_worse(server: PlacementServer) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0)) as line:
        line.sendall(
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        )
        assert line.recv(100).split()[1] in (b"400", b"421")
