"""A real Rucio asks the real placement service: PFNs lead through our servers, datasets to our sites."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from placement_server import PlacementServer, refresh, serving
from ranges_oracle import rucio_server
from rucio_server import RucioServer

pytestmark = pytest.mark.service
SCOPE, CLIENT, ORIGIN = "vpscope", "VP_CLIENT", "VP-ORIGIN"
DATASET = "vp.dataset"
FILES = [f"file{i}.root" for i in range(20)]
EDGE = {"xc1": ("EDGE", 100), "xc2": ("EDGE", 300), "xc3": ("EDGE", 200)}


@pytest.fixture(scope="module")
def placement(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementServer]:
    database = tmp_path_factory.mktemp("vp") / "placement.db"
    # EDGE is planned, FAR is configured since and known by its heartbeats alone.
    refresh(database, {"EDGE": {id: size * 10**12 for id, (_, size) in EDGE.items()}})
    with serving(database, caches=EDGE | {"xf1": ("FAR", 300)}) as started:
        for id in (*EDGE, "xf1"):
            started.beat(id)
        yield started


@pytest.fixture(scope="module")
def admin(rucio: RucioServer, placement: PlacementServer) -> Iterator[Any]:
    """A Rucio with files at an origin, whose clients at one site read through the caches of EDGE."""
    client = rucio.admin()
    client.add_scope("root", SCOPE)
    client.add_rse(ORIGIN)
    client.add_rse_attribute(ORIGIN, "site", "ORIGIN_SITE")
    everywhere = {"read": 1, "write": 1, "delete": 1}
    protocol = {
        "hostname": "origin.example.org",
        "scheme": "root",
        "port": 1094,
        "prefix": "//store/",
        "impl": "rucio.rse.protocols.gfal.Default",
        "domains": {"lan": everywhere, "wan": everywhere},
    }
    client.add_protocol(ORIGIN, protocol)
    client.add_replicas(
        ORIGIN, [{"scope": SCOPE, "name": name, "bytes": 1, "adler32": "0" * 8} for name in FILES]
    )
    client.add_dataset(SCOPE, DATASET)
    client.attach_dids(SCOPE, DATASET, [{"scope": SCOPE, "name": name} for name in FILES])
    client.set_config_option("virtual_placement", "vp_endpoint", placement.url)
    client.set_config_option("clientcachemap", CLIENT, "EDGE")
    yield client
    client.delete_config_option("virtual_placement", "vp_endpoint")
    client.delete_config_option("clientcachemap", CLIENT)


def pfns(admin: Any, site: str) -> dict[str, str]:
    """The PFN of each file for a client at `site`."""
    dids = [{"scope": SCOPE, "name": name} for name in FILES]
    replicas = admin.list_replicas(dids, schemes=["root"], client_location={"site": site}, sort="random")
    return {replica["name"]: next(iter(replica["pfns"])) for replica in replicas}


def test_pfns_lead_through_the_server_that_holds_the_file(admin: Any, placement: PlacementServer) -> None:
    origin, at_client = pfns(admin, "ELSEWHERE"), pfns(admin, CLIENT)
    ranges = placement.get("/serverRanges").json()["EDGE"]
    assert all(pfn.startswith("root://origin.example.org:1094//store/") for pfn in origin.values())
    assert at_client == {name: f"root://{rucio_server(ranges, name)}//{origin[name]}" for name in FILES}
    with placement.client(None) as anyone:
        for name in FILES:
            prefix = anyone.post("/prefix", json={"client": "EDGE", "filename": name}).text
            assert at_client[name].startswith(f"root://{prefix}//root://")
    assert len({pfn.split("/")[2] for pfn in at_client.values()}) == len(EDGE)


def test_a_dropped_server_gets_no_pfn_and_the_others_keep_theirs(
    admin: Any, placement: PlacementServer
) -> None:
    before = pfns(admin, CLIENT)
    with placement.client() as operator:
        operator.delete("/liveness/EDGE/xc3").raise_for_status()
    after = pfns(admin, CLIENT)
    placement.beat("xc3")
    assert not any("xc3:" in pfn for pfn in after.values())
    assert all(after[name] == pfn for name, pfn in before.items() if "xc3:" not in pfn)


def test_virtual_placement_names_our_sites(
    rucio: RucioServer, admin: Any, placement: PlacementServer
) -> None:
    with placement.client() as operator:
        operator.put(f"/ds/reassign/{SCOPE}:{DATASET}/FAR,EDGE").raise_for_status()
    token = admin.headers["X-Rucio-Auth-Token"]
    reply = httpx.get(
        f"{rucio.url}/replicas/{SCOPE}/{DATASET}/datasets_vp",
        headers={"X-Rucio-Auth-Token": token},
        params={"deep": True},
        timeout=60,
    )
    assert reply.status_code == 200
    replicas = [json.loads(line) for line in reply.text.splitlines()]
    assert [replica["site"] for replica in replicas if replica.get("vp")] == ["FAR", "EDGE"]


def test_rucio_tells_plain_origins_while_the_service_is_away(admin: Any, placement: PlacementServer) -> None:
    origin = pfns(admin, "ELSEWHERE")
    admin.set_config_option("virtual_placement", "vp_endpoint", "http://127.0.0.1:9")
    try:
        assert pfns(admin, CLIENT) == origin
    finally:
        admin.set_config_option("virtual_placement", "vp_endpoint", placement.url)
