"""The gate, the lanes and the bodies by themselves: who is closed, who waits, who is refused."""

import asyncio
from collections.abc import MutableMapping
from typing import Any, cast

import pytest

from prefetch.placement.connections import ANSWER_S, HEAD_S, CountedConnection, Gate, client_of
from prefetch.placement.front import GoneError, Lane, RefusedError, whole_body


class Line:
    """A transport of a client at `host`."""

    def __init__(self, host: str) -> None:
        self.host, self.is_open = host, True

    def get_extra_info(self, name: str) -> tuple[str, int]:
        assert name == "peername"
        return self.host, 1

    def abort(self) -> None:
        self.is_open = False


def entered(gate: Gate, *hosts: str) -> list[tuple[Line, CountedConnection]]:
    lines = [Line(host) for host in hosts]
    return [(line, gate.enter(cast(asyncio.Transport, line))) for line in lines]


def test_at_the_limit_the_one_longest_without_an_answer_is_closed() -> None:
    async def scene() -> None:
        gate = Gate(most=3, per_client=3)
        (first, held), (second, _), (third, _) = entered(gate, "a", "b", "c")
        gate.answered(held)
        ((fourth, _),) = entered(gate, "d")
        assert [line.is_open for line in (first, second, third, fourth)] == [True, False, True, True]
        assert (len(gate), gate.closed["full"]) == (3, 1)

    asyncio.run(scene())


def test_a_clients_limit_costs_none_but_its_own() -> None:
    async def scene() -> None:
        gate = Gate(most=10, per_client=2)
        (other, _), (first, held), (second, _), (third, _) = entered(gate, "b", "a", "a", "a")
        assert [line.is_open for line in (other, first, second, third)] == [True, False, True, True]
        assert gate.closed["client"] == 1
        gate.leave(held)  # its protocol says so again, when the loop tells it
        assert len(gate) == 3

    asyncio.run(scene())


def test_who_does_not_get_on_is_closed_in_time() -> None:
    async def scene() -> None:
        now_s = [0.0]
        gate = Gate(most=10, per_client=10, now_s=lambda: now_s[0])
        (silent, _), (asking, held) = entered(gate, "a", "b")
        gate.asked(held)
        now_s[0] = HEAD_S
        await asyncio.sleep(0.6)
        assert (silent.is_open, asking.is_open) == (False, True)
        now_s[0] = ANSWER_S
        await asyncio.sleep(0.6)
        assert not asking.is_open
        assert (len(gate), gate.closed["slow"]) == (0, 2)

    asyncio.run(scene())


def test_a_client_is_an_address_or_a_network_of_version_6() -> None:
    assert client_of(("192.0.2.1", 5)) == "192.0.2.1"
    assert client_of(("::ffff:192.0.2.1", 5)) == "192.0.2.1"
    assert client_of(("2001:db8::1", 5)) == client_of(("2001:db8::ffff:2", 6)) == "2001:db8::/64"
    assert client_of(("fe80::1%eth0", 5)) == "fe80::/64"
    assert client_of(None) == ""


def test_a_lane_lets_so_many_work_wait_and_no_more() -> None:
    async def scene() -> None:
        lane, go, at_work = Lane(at_once=1, most=3, per_client=2), asyncio.Event(), []

        async def request(client: str) -> None:
            with lane.place(client):
                async with lane.turn:
                    at_work.append(client)
                    await go.wait()

        tasks = [asyncio.create_task(request(client)) for client in "aab"]
        await asyncio.sleep(0)
        for client in "ac":
            with pytest.raises(RefusedError):
                await request(client)
        assert at_work == ["a"]
        go.set()
        await asyncio.gather(*tasks)
        assert at_work == ["a", "a", "b"]
        await request("a")

    asyncio.run(scene())


def test_a_body_comes_whole_and_in_time() -> None:
    async def scene() -> None:
        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b"x" * 30}

        async def gone() -> MutableMapping[str, Any]:
            return {"type": "http.disconnect"}

        async def silent() -> MutableMapping[str, Any]:
            await asyncio.sleep(1)
            return {}

        assert await whole_body(receive, 90, within_s=1) == b"x" * 90
        assert await whole_body(gone, 0, within_s=1) == b""
        for fault, error in ((gone, GoneError), (silent, RefusedError)):
            with pytest.raises(error):
                await whole_body(fault, 30, within_s=0.05)

    asyncio.run(scene())
