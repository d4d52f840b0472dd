"""Compares this machine's clock with the cache's: at the steward's start, and later."""

import time
from collections.abc import Callable
from typing import Final

from features.common.errors import PushError
from features.common.times import as_of_label
from features.common.units import roughly
from prefetch.target import CacheTarget

WRONG_S: Final = 86_400.0
"""If the clocks differ by more at the start, ages and pins have no meaning."""
_END_S: Final = 4_102_444_800
_LEAST_SKEW_S: Final = 1.0
"""Less is not seen: two readings of one clock differ, and a server reports whole seconds."""


class Clock:
    """`now_s`, s since 1970, and how far it can be trusted. `max_skew_s`: beyond it there is an alarm.

    At the steward's start it showed `started_s`, and the machine had run for `booted_s` (see `uptime_s`).
    `was_wrong_at_start`: it was in doubt or set before it was first trusted, and is not in doubt now.
    """

    def __init__(
        self,
        target: CacheTarget,
        now_s: Callable[[], float],
        *,
        max_skew_s: float,
        started_s: float,
        booted_s: float,
    ) -> None:
        self.was_wrong_at_start = False
        self._target, self._now_s, self._max_skew_s = target, now_s, max(max_skew_s, _LEAST_SKEW_S)
        self._started_s, self._booted_s = started_s, booted_s
        self._is_believed = False
        self._doubted = abs(now_s() - self.steady_s) > self._max_skew_s

    @property
    def steady_s(self) -> float:
        """The time by the clock as it was at the start, however it was set since; s since 1970."""
        return self._started_s + uptime_s() - self._booted_s

    def doubt(self, newest_s: float | None) -> str | None:
        """Why decisions must not go by this clock; None once it has agreed with the server and its records.

        `newest_s`: the newest use that the cache has recorded, s since 1970; None if there is none.
        """
        if self._is_believed:
            return None
        doubt = self._differs(newest_s)
        self._is_believed, self._doubted = doubt is None, self._doubted or doubt is not None
        self.was_wrong_at_start = self._is_believed and self._doubted
        return doubt

    def fault(self) -> str | None:
        if abs(step_s := self._now_s() - self.steady_s) > self._max_skew_s:
            return (
                f"this machine's clock was set by {step_s:.0f} s since the steward's start: pins of "
                "either time are kept; restart it when the clock is right"
            )
        if abs(skew_s := self._skew_s()) > self._max_skew_s:
            return f"{_skewed(skew_s)}: the order of eviction is blurred; set the clocks by NTP"
        return None

    def _differs(self, newest_s: float | None) -> str | None:
        if abs(skew_s := self._skew_s()) > WRONG_S:
            return f"{_skewed(skew_s)}; set the clocks by NTP"
        ago_s = 0.0 if newest_s is None else self._now_s() - newest_s
        if newest_s is None or abs(ago_s) <= WRONG_S:
            return None
        when = "before" if ago_s > 0 else "after"
        return (
            f"the newest use that the cache has recorded is of {_label(newest_s)}, "
            f"{roughly(int(abs(ago_s)))} {when} this machine's time: set the clock by NTP; if it is "
            "right, the next read ends this"
        )

    def _skew_s(self) -> float:
        """How far the cache's clock is ahead; 0 while its server does not answer."""
        try:
            return self._target.clock_skew_s()
        except PushError:
            return 0.0


def _label(at_s: float) -> str:
    return as_of_label(int(at_s)) if 0 <= at_s < _END_S else f"{at_s:.0f} s since 1970"


def _skewed(skew_s: float) -> str:
    return f"the cache's clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} ours"


def uptime_s() -> float:
    """Seconds since the machine started, whatever its clock is set to."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
