"""Ranges of servers: as Rucio reads them, by size, and moved by as little as can be."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from hashlib import sha256
from struct import unpack
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from prefetch.placement.ranges import CELL, SPACE, Layout, covered, owner_of, rebalanced, shares, wire

sizes = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3), st.integers(1, 1000), min_size=1, max_size=8
)
histories = st.lists(sizes, min_size=1, max_size=6)
# No name of Rucio's holds a colon: what is before one is a scope, and is left out of the hash here.
names = st.text(min_size=1, max_size=50).filter(lambda name: ":" not in name)


def rucio_server(reply: Mapping[str, Any], name: str) -> str:
    """As Rucio 41 chooses from a site's part of `/serverRanges`; the form was seen on a real server."""
    h = float(unpack("Q", sha256(name.encode("utf-8")).digest()[:8])[0]) / 2**64
    for index, upper in reply["ranges"]:
        if h < upper:
            return str(reply["servers"][index][0])
    return ""


def held(layout: Layout) -> dict[str, int]:
    found: dict[str, int] = {}
    for start, (owner, upper) in zip([0, *(upper for _, upper in layout)], layout, strict=False):
        found[owner] = found.get(owner, 0) + upper - start
    return found


def moved(before: Layout, after: Layout) -> int:
    """Looks at every stretch between two edges, one by one."""
    cuts = sorted({0, *(part.upper for part in (*before, *after))})

    def owner(layout: Layout, at: int) -> str:
        return next(part.owner for part in layout if at < part.upper)

    stretches = itertools.pairwise(cuts)
    return sum(end - at for at, end in stretches if owner(before, at) != owner(after, at))


def after(history: list[dict[str, int]]) -> Layout:
    layout: Layout = ()
    for step in history:
        layout = rebalanced(layout, step)
    return layout


@given(histories)
def test_every_server_holds_its_share_after_any_history(history: list[dict[str, int]]) -> None:
    layout, last = after(history), history[-1]
    uppers = [part.upper for part in layout]
    assert uppers == sorted(set(uppers))
    assert uppers[-1] == SPACE
    assert held(layout) == {name: n for name, n in shares(last).items() if n}
    total = sum(last.values())
    assert all(abs(n - last[name] / total * SPACE) <= 1 for name, n in held(layout).items())


@given(histories, sizes)
def test_a_change_moves_what_shares_demand_and_nothing_else(
    history: list[dict[str, int]], new: dict[str, int]
) -> None:
    before = after(history)
    old, demanded = shares(history[-1]), shares(new)
    least = sum(max(0, n - old.get(name, 0)) for name, n in demanded.items())
    assert moved(before, rebalanced(before, new)) == least


@given(histories)
def test_nothing_moves_without_a_change(history: list[dict[str, int]]) -> None:
    assert rebalanced(after(history), history[-1]) == after(history)


@given(histories, st.data())
def test_who_is_away_moves_its_own_alone_and_gets_it_back(
    history: list[dict[str, int]], data: st.DataObject
) -> None:
    home, last = after(history), history[-1]
    away = data.draw(st.sets(st.sampled_from(sorted(last)), max_size=len(last) - 1))
    alive = set(last) - away
    now = covered(home, last, alive)
    assert covered(home, last, set(last)) == home
    assert set(held(now)) <= alive
    assert moved(home, now) == sum(held(home).get(name, 0) for name in away)
    if len(alive) > 1:
        another = data.draw(st.sampled_from(sorted(alive)))
        then = covered(home, last, alive - {another})
        assert moved(now, then) == held(now).get(another, 0)


def test_stand_ins_share_by_size() -> None:
    servers = {"a": 100, "b": 100, "c": 300, "d": 500}
    now = held(covered(rebalanced((), servers), servers, {"a", "b", "c"}))
    extra = {name: now[name] - shares(servers)[name] for name in now}
    for name, share in (("a", 0.2), ("b", 0.2), ("c", 0.6)):
        assert abs(extra[name] / (SPACE / 2) - share) < 0.06
    assert SPACE % CELL == 0


def test_nobody_alive_has_no_ranges() -> None:
    assert covered(rebalanced((), {"a": 1}), {"a": 1}, set()) == ()
    assert rebalanced(rebalanced((), {"a": 1}), {}) == ()


@given(histories, names)
def test_the_reply_means_to_rucio_what_it_means_here(history: list[dict[str, int]], name: str) -> None:
    layout = after(history)
    address = {id: (f"{id}:1094", float(size)) for id, size in history[-1].items()}
    reply = json.loads(json.dumps(wire(layout, address)))
    assert rucio_server(reply, name) == f"{owner_of(layout, name)}:1094"
    assert owner_of(layout, f"scope:{name}") == owner_of(layout, name)
    assert reply["ranges"][-1][1] == 1.0
    assert all(len(server) == 2 for server in reply["servers"])


def test_ranges_stay_few() -> None:
    layout: Layout = ()
    for year in range(10):
        layout = rebalanced(layout, {f"xc{i}": 100 + 50 * (i % 3) for i in range(year, year + 24)})
    assert len(layout) < 24 * 12
