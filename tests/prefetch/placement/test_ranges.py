"""Ranges while servers are silent, and as Rucio reads them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from ranges_oracle import held, moved, rucio_server

from prefetch.placement.fleet import covered, wire
from replay.federation.ranges import SLOT, SPACE, Layout, layout_of, shares

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
