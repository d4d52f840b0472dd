"""How much a steward may evict, and the evictions under way."""

import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from features.common.times import DAY_S, HOUR_S
from features.common.units import format_bytes
from prefetch.actions import Action
from prefetch.journal.tables import Item, Receipt
from prefetch.push.attempt import PushLimits
from prefetch.push.limiter import Breaker
from prefetch.push.worker import Worker
from prefetch.steward.fill import OWN_DISK_SHARE, DataDisks, Inflow, Miscount
from prefetch.target import CacheTarget, LeftOut

LEAST_SHARE: Final = 0.05
"""Share of the bytes between the watermarks that always stays free."""
_BELOW_ONE_MARK: Final = 0.05
"""Share of the capacity that stands for the bytes between the watermarks where these are equal."""
_MOST_FORCED: Final = 0.6
"""Share of a cache whose eviction by force is advised: of more, a figure is wrong, and no cache too full."""
_NAME_CHARS: Final = 80


class Marks(NamedTuple):
    """`low`, `high`: watermarks as shares of the capacity; `look_s`: seconds between looks at the disk."""

    low: float
    high: float
    look_s: float


class Budget:
    """The use of one cache's disk compared with its watermarks, in bytes.

    In any hour no more is evicted than the disk received in it, plus what has to be free at a look, and
    `LEAST_SHARE` in one hour of a day. At the start more may go, as XCache looks at its disk only every few
    minutes: as many bytes above the high watermark as there are between the watermarks, and with `force` all
    bytes above it. A larger excess can only be due to a wrong figure: then nothing is evicted.
    """

    def __init__(
        self,
        usage: DataDisks,
        marks: Marks,
        *,
        force: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.used_bytes = 0
        self._usage, self._marks, self._force, self._clock = usage, marks, force, clock
        self._inflow, self._miscount = Inflow(marks.look_s), Miscount()
        self._measures = usage.measures
        self._began_s = clock()
        self._above_at_start: int | None = None
        self._left_out = LeftOut()
        self._leaned_s = -math.inf

    @property
    def is_measured(self) -> bool:
        """Whether `used_bytes` was measured; else it is 0."""
        return self._above_at_start is not None

    @property
    def high_bytes(self) -> int:
        return int(self._marks.high * self._usage.capacity_bytes)

    @property
    def target_bytes(self) -> int:
        """Bytes in use above which files are evicted: `high_bytes` less what may come until the next look."""
        free = self._inflow.headroom(unmeasured=self._between // 2)
        return self.high_bytes - min(max(free, int(LEAST_SHARE * self._between)), self._between)

    @property
    def inflow_bytes(self) -> int:
        """The 99 % quantile of the bytes that arrive between two looks; 0 before the first two."""
        return self._inflow.headroom(unmeasured=0)

    @property
    def excess_bytes(self) -> int:
        """Bytes to evict; negative if there is room. What was evicted just now is given time to get free."""
        return self.used_bytes - self._inflow.being_freed_bytes - self.target_bytes

    def measure(
        self, held_bytes: int, growing: Sequence[tuple[str, int]], evicted_bytes: int, left_out: LeftOut
    ) -> None:
        """Measure the disk. `held_bytes`, `growing`: see `DataDisks.used_bytes`, without those `left_out`;
        `evicted_bytes`: since the start.

        Raises TargetUnavailable.
        """
        self._left_out = left_out
        self.used_bytes = self._usage.used_bytes(held_bytes + left_out.n_bytes, growing)
        if self._measures != self._usage.measures:  # other file systems: what was in use there did not arrive
            self._measures, self._inflow = self._usage.measures, Inflow(self._marks.look_s)
        self._inflow.note(self._clock(), self.used_bytes, evicted_bytes, self._usage.others_bytes)
        self._miscount.note(self._usage.server_count(), self.used_bytes)
        if self._above_at_start is None:
            above = max(0, self.used_bytes - self.high_bytes)
            self._above_at_start = above if self._force else min(above, self._between)
        if self._allowance - self._slack < self.excess_bytes <= self._allowance and self._is_slack_unused:
            self._leaned_s = self._clock()

    @property
    def miscounted_bytes(self) -> int:
        """Bytes that the server counts but its disk never had; 0 unless they make it purge too early."""
        excess = self._miscount.excess_bytes
        return excess if excess > self.high_bytes - self.target_bytes else 0

    @property
    def may_evict(self) -> bool:
        """Whether the excess is small enough to be true, and consists of files that can be evicted."""
        return self.excess_bytes <= self._allowance and self._misused is None

    @property
    def _misused(self) -> str | None:
        """Why evictions gain nothing, or too little of the cache can be evicted, in words; None: neither."""
        inflow, capacity = self._inflow, self._usage.capacity_bytes
        if 2 * inflow.unfreed_bytes > max(inflow.removed_bytes, LEAST_SHARE * self._between):
            unfreed, removed = map(format_bytes, (inflow.unfreed_bytes, inflow.removed_bytes))
            return (
                f"{unfreed} of the {removed} evicted in the last hour are still in use on the cache's disks: "
                "a snapshot has them, a process has them open or mapped, the file system frees late, or "
                "others write there; nothing is evicted until they are free"
            )
        others = self._usage.others_bytes - inflow.being_freed_bytes
        if others > (1 - OWN_DISK_SHARE) * capacity:
            return (
                f"{format_bytes(others)} of {format_bytes(capacity)} on the cache's disks are not "
                "files of the cache: remove them, or set its capacity and watermarks as for a shared disk"
            )
        if self._left_out.n_bytes > (1 - OWN_DISK_SHARE) * capacity:
            n_files, n_bytes, names = self._left_out
            some = ", ".join(ascii(name[:_NAME_CHARS]) for name in names)
            return (
                f"{format_bytes(n_bytes)} of {format_bytes(capacity)} are in {n_files} files whose names no "
                f"command takes ({some}): only the server's own purge removes them, so nothing is evicted"
            )
        return None

    @property
    def fault(self) -> str | None:
        """Which figures contradict each other, in words; None if none do."""
        if (misused := self._misused) is not None or self.may_evict or self.used_bytes <= self.high_bytes:
            return misused
        used, high, excess = map(format_bytes, (self.used_bytes, self.high_bytes, self.excess_bytes))
        capacity, allowance = map(format_bytes, (self._usage.capacity_bytes, max(0, self._allowance)))
        remedy = "correct what is wrong"
        if self.excess_bytes <= _MOST_FORCED * self.used_bytes:
            remedy += f", or start the steward with --force, which evicts those {excess}"
        return (
            f"{excess} should go, and in an hour {allowance} may: the disk has {used}, and by capacity "
            f"({capacity}) and watermarks ({self._marks.low:g}, {self._marks.high:g}) its server purges "
            f"above {high}; nothing is evicted: {remedy}"
        )

    @property
    def _between(self) -> int:
        """Bytes between the watermarks, or below them if they are equal: a steward needs some room."""
        share = self._marks.high - self._marks.low or min(_BELOW_ONE_MARK, self._marks.high)
        return int(share * self._usage.capacity_bytes)

    @property
    def _allowance(self) -> int:
        """Most bytes to evict: what came in the last hour and was not evicted, and what must be free.

        And the `_slack`: a few bytes that are no files (damaged records) did not arrive, and for want of
        those a cache would stay as full as a burst has left it.
        """
        is_fresh = self._clock() - self._began_s < HOUR_S + 2 * self._marks.look_s
        at_start = (self._above_at_start or 0) * is_fresh
        return self._inflow.balance() + self.high_bytes - self.target_bytes + at_start + self._slack

    @property
    def _slack(self) -> int:
        """The room that always stays free once more, in one hour of a day: a neighbour may grow in each."""
        is_on = self._is_slack_unused or self._clock() - self._leaned_s < HOUR_S
        return int(LEAST_SHARE * self._between) * is_on

    @property
    def _is_slack_unused(self) -> bool:
        return self._clock() - self._leaned_s >= DAY_S


PAUSE_S: Final = 10.0
"""Seconds without evictions after the breaker opened."""


class Ended(NamedTuple):
    """An eviction that ended. `error`: None if the cache confirmed it; `was_there`: not gone before."""

    file: int
    error: str | None
    was_there: bool


class Evictions(AbstractContextManager["Evictions"]):
    """Evicts files one by one, `limits.parallel` at once, each as a push does; a context manager.

    When the cache was unavailable `limits.breaker` times in a row, nothing is begun for `PAUSE_S`; `fault`
    says why until it answers again. `last_error`: of the evictions since the last one that succeeded.
    """

    def __init__(self, target: CacheTarget, limits: PushLimits, now_s: Callable[[], float]) -> None:
        self.fault: str | None = None
        self.last_error: str | None = None
        self._target, self._limits, self._now_s = target, limits, now_s
        self._worker = Worker(target, limits, now_s)
        self._breaker = Breaker(target.name, limits.breaker)
        self._resume_at = 0.0
        self._under_way: dict[str, int] = {}

    def __exit__(self, *error: object) -> None:
        self._worker.__exit__()

    @property
    def room(self) -> int:
        return self._worker.room if time.monotonic() >= self._resume_at else 0

    @property
    def files(self) -> Collection[int]:
        return self._under_way.values()

    def begin(self, file: int, name: str) -> None:
        self._under_way[name] = file
        now_s = int(self._now_s())
        self._worker.start(Item(name, self._target.name, now_s, "", name, Action.EVICT, 0, 0, 0, now_s, 1))

    def ended(self, within_s: float) -> list[Ended]:
        return [self._note(item.name, future.result()) for item, future in self._worker.await_ended(within_s)]

    def _note(self, name: str, receipt: Receipt) -> Ended:
        self._breaker.note(receipt.error if receipt.fault == "cache" else None)
        if self._breaker.reason is not None:
            self.fault, self._resume_at = self._breaker.reason, time.monotonic() + PAUSE_S
            self._breaker = Breaker(self._target.name, self._limits.breaker)
        elif receipt.fault != "cache":
            self.fault = None
        self.last_error = receipt.error
        return Ended(self._under_way.pop(name), receipt.error, not receipt.already)
