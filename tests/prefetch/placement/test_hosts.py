"""By which names the service answers, and that nobody frames its pages or is sent elsewhere."""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from placement_server import PlacementServer, serving

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
