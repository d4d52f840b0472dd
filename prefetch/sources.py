"""The health of the origins that files come from: which of them a push leaves alone for now."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable

UNKNOWN = "the cache's own origin"
FEW = 5
"""So many tries of a source say nothing about it yet."""


@dataclasses.dataclass(frozen=True)
class Try:
    """One try to fetch from `source` (empty: not known) that ended at `at_s`, s since 1970."""

    source: str
    at_s: float
    seconds: float
    failed: bool


@dataclasses.dataclass(frozen=True)
class SourceLimits:
    """A source is left alone that failed more than `failures` of its last tries, of FEW at least.

    After `reconsider_s` they are forgotten, and it is tried again.
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


class Sources:
    """What was seen of each source lately."""

    def __init__(self, limits: SourceLimits, seen: Iterable[Try]) -> None:
        self._limits = limits
        self._tries = collections.defaultdict[str, collections.deque[Try]](collections.deque)
        for one in seen:
            self.note(one)

    def note(self, one: Try) -> None:
        """Count a try; they come in the order of their ends."""
        self._tries[one.source].append(one)

    def states(self, now_s: float) -> list[SourceState]:
        """Every source with a try that is not forgotten, the worst first."""
        for tries in self._tries.values():
            while tries and tries[0].at_s < now_s - self._limits.reconsider_s:
                tries.popleft()
        found = [self._state(source, tries) for source, tries in self._tries.items() if tries]
        return sorted(found, key=lambda state: (-state.failed, state.source))

    def left_alone(self, now_s: float) -> list[SourceState]:
        """The sources from which nothing is fetched now."""
        return [state for state in self.states(now_s) if state.left_alone]

    def _state(self, source: str, tries: Iterable[Try]) -> SourceState:
        lost = [one.seconds for one in tries if one.failed]
        n_tries = len(list(tries))
        bad = n_tries >= FEW and len(lost) > self._limits.failures * n_tries
        return SourceState(source, n_tries, len(lost), sum(lost), bad)
