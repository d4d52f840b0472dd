"""The health of the origins that files come from: which of them a push does not use for now."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefetch.journal.tables import Try


UNKNOWN = "the cache's own origin"
FEW = 5
"""Fewer tries of a source do not count."""


@dataclasses.dataclass(frozen=True)
class SourceLimits:
    """A source is left alone if more than the share `failures` of its last tries failed, of FEW at least.

    Tries are forgotten after `reconsider_s` seconds, so that the source is tried again.
    """

    failures: float = 0.5
    reconsider_s: float = 1800.0


@dataclasses.dataclass(frozen=True)
class SourceState:
    """A source's last tries: how many, how many of them failed, and the seconds that those wasted."""

    source: str
    tries: int
    failed: int
    wasted_s: float
    left_alone: bool

    def __str__(self) -> str:
        """In words an operator reads."""
        what = f"{self.failed} of {self.tries} tries failed, {self.wasted_s:.0f} s wasted"
        return f"{self.source or UNKNOWN}: {what}"


class SourceHealth:
    """The recent tries of each source."""

    def __init__(self, limits: SourceLimits, fetches: Iterable[Try]) -> None:
        self._limits = limits
        self._seen = collections.defaultdict[str, _Seen](_Seen)
        for fetch in fetches:
            self.note(fetch)

    def note(self, fetch: Try) -> None:
        self._seen[fetch.source].add(fetch)

    def states(self, now_s: float) -> list[SourceState]:
        """Every source with a try that is not forgotten, the worst first."""
        states = [self._state(source, now_s) for source in self._seen]
        return sorted(
            (state for state in states if state.tries), key=lambda state: (-state.failed, state.source)
        )

    def left_alone(self, now_s: float) -> list[SourceState]:
        return [state for state in self.states(now_s) if state.left_alone]

    def leaves(self, source: str, now_s: float) -> bool:
        return source in self._seen and self._state(source, now_s).left_alone

    def _state(self, source: str, now_s: float) -> SourceState:
        recent = self._seen[source]
        recent.forget(now_s - self._limits.reconsider_s)
        n_tries = len(recent.tries)
        bad = n_tries >= FEW and recent.n_failed > self._limits.failures * n_tries
        return SourceState(source, n_tries, recent.n_failed, recent.wasted_s, bad)


@dataclasses.dataclass
class _Seen:
    """The last tries of one source, with their sums: a push asks for them with every file."""

    tries: collections.deque[Try] = dataclasses.field(default_factory=collections.deque)
    n_failed: int = 0
    wasted_s: float = 0.0

    def add(self, fetch: Try) -> None:
        self.tries.append(fetch)
        self._count(fetch, 1)

    def forget(self, before_s: float) -> None:
        while self.tries and self.tries[0].at_s < before_s:
            self._count(self.tries.popleft(), -1)

    def _count(self, fetch: Try, times: int) -> None:
        if fetch.failed:
            self.n_failed += times
            self.wasted_s += times * fetch.seconds
