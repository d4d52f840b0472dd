"""Liveness, by a clock that the test turns."""

from __future__ import annotations

from prefetch.placement.fleet import Fleet, Home, Server
from prefetch.placement.ranges import Range


def fleet() -> Fleet:
    return Fleet(liveness_s=180, forget_s=86400)


def server(id: str, at_s: float, *, size: float = 100, site: str = "EDGE") -> Server:
    return Server(site, id, f"{id}:1094", size, at_s)


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
    assert one.homes["EDGE"].layout == (("a", 2**32),)
    one.settle(3 * 86400)
    assert one.known() == []
    assert one.homes["EDGE"].layout == ()


def test_an_older_heartbeat_changes_nothing() -> None:
    one = fleet()
    assert one.hear(server("a", 100))
    one.settle(100)
    assert not one.hear(server("a", 50, size=7))
    assert not one.hear(server("a", 120))
    assert one.hear(server("a", 130, size=200))


def test_a_restart_counts_the_liveness_time_anew_for_those_who_were_alive() -> None:
    one = fleet()
    one.homes["EDGE"] = Home((Range("b", 2**31), Range("a", 2**32)), 3)
    one.restore([server("a", 1000), server("b", 990), server("dead", 500)], now_s=5000)
    one.settle(5000)
    assert told(one) == ["a:1094", "b:1094"]
    one.settle(5179)
    assert told(one) == ["a:1094", "b:1094"]
    one.settle(5180)
    assert one.ranges() == {}


HOME = Home((Range("b", 2**30), Range("a", 2**31), Range("c", 2**32)), 1)


def test_the_order_of_heartbeats_does_not_matter_to_a_restored_home() -> None:
    first, second = fleet(), fleet()
    for one, order in ((first, "abc"), (second, "cba")):
        one.homes["EDGE"] = HOME
        for id in order:
            one.hear(server(id, 0, size=ord(id)))
        one.settle(0)
    assert first.ranges() == second.ranges()
