"""`/serverRanges` answers on new connections while others do their worst, over real sockets."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import floods
import httpx
import pytest
from placement_server import PlacementServer, certificate, refresh, serving
from waiting import eventually

from prefetch.placement.database import PlacementTables
from prefetch.placement.snapshot import NOTHING, dump

LASTS_S = 2.5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementServer]:
    database = tmp_path_factory.mktemp("flood") / "placement.db"
    refresh(database)
    with closing(PlacementTables(str(database))) as opened:
        opened.refresh(dump(NOTHING), "")
    with serving(database) as started:
        started.beat("xc1")
        yield started


def resident_mb(server: PlacementServer) -> float:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000


@pytest.mark.parametrize("name", floods.FLOODS)
def test_server_ranges_answer_within_a_second_in_a_flood(server: PlacementServer, name: str) -> None:
    address, before_mb = floods.address_of(server.url), resident_mb(server)
    busy_s = 20 * max(floods.ranges_s(address) for _ in range(5))  # whoever else works on this machine
    took_s, most_mb = list[float](), 0.0
    with floods.FLOODS[name](address):
        deadline = time.monotonic() + LASTS_S
        while time.monotonic() < deadline or len(took_s) < 5:
            took_s.append(floods.ranges_s(address))
            most_mb = max(most_mb, resident_mb(server))
            time.sleep(0.05)
        server.beat("xc1")
    # A SYN that finds the kernel's queue full is sent again after a second: the server never saw the first.
    assert sorted(took_s)[-1 - max(1, len(took_s) // 20)] < 1.0 + busy_s
    assert max(took_s) < 2.0 + 2 * busy_s
    assert most_mb - before_mb < 120


def answered(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_headers_that_do_not_end_and_do_not_come_end_the_connection(server: PlacementServer) -> None:
    address = floods.address_of(server.url)
    with socket.create_connection(address, timeout=60) as endless, pytest.raises(ConnectionError):
        endless.sendall(b"GET / HTTP/1.1\r\nx: ")
        until = time.monotonic() + 60
        while time.monotonic() < until:
            endless.sendall(b"x" * 1000)
            time.sleep(0.001)
    with socket.create_connection(address, timeout=60) as silent:
        began_s = time.monotonic()
        assert answered(silent) == b""
        assert time.monotonic() - began_s > 9


def test_a_body_that_does_not_come_is_told_so(server: PlacementServer) -> None:
    with socket.create_connection(floods.address_of(server.url), timeout=60) as slow:
        slow.sendall(b"POST /score HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        assert answered(slow).startswith(b"HTTP/1.1 408 ")


def test_figures_say_what_was_closed(server: PlacementServer) -> None:
    with floods.half_open(floods.address_of(server.url), 300):
        assert eventually(lambda: figure(server, 'connections_closed_total{reason="client"}') > 0)
        assert figure(server, "connections") <= 250


def figure(server: PlacementServer, name: str) -> float:
    text = server.get("/metrics").text
    return float(text.partition(f"\ncachecast_placement_{name} ")[2].split()[0])


def test_half_open_handshakes_count_as_connections(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    limited = tls | {"connections": "64", "connections_per_client": "32"}
    with serving(tmp_path / "p.db", **limited) as started:
        context = ssl.create_default_context(cafile=tls["tls_cert"])
        context.check_hostname = False
        address = floods.address_of(started.url)
        with floods.half_open(address, 200, source="127.0.0.2", begun=floods.HELLO):
            for _ in range(5):
                with httpx.Client(verify=context, timeout=60) as client:
                    assert client.get(f"{started.url}/serverRanges").status_code == 200
                    text = client.get(f"{started.url}/metrics").text
            assert 'connections_closed_total{reason="client"} 0.0' not in text
