"""One try of one plan item: ask the cache, act only if needed, ask again. Knows no journal and no threads."""

import dataclasses
import math
import time
from collections.abc import Callable

from features.common.errors import InputError, PushRejected, SourceUnavailable, TargetUnavailable
from features.common.units import duration_label
from prefetch.actions import Action, ItemState
from prefetch.journal.tables import CLOCK_SLACK_S, Item, Receipt
from prefetch.push.origins import SourceLimits
from prefetch.target import CLOCK_ERROR_S, CacheTarget, Confirmation, Held

_POLL_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
# A server that keeps open files removes others within milliseconds.
_EVICTED_WITHIN_S = 5.0


class _Unconfirmed(TargetUnavailable):
    """The cache accepted a request, and does not show in time that it is done."""


@dataclasses.dataclass(frozen=True)
class PushLimits:
    """Bounds of a push.

    `parallel`: files at once. `bytes_per_s`: prefetched on average; None: any. `timeout_s`: of one try of a
    file. `attempts`: tries of an item before it is failed. `retry_after_s`: pause after a failed try, times
    the tries so far. `touch_every_s`: a pinned file is renewed when its last use is older; None: half the age
    at which the cache drops files. `breaker`: the push ends when the cache was unavailable so often in a row.
    `evicts` False: evictions stay planned, for the cache's steward.

    For a server that removes open files: `evict_guard_s`: a file used less than this ago, by the cache's
    clock, stays; `max_clock_skew_s`: all files stay if that clock is further off; `is_open`: whether a
    process of this machine has a file open, asked right before an eviction.
    """

    parallel: int = 8
    bytes_per_s: int | None = None
    timeout_s: float = 60.0
    attempts: int = 3
    retry_after_s: float = 5.0
    touch_every_s: int | None = 6 * 3600
    breaker: int = 5
    evict_guard_s: int = 600
    max_clock_skew_s: int = 60
    evicts: bool = True
    is_open: Callable[[str], bool] | None = None
    sources: SourceLimits = dataclasses.field(default_factory=SourceLimits)


def attempt(target: CacheTarget, item: Item, limits: PushLimits, now_s: Callable[[], float]) -> Receipt:
    """Try `item` once and return its receipt; errors of the cache are part of it."""
    started = time.monotonic()
    again = ItemState.PLANNED if item.attempts < limits.attempts else ItemState.FAILED
    try:
        receipt = _CARRY_OUT[item.action](target, item, limits, now_s)
    except (PushRejected, InputError) as error:  # also a record that the cache damages just now
        receipt = Receipt(ItemState.FAILED, error=str(error), fault="file")
    except SourceUnavailable as error:
        receipt = Receipt(again, error=str(error), fault="source")
    except TargetUnavailable as error:
        receipt = Receipt(again, error=str(error), fault="cache")
    return dataclasses.replace(receipt, seconds=time.monotonic() - started)


def renewal(
    target: CacheTarget, name: str, limits: PushLimits, now_s: Callable[[], float]
) -> tuple[Confirmation, float]:
    """Keep `name` from the next purge. Return what the cache confirms, and the last use, s since 1970.

    A file is touched only if its last use is older than `touch_every_s`, and its record readable, as the use
    is written there. Raises PushRejected if the server confirms that it does not hold the file.
    """
    assert limits.touch_every_s is not None
    now = now_s()
    before = _confirmed(target, name)
    if before.held is None:
        raise PushRejected("the cache does not hold it any more")
    if before.held.is_open or before.held.unreadable:
        return before, now
    last_s = before.held.last_detach_s
    if last_s is not None and last_s > now + CLOCK_SLACK_S:
        last_s = None  # of a wrong clock or a forged datagram: nobody knows when it was used
    if last_s is not None and last_s > now - limits.touch_every_s:
        return before, last_s
    deadline = time.monotonic() + limits.timeout_s
    target.touch(name, timeout_s=limits.timeout_s)
    # Times are whole seconds: a file used in this very second shows no later one.
    renewed_s = min((last_s or 0) + 1, int(now))

    def renewed(held: Held | None) -> bool:
        # Without any ended use before, the cache is still busy with the first one, and counts ours to it.
        return held is not None and (
            last_s is None or held.is_open or (held.last_detach_s or -math.inf) >= renewed_s
        )

    after = _await(target, name, renewed, deadline)
    used_s = (after.held.last_detach_s if after.held else None) or 0
    return after, max(now, float(used_s) if used_s <= now + CLOCK_SLACK_S else now)


def _prefetch(target: CacheTarget, item: Item, limits: PushLimits, _now_s: Callable[[], float]) -> Receipt:
    deadline = time.monotonic() + limits.timeout_s
    before = target.confirm(item.name)
    _check_readable(before)
    if before.held is not None and before.held.complete:
        _check_size(item, before.held.size_bytes, "the cache holds a complete file")
        return Receipt(ItemState.DONE, confirmed_by=before.source, already=True)
    had = 0 if before.held is None else before.held.bytes_on_disk
    size = target.prefetch(item.name, timeout_s=limits.timeout_s)
    _check_size(item, size, "its source has a file")
    after = _await(target, item.name, lambda held: held is not None and held.complete, deadline)
    return Receipt(ItemState.DONE, bytes=max(0, size - had), confirmed_by=after.source)


def _pin(target: CacheTarget, item: Item, limits: PushLimits, now_s: Callable[[], float]) -> Receipt:
    now = now_s()
    confirmed, renewed_at_s = renewal(target, item.name, limits, now_s)
    _check_readable(confirmed)
    was_renewed, by = renewed_at_s < now, confirmed.source
    return Receipt(ItemState.DONE, confirmed_by=by, renewed_at_s=renewed_at_s, already=was_renewed)


def _evict(target: CacheTarget, item: Item, limits: PushLimits, now_s: Callable[[], float]) -> Receipt:
    deadline = time.monotonic() + limits.timeout_s
    before = _confirmed(target, item.name)
    if before.held is None:
        return Receipt(ItemState.DONE, confirmed_by=before.source, already=True)
    keeps_open = not target.removes_open_files()
    _check_unused(target, before.held, limits, now_s, keeps_open=keeps_open)
    _evict_and_wait(target, item.name, limits, deadline, keeps_open=keeps_open)
    after = target.confirm_absent(item.name)
    return Receipt(ItemState.DONE, bytes=before.held.bytes_on_disk, confirmed_by=after.source)


_CARRY_OUT = {
    Action.PREFETCH: _prefetch,
    Action.PIN: _pin,
    # The cache needs no request: an unpinned file is one that is not renewed.
    Action.UNPIN: lambda *_: Receipt(ItemState.DONE),
    Action.EVICT: _evict,
}


def _check_size(item: Item, size_bytes: int, what: str) -> None:
    if item.size_bytes and size_bytes != item.size_bytes:
        raise PushRejected(
            f"{what} of {size_bytes} bytes, the plan expects {item.size_bytes}: it changed at its "
            "source; evict it, and pull the catalogue again"
        )


def _confirmed(target: CacheTarget, name: str) -> Confirmation:
    """What the cache's records say of `name`; where they show nothing, what the server confirms."""
    confirmed = target.confirm(name)
    return target.confirm_absent(name) if confirmed.held is None else confirmed


def _check_readable(confirmed: Confirmation) -> None:
    if confirmed.held is not None and confirmed.held.unreadable:
        raise PushRejected(
            f"its record ({confirmed.source}) is damaged, and no read repairs it: evict it, then fetch it "
            "again"
        )


def _check_unused(
    target: CacheTarget, held: Held, limits: PushLimits, now_s: Callable[[], float], *, keeps_open: bool
) -> None:
    if held.is_open:
        raise PushRejected("in use: a job reads it, so it stays")
    if keeps_open or not limits.evict_guard_s:
        return
    # The end of the last use is by the cache's clock. By whichever clock it is younger, it counts.
    earliest_s = now_s() + min(0.0, _skew_s(target, limits))
    if held.last_detach_s is None or held.last_detach_s > earliest_s - limits.evict_guard_s:
        raise PushRejected(
            f"used within the last {duration_label(limits.evict_guard_s)}, or never closed: this server "
            "would remove it from under a job that has opened it meanwhile"
        )


def _skew_s(target: CacheTarget, limits: PushLimits) -> float:
    """The least that the cache's clock is ahead of ours. Raises PushRejected beyond `max_clock_skew_s`."""
    skew_s = target.clock_skew_s()
    if abs(skew_s) > limits.max_clock_skew_s:
        raise PushRejected(
            f"the cache's clock is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} ours, and "
            f"{limits.max_clock_skew_s} s are allowed: the last use of a file is uncertain; set the "
            "clocks by NTP"
        )
    return skew_s - CLOCK_ERROR_S


def _evict_and_wait(
    target: CacheTarget, name: str, limits: PushLimits, deadline: float, *, keeps_open: bool
) -> None:
    """Ask the cache to drop `name`, and wait until it shows nothing of it.

    Raises PushRejected if the server answers and keeps the file, for which it gives no reason, and
    TargetUnavailable if a server that removes open files took the place of one that keeps them.
    """
    if keeps_open and target.removes_open_files():
        raise TargetUnavailable("an older server was started meanwhile, which removes open files")
    until = min(deadline, time.monotonic() + _EVICTED_WITHIN_S) if keeps_open else deadline
    if limits.is_open is not None and not keeps_open and limits.is_open(name):
        raise PushRejected("in use: a job has opened it meanwhile")
    target.evict(name, timeout_s=limits.timeout_s)
    try:
        _await(target, name, lambda held: held is None, until)
    except _Unconfirmed:
        if not keeps_open:
            raise
        target.identity()  # raises if it does not answer
        raise PushRejected("in use: the server keeps it, as a file that is open or being fetched") from None


def _await(
    target: CacheTarget, name: str, holds: Callable[[Held | None], bool], deadline: float
) -> Confirmation:
    """Wait until the cache confirms `holds`. Raises _Unconfirmed if it does not by `deadline`."""
    n_asked = 0
    while True:
        confirmed = target.confirm(name)
        if holds(confirmed.held):
            return confirmed
        pause_s = _POLL_S[min(n_asked, len(_POLL_S) - 1)]
        if time.monotonic() + pause_s > deadline:
            held, on_disk = confirmed.held, "no byte of it"
            if held is not None:
                on_disk = f"{held.bytes_on_disk} of {held.size_bytes} bytes"
            raise _Unconfirmed(
                "the cache accepted the request, but does not confirm it: "
                f"{on_disk} on disk ({confirmed.source})"
            )
        time.sleep(pause_s)
        n_asked += 1
