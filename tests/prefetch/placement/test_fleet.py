"""Who is alive and owns what; where datasets go; and by which names the service answers, framed by nobody."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from ranges_oracle import held, moved, rucio_server

from prefetch.placement.fleet import CacheServer, Fleet
from prefetch.plan.rules import owners
from replay.ranges import covered, layout_of


def new_fleet() -> Fleet:
    return Fleet(liveness_s=180, forget_s=86400)


def server(id: str, at_s: float, *, size: float = 100, site: str = "EDGE") -> CacheServer:
    return CacheServer(site, id, f"{id}:1094", size, at_s)


def addresses(fleet: Fleet) -> list[str]:
    return [str(address) for address, _ in fleet.ranges().get("EDGE", {"servers": []})["servers"]]


def test_a_forgotten_server_gives_its_names_up() -> None:
    fleet = new_fleet()
    fleet.hear(server("a", 0))
    fleet.hear(server("b", 0))
    fleet.settle(0)
    fleet.hear(server("a", 86400))
    fleet.settle(86400)
    assert fleet.ranges() == {"EDGE": {"servers": [["a:1094", 100]], "ranges": [[0, 1.0]]}}
    fleet.settle(3 * 86400)
    assert fleet.known() == []
    assert fleet.ranges() == {}


def test_an_older_heartbeat_changes_nothing() -> None:
    fleet = new_fleet()
    assert fleet.hear(server("a", 100))
    fleet.settle(100)
    assert not fleet.hear(server("a", 50, size=7))
    assert not fleet.hear(server("a", 120))
    assert fleet.hear(server("a", 130, size=200))


def test_a_clock_that_was_ahead_keeps_nobody_alive() -> None:
    fleet = new_fleet()
    fleet.hear(server("a", 10**9))
    fleet.settle(1000)
    assert addresses(fleet) == ["a:1094"]
    fleet.settle(1180)
    assert fleet.ranges() == {} and fleet.hear(server("a", 1181))


def test_a_restart_counts_the_liveness_time_anew_for_those_who_were_alive() -> None:
    fleet = new_fleet()
    fleet.restore([server("a", 1000), server("b", 990), server("dead", 500)], now_s=5000)
    fleet.settle(5000)
    assert addresses(fleet) == ["a:1094", "b:1094"]
    fleet.settle(5179)
    assert addresses(fleet) == ["a:1094", "b:1094"]
    fleet.settle(5180)
    assert fleet.ranges() == {}


PLANNED = {"EDGE": {"a": 50 * 10**12, "b": 150 * 10**12}}


def test_at_a_planned_site_heartbeats_say_who_is_alive_and_nothing_else() -> None:
    fleet = new_fleet()
    fleet.planned = PLANNED
    fleet.hear(server("stranger", 0, size=1e18))
    fleet.settle(0)
    assert fleet.ranges() == {}
    assert not fleet.serves(server("stranger", 0))
    assert fleet.silent() == [("EDGE", "a"), ("EDGE", "b")]
    for id in ("a", "b"):
        fleet.hear(server(id, 1, size=1))
    fleet.settle(1)
    assert fleet.ranges()["EDGE"]["servers"] == [["a:1094", 50 * 10**12], ["b:1094", 150 * 10**12]]
    assert fleet.weights() == {"EDGE": 200e12}
    assert fleet.silent() == []
    both = fleet.ranges()
    fleet.hear(server("b", 190))
    assert fleet.settle(190)
    assert addresses(fleet) == ["b:1094"]
    assert fleet.silent() == [("EDGE", "a")]
    fleet.hear(server("b", 86_500))
    fleet.settle(86_500)
    assert [each.id for each in fleet.known()] == ["b"]
    fleet.hear(server("a", 86_500))
    fleet.settle(86_500)
    assert fleet.ranges() == both


sizes = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3), st.integers(1, 1000), min_size=1, max_size=8
)


@given(sizes, st.data())
def test_who_is_away_moves_its_own_alone_and_gets_it_back(
    servers: dict[str, int], data: st.DataObject
) -> None:
    home = layout_of(servers)
    away = data.draw(st.sets(st.sampled_from(sorted(servers)), max_size=len(servers) - 1))
    alive = set(servers) - away
    now = covered(home, servers, alive)
    assert covered(home, servers, set(servers)) == home
    assert set(held(now)) <= alive
    assert moved(home, now) == sum(held(home).get(name, 0) for name in away)
    if len(alive) > 1:
        another = data.draw(st.sampled_from(sorted(alive)))
        then = covered(home, servers, alive - {another})
        assert moved(now, then) == held(now).get(another, 0)


SITE = "EDGE"
NAMES = [f"/store/mc/f{i}.root" for i in range(300)]
servers = st.sampled_from([f"xc{i}" for i in range(8)])
terabytes = st.integers(1, 500)
changes = st.lists(
    st.tuples(st.sampled_from(["join", "leave", "resize"]), servers, terabytes), min_size=1, max_size=12
)


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
        planned = owners(NAMES, configured).tolist()  # as plans say it
        reply = json.loads(json.dumps(fleet.ranges()))[SITE]
        assert [rucio_server(reply, name) for name in NAMES] == planned
        served = [fleet.server_of(SITE, name) for name in NAMES]
        assert [server and server.id for server in served] == planned
