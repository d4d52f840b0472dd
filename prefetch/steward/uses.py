"""Uses of a file that reports say are open, so that a report of its close looks at each of them once."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterator
from typing import Final, NamedTuple

_OVER_AT_MOST: Final = 64
"""So many uses that are over are kept until all of them are left out."""


class Key(NamedTuple):
    """An open file at a server: `stod` is the start of the server, `file_id` means something within it."""

    stod: int
    server_id: int
    file_id: int


@dataclasses.dataclass(slots=True)
class Use:
    """A file that `reader` opened between `begin_s` and `end_s`, known at `seen_s`, by our clock.

    `holds`: it keeps the file on disk; `is_counted`: its read was; `until_s`: nobody has the file open any
    more, so that its close comes by then; `is_over`: it is not followed any more.
    """

    file: int
    reader: int
    begin_s: int
    end_s: int
    seen_s: float
    n_blocks: int
    holds: bool
    is_counted: bool = False
    until_s: float = math.inf
    is_over: bool = False


class FileUses:
    """The uses of one file. However many closes come, each use is given once as begun and once as ended."""

    def __init__(self) -> None:
        self.n_open = 0
        self.seen_s = -math.inf
        self._number = itertools.count()
        self._begun: list[tuple[int, int, Use]] = []
        self._ended: list[tuple[int, int, Use]] = []

    def add(self, use: Use) -> None:
        """Follow a use. `seen_s` is when the newest became known."""
        number = next(self._number)
        heapq.heappush(self._begun, (use.begin_s, number, use))
        heapq.heappush(self._ended, (use.end_s, number, use))
        self.n_open += 1
        self.seen_s = max(self.seen_s, use.seen_s)

    def end(self, use: Use) -> None:
        """Follow a use no more."""
        use.is_over = True
        self.n_open -= 1
        self._begun, self._ended = self._without_over(self._begun), self._without_over(self._ended)

    def begun_by(self, at_s: int) -> Iterator[Use]:
        """Those begun until `at_s` that were not given yet, the oldest first."""
        return _until(self._begun, at_s)

    def ended_by(self, at_s: int) -> Iterator[Use]:
        """Those that may have ended until `at_s` and were not given yet, the oldest first."""
        return _until(self._ended, at_s)

    def _without_over(self, uses: list[tuple[int, int, Use]]) -> list[tuple[int, int, Use]]:
        if len(uses) <= 2 * self.n_open + _OVER_AT_MOST:
            return uses
        left = [one for one in uses if not one[2].is_over]
        heapq.heapify(left)
        return left


def _until(uses: list[tuple[int, int, Use]], at_s: int) -> Iterator[Use]:
    while uses and uses[0][0] <= at_s:
        use = heapq.heappop(uses)[2]
        if not use.is_over:
            yield use
