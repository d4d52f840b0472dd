"""The part of a replay that is counted."""

from __future__ import annotations

from typing import NamedTuple

from features.common.errors import InputError
from features.common.times import as_of_label
from replay.trace import Trace


class Window(NamedTuple):
    """Accesses from index `first` on, at or after `count_from_s`, count; earlier ones warm the cache."""

    count_from_s: int
    first: int


def window(trace: Trace, count_from_s: int | None) -> Window:
    """The window from `count_from_s`; None counts every access. Raises InputError if it has no access."""
    if count_from_s is None:
        return Window(int(trace.time_s[0]), 0)
    first = trace.first_at(count_from_s)
    if first == trace.n_accesses:
        raise InputError(
            f"{as_of_label(count_from_s)}, from which accesses count, is after the last access at "
            f"{as_of_label(int(trace.time_s[-1]))}; give an earlier --from"
        )
    return Window(max(count_from_s, int(trace.time_s[0])), first)
