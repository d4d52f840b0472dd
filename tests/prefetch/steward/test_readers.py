"""Names and readers by number; uses of one file, each looked at once."""

import random
import tracemalloc

import pytest

from prefetch.steward import feed
from prefetch.steward.book import Names
from prefetch.steward.feed import NOBODY, Readers
from prefetch.steward.follower import FileUses, Use
from prefetch.xcache.fstream import Login, Work


def logged_in(*kinds: str) -> Readers:
    """Sessions 1 and 2 of alice, of which 2 works for a job, 3 of bob, 4 of nobody."""
    readers = Readers(kinds)
    for number, user in enumerate(("alice", "alice", "bob", ""), start=1):
        readers.note(Login(9, 7, number, f"{number}", user))
    readers.note(Work(9, 7, "2", "job"))
    readers.note(Work(9, 7, "unheard of", "job"))
    return readers


def numbers(readers: Readers, stod: int = 9) -> list[int]:
    return [readers.number(stod, 7, user_id) for user_id in range(6)]


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
    monkeypatch.setattr(feed, "MOST_SESSIONS", 2)
    readers = logged_in("user")
    assert [number == NOBODY for number in numbers(readers)] == [True, True, True, False, True, True]
    assert len(readers._sessions) == len(readers._by_name) == 2


def use(begin_s: int) -> Use:
    return Use(file=1, reader=0, begin_s=begin_s, end_s=begin_s + 1, seen_s=begin_s, n_blocks=1, holds=True)


def test_each_use_is_given_once_as_begun_and_once_as_ended() -> None:
    uses, first, second, third = FileUses(), use(10), use(11), use(20)
    for reader in (third, first, second):
        uses.add(reader)
    assert list(uses.ended_by(11)) == [first]
    assert list(uses.begun_by(11)) == [first, second]
    assert not list(uses.begun_by(19))
    assert list(uses.ended_by(19)) == [second]
    assert list(uses.begun_by(10**9)) == [third]
    assert uses.seen_s == 20


def test_a_use_that_is_over_is_given_no_more() -> None:
    uses, first, second = FileUses(), use(10), use(11)
    uses.add(first)
    uses.add(second)
    uses.end(first)
    assert uses.n_open == 1
    assert list(uses.begun_by(99)) == list(uses.ended_by(99)) == [second]


def test_opens_that_come_and_go_take_no_memory() -> None:
    uses = FileUses()
    uses.add(use(10**6))
    for begin_s in range(10_000):
        uses.add(reader := use(begin_s))
        uses.end(reader)
    assert max(len(uses._begun), len(uses._ended)) < 100


CHARACTERS = ["a", "é", "\udc80", "/", "\U0001f600", ""]


def test_names_are_numbered_as_a_dictionary_would() -> None:
    chance, names, plain = random.Random(1), Names(), dict[str, int]()
    for _ in range(10_000):
        name = "".join(chance.choices(CHARACTERS, k=6)) + str(chance.randrange(500))
        assert names.find(name) == plain.get(name)
        assert names.add(name) == plain.setdefault(name, len(plain))
    assert [names[number] for number in range(len(names))] == list(plain)


def test_a_name_takes_little_more_than_its_text() -> None:
    tracemalloc.start()
    names = Names()
    for number in range(2**14):
        names.add(f"{number:0100}")
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / len(names) < 140
