"""Readers by number: one for each task or user or session, whichever an order was told of."""

from __future__ import annotations

import pytest

from prefetch.steward import readers
from prefetch.steward.readers import NOBODY, Readers
from prefetch.xcache.fstream import Login, Work


def logged_in(*kinds: str) -> Readers:
    """Sessions 1 and 2 of alice, of which 2 works for a job, 3 of bob, 4 of nobody."""
    found = Readers(kinds)
    for number, user in enumerate(("alice", "alice", "bob", ""), start=1):
        found.note(Login(9, 7, number, f"{number}", user))
    found.note(Work(9, 7, "2", "job"))
    found.note(Work(9, 7, "unheard of", "job"))
    return found


def numbers(found: Readers, stod: int = 9) -> list[int]:
    return [found.number(stod, 7, user_id) for user_id in range(6)]


def test_readers_are_those_that_the_order_was_told_of() -> None:
    nobody, alice, again, bob, unnamed, unknown = numbers(logged_in("user"))
    assert alice == again != bob and nobody == unnamed == unknown == NOBODY
    assert alice % 2 == bob % 2 == 1 and max(alice, bob) < 2**53
    both = numbers(logged_in("user", "task"))
    assert both[1] == alice and both[2] % 2 == 0 < both[2] and both[3] == bob
    assert numbers(logged_in("task")) == [0, 0, both[2], 0, 0, 0]
    of_sessions = numbers(logged_in("session"))
    assert of_sessions[0] == NOBODY and len(set(of_sessions)) == 6
    assert numbers(logged_in()) == [NOBODY] * 6 and not logged_in()


def test_a_server_that_was_started_again_has_other_sessions() -> None:
    assert numbers(logged_in("user"), stod=10) == [NOBODY] * 6


def test_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MOST_SESSIONS", 2)
    found = logged_in("user")
    assert [number == NOBODY for number in numbers(found)] == [True, True, True, False, True, True]
    assert len(found._sessions) == len(found._by_name) == 2
