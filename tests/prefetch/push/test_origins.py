from __future__ import annotations

from prefetch.journal.tables import Try
from prefetch.push.origins import SourceHealth, SourceLimits
from prefetch.push.renewals import UNMEASURED_S, touch_every_s
from prefetch.target import Held


def tries(source: str, n_failed: int, n_good: int, at_s: float = 1000) -> list[Try]:
    failed = [Try(source, at_s, 30.0, True)] * n_failed
    return failed + [Try(source, at_s, 1.0, False)] * n_good


def test_a_source_is_left_alone_while_most_of_its_last_tries_failed() -> None:
    seen = [*tries("few", 4, 0), *tries("half", 5, 5), *tries("bad", 4, 3), *tries("", 9, 0)]
    sources = SourceHealth(SourceLimits(0.5, 600), seen)
    left = sources.left_alone(1500)
    assert [state.source for state in left] == ["", "bad"]
    assert str(left[0]) == "the cache's own origin: 9 of 9 tries failed, 270 s wasted"
    assert [(state.source, state.failed) for state in sources.states(1500)] == [
        ("", 9),
        ("half", 5),
        ("bad", 4),
        ("few", 4),
    ]
    assert sources.left_alone(1600) and not sources.left_alone(1601) and not sources.states(1601)
    sources.note(Try("bad", 1700, 1.0, True))
    assert not sources.left_alone(1701)


def held(name: str, last_detach_s: int | None, *, is_open: bool = False) -> Held:
    return Held(name, 1, 1, True, last_detach_s, is_open)


def test_touches_are_due_at_half_the_age_of_what_nothing_keeps() -> None:
    files = [held("pinned", 0), held("open", 100, is_open=True), held("never", None), held("old", 200)]
    assert touch_every_s([*files, held("young", 900)], {"pinned"}, 1000) == 400
    assert touch_every_s(files[:3], {"pinned"}, 1000) == UNMEASURED_S
    assert touch_every_s([held("now", 1000)], set(), 1000) == 1
