"""Uses of one file: each is looked at once, however many closes are reported."""

from __future__ import annotations

from prefetch.steward.readers import FileUses, Use


def use(begin_s: int) -> Use:
    return Use(file=1, reader=0, begin_s=begin_s, end_s=begin_s + 1, seen_s=begin_s, n_blocks=1, holds=True)


def test_each_use_is_given_once_as_begun_and_once_as_ended() -> None:
    uses, first, second, third = FileUses(), use(10), use(11), use(20)
    for one in (third, first, second):
        uses.add(one)
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
        uses.add(one := use(begin_s))
        uses.end(one)
    assert max(len(uses._begun), len(uses._ended)) < 100
