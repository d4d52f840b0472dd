"""Certificates of clients: whom they speak for, and all that makes one nobody's."""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from certificates import Authority
from placement_server import PlacementServer, certificate, threaded

from prefetch.placement.connections import subject_of

NODE = {"id": "n7", "address": "n7.example.org:1094", "size": 5 * 10**12}
SUBJECTS = {"/O=EDGE/CN=host/n7.edge.org": "site EDGE", "/O=EDGE/CN=e1": "cache e1"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> Iterator[PlacementServer]:
    login: dict[str, Any] = {"client_ca": str(authority.path), "client_subjects": SUBJECTS}
    caches = {"e1": ("EDGE", 10**12)}
    with threaded(tmp_path / "p.db", time.time, caches=caches, **certificate(tmp_path), **login) as started:
        yield started


def beat(server: PlacementServer, body: dict[str, object], pem: Path | None, token: str = "") -> int:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if pem is not None:
        context.load_cert_chain(pem)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(verify=context, timeout=60) as client:
        return client.post(f"{server.url}/liveness", json=body, headers=headers).status_code


def test_a_certificate_speaks_for_its_subject_alone(server: PlacementServer, authority: Authority) -> None:
    node, cache = authority.client("EDGE", "host/n7.edge.org"), authority.client("EDGE", "e1")
    assert (beat(server, NODE, node), beat(server, {"id": "e1"}, cache)) == (200, 200)
    assert (beat(server, {"id": "e1"}, node), beat(server, NODE, cache)) == (403, 403)
    assert beat(server, NODE, authority.client("FAR", "host/n7.edge.org")) == 401
    assert beat(server, NODE, None) == 401
    assert beat(server, NODE, node, "a-token-that-nobody-has") == 401


def test_a_certificate_of_another_authority_or_past_its_end_is_refused(
    server: PlacementServer, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "other").client("EDGE", "host/n7.edge.org")
    for wrong in (stranger, authority.client("EDGE", "host/n7.edge.org", days=-1)):
        with pytest.raises(httpx.TransportError):
            beat(server, NODE, wrong)


def test_subjects_are_written_as_the_grid_does_and_no_value_reads_as_a_part() -> None:
    def of(*parts: tuple[str, str]) -> str | None:
        return subject_of({"subject": tuple((part,) for part in parts)})

    assert of(("domainComponent", "org"), ("commonName", "host/a.b")) == "/DC=org/CN=host/a.b"
    assert of(("organizationName", "X/CN=host"), ("commonName", "b")) is None
    assert of(("organizationName", "CN=e1"), ("commonName", "b")) is None
    assert of(("unheardOf", "x"), ("commonName", "b")) is None
    assert subject_of(None) is None and subject_of({}) is None and of() is None
