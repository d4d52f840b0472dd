"""Planner, placement service and Rucio agree on who owns a file, whatever happened before."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from ranges_oracle import rucio_server

from prefetch.placement.fleet import CacheServer, Fleet
from prefetch.plan.rules import belongs

SITE = "EDGE"
NAMES = [f"/store/mc/f{i}.root" for i in range(300)]
servers = st.sampled_from([f"xc{i}" for i in range(8)])
terabytes = st.integers(1, 500)
changes = st.lists(
    st.tuples(st.sampled_from(["join", "leave", "resize"]), servers, terabytes), min_size=1, max_size=12
)


def owners(capacities: dict[str, int]) -> list[str]:
    """As plans say it, each cache's on its own."""
    mine = {cache: belongs(NAMES, capacities, cache) for cache in capacities}
    found = [[cache for cache in mine if mine[cache][i]] for i in range(len(NAMES))]
    assert all(len(caches) == 1 for caches in found)
    return [caches[0] for caches in found]


@settings(max_examples=60, deadline=None)
@given(changes)
def test_all_name_the_same_owner_after_any_joins_leaves_and_resizes(
    history: list[tuple[str, str, int]],
) -> None:
    fleet, configured = Fleet(liveness_s=180, forget_s=86400), dict[str, int]()
    for at_s, (kind, cache, size) in enumerate(history):
        if kind == "leave":
            fleet.drop(SITE, cache)
            configured.pop(cache, None)
        elif kind == "join" or cache in configured:
            fleet.hear(CacheServer(SITE, cache, cache, size, at_s))
            configured[cache] = size * 10**12
        fleet.settle(at_s)
        if not configured:
            assert fleet.ranges() == {}
            continue
        planned = owners(configured)
        reply = json.loads(json.dumps(fleet.ranges()))[SITE]
        assert [rucio_server(reply, name) for name in NAMES] == planned
        served = [fleet.server_of(SITE, name) for name in NAMES]
        assert [server and server.id for server in served] == planned
