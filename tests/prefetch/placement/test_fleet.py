"""The servers of a site: liveness, by a clock that the test turns, and the ranges of names of each."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from ranges_oracle import held, moved, rucio_server

from prefetch.placement.fleet import CacheServer, Fleet, wire
from replay.federation.ranges import SLOT, SPACE, Layout, covered, layout_of, shares


def fleet() -> Fleet:
    return Fleet(liveness_s=180, forget_s=86400)


def server(id: str, at_s: float, *, size: float = 100, site: str = "EDGE") -> CacheServer:
    return CacheServer(site, id, f"{id}:1094", size, at_s)


def told(one: Fleet) -> list[str]:
    return [str(address) for address, _ in one.ranges().get("EDGE", {"servers": []})["servers"]]


def test_a_silent_server_leaves_within_the_liveness_time_and_returns_to_its_own() -> None:
    one = fleet()
    for id in ("a", "b", "c"):
        one.hear(server(id, 1000))
    assert one.settle(1000)
    full = one.ranges()
    one.hear(server("a", 1170))
    one.hear(server("b", 1170))
    assert not one.settle(1179.9)
    assert one.settle(1180)
    assert told(one) == ["a:1094", "b:1094"]
    one.hear(server("c", 1300))
    one.hear(server("a", 1300))
    one.hear(server("b", 1300))
    assert one.settle(1300)
    assert one.ranges() == full


def test_a_site_without_a_live_server_is_not_told() -> None:
    one = fleet()
    one.hear(server("a", 0))
    one.settle(0)
    one.settle(180)
    assert one.ranges() == {}
    assert one.live_sites() == []
    assert one.server_of("EDGE", "f") is None
    assert [s.id for s in one.known()] == ["a"]


def test_a_forgotten_server_gives_its_names_up() -> None:
    one = fleet()
    one.hear(server("a", 0))
    one.hear(server("b", 0))
    one.settle(0)
    one.hear(server("a", 86400))
    one.settle(86400)
    assert one.ranges() == {"EDGE": {"servers": [["a:1094", 100]], "ranges": [[0, 1.0]]}}
    one.settle(3 * 86400)
    assert one.known() == []
    assert one.ranges() == {}


def test_an_older_heartbeat_changes_nothing() -> None:
    one = fleet()
    assert one.hear(server("a", 100))
    one.settle(100)
    assert not one.hear(server("a", 50, size=7))
    assert not one.hear(server("a", 120))
    assert one.hear(server("a", 130, size=200))


def test_a_restart_counts_the_liveness_time_anew_for_those_who_were_alive() -> None:
    one = fleet()
    one.restore([server("a", 1000), server("b", 990), server("dead", 500)], now_s=5000)
    one.settle(5000)
    assert told(one) == ["a:1094", "b:1094"]
    one.settle(5179)
    assert told(one) == ["a:1094", "b:1094"]
    one.settle(5180)
    assert one.ranges() == {}


def test_neither_history_nor_the_order_of_heartbeats_matters() -> None:
    first, second = fleet(), fleet()
    for id in "abc":
        first.hear(server(id, 0, size=ord(id)))
        first.settle(0)
    second.hear(server("z", 0))
    second.settle(0)
    second.drop("EDGE", "z")
    for id in "cba":
        second.hear(server(id, 0, size=7))
        second.settle(0)
        second.hear(server(id, 0, size=ord(id)))
    second.settle(0)
    assert first.ranges() == second.ranges()


PLANNED = {"EDGE": {"a": 50 * 10**12, "b": 150 * 10**12}}


def test_at_a_planned_site_heartbeats_say_who_is_alive_and_nothing_else() -> None:
    one = fleet()
    one.planned = PLANNED
    one.hear(server("stranger", 0, size=1e18))
    one.settle(0)
    assert one.ranges() == {}
    assert not one.serves(server("stranger", 0))
    assert one.silent() == [("EDGE", "a"), ("EDGE", "b")]
    for id in ("a", "b"):
        one.hear(server(id, 1, size=1))
    one.settle(1)
    assert one.ranges()["EDGE"]["servers"] == [["a:1094", 50 * 10**12], ["b:1094", 150 * 10**12]]
    assert one.weights() == {"EDGE": 200e12}
    assert one.silent() == []
    both = one.ranges()
    one.hear(server("b", 190))
    assert one.settle(190)
    assert told(one) == ["b:1094"]
    assert one.silent() == [("EDGE", "a")]
    one.hear(server("b", 86_500))
    one.settle(86_500)
    assert [each.id for each in one.known()] == ["b"]
    one.hear(server("a", 86_500))
    one.settle(86_500)
    assert one.ranges() == both


def test_other_sites_than_the_planned_follow_heartbeats() -> None:
    one = fleet()
    one.planned = PLANNED
    one.hear(server("xf1", 0, site="FAR"))
    one.settle(0)
    assert list(one.ranges()) == ["FAR"]


def test_a_plan_with_other_capacities_changes_the_replies() -> None:
    one = fleet()
    for id in ("a", "b"):
        one.hear(server(id, 0))
    one.settle(0)
    before = one.ranges()
    one.planned = PLANNED
    assert one.settle(0)
    assert one.ranges() != before


sizes = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3), st.integers(1, 1000), min_size=1, max_size=8
)
# No name of Rucio's holds a colon: what is before one is a scope, and is left out of the hash here.
names = st.text(min_size=1, max_size=50).filter(lambda name: ":" not in name)


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


def test_stand_ins_share_by_size() -> None:
    servers = {"a": 100, "b": 100, "c": 300, "d": 500}
    now = held(covered(layout_of(servers), servers, {"a", "b", "c"}))
    extra = {name: now[name] - shares(servers)[name] for name in now}
    for name, share in (("a", 0.2), ("b", 0.2), ("c", 0.6)):
        assert abs(extra[name] / (SPACE / 2) - share) < 0.06
    assert SPACE % SLOT == 0


def test_nobody_alive_has_no_ranges() -> None:
    assert covered(layout_of({"a": 1}), {"a": 1}, set()) == Layout()
    assert covered(layout_of({"a": 1}), {"a": 1}, {"not planned"}) == Layout()


@given(sizes, names)
def test_the_reply_means_to_rucio_what_it_means_here(servers: dict[str, int], name: str) -> None:
    layout = layout_of(servers)
    address = {id: (f"{id}:1094", float(size)) for id, size in servers.items()}
    reply = json.loads(json.dumps(wire(layout, address)))
    owner, scoped = layout.owners_of([name, f"scope:{name}"])
    assert rucio_server(reply, name) == f"{owner}:1094"
    assert scoped == owner
    assert reply["ranges"][-1][1] == 1.0
    assert all(len(server) == 2 for server in reply["servers"])
