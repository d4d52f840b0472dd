"""One try of one plan item: ask the cache, act only if needed, ask again. Knows no journal and no threads."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from features.errors import PushRejected, TargetUnavailable
from prefetch.journal import Item, Receipt
from prefetch.target import CacheTarget, Confirmation, Held

_POLL_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclasses.dataclass(frozen=True)
class PushLimits:
    """Bounds of a push.

    `parallel`: files at once. `timeout_s`: per try of a file, confirmation included. `attempts`: tries before
    an item is failed. `touch_every_s`: a pinned file is renewed when its last use is older. `breaker`: this
    many times in a row away, and the rest is left planned.
    """

    parallel: int = 8
    timeout_s: float = 60.0
    attempts: int = 3
    touch_every_s: int = 6 * 3600
    breaker: int = 5


@dataclasses.dataclass(frozen=True)
class Tried:
    """A receipt, and what it does not hold: `already` so without us; the cache was `away`."""

    receipt: Receipt
    already: bool = False
    away: bool = False


def attempt(target: CacheTarget, item: Item, limits: PushLimits, now_s: Callable[[], float]) -> Tried:
    """What one try of `item` came to; errors of the cache become its receipt."""
    started = time.monotonic()
    try:
        tried = _VERBS[item.action](target, item, limits, now_s)
    except PushRejected as error:
        tried = Tried(Receipt("failed", error=str(error)))
    except TargetUnavailable as error:
        state = "planned" if item.attempts < limits.attempts else "failed"
        tried = Tried(Receipt(state, error=str(error)), away=True)
    receipt = dataclasses.replace(tried.receipt, seconds=time.monotonic() - started)
    return dataclasses.replace(tried, receipt=receipt)


def renewal(
    target: CacheTarget, name: str, limits: PushLimits, now_s: Callable[[], float]
) -> tuple[Confirmation, float]:
    """Keep `name` from the next purge: what the cache then says, and the file's last use, s since 1970.

    Touches only a file whose last use is older than `touch_every_s`. Raises PushRejected if the cache does
    not hold it.
    """
    now = now_s()
    before = target.confirm(name)
    if before.held is None:
        raise PushRejected("the cache does not hold it any more")
    if before.held.is_open:
        return before, now
    last_s = before.held.last_detach_s
    if last_s is not None and last_s > now - limits.touch_every_s:
        return before, last_s
    deadline = time.monotonic() + limits.timeout_s
    target.touch(name, timeout_s=limits.timeout_s)
    # Times are whole seconds: a file used in this very second shows no later one.
    renewed_s = min((last_s or 0) + 1, int(now))

    def renewed(held: Held | None) -> bool:
        # Without any ended use before, the cache is still busy with the first one, and counts ours to it.
        return held is not None and (last_s is None or _used_since(held, renewed_s))

    after = _await(target, name, renewed, deadline)
    return after, max(now, float((after.held.last_detach_s if after.held else None) or 0))


def _prefetch(target: CacheTarget, item: Item, limits: PushLimits, _now_s: Callable[[], float]) -> Tried:
    deadline = time.monotonic() + limits.timeout_s
    before = target.confirm(item.name)
    if before.held is not None and before.held.complete:
        return Tried(Receipt("done", confirmed_by=before.source), already=True)
    had = 0 if before.held is None else before.held.bytes_on_disk
    size = target.prefetch(item.name, timeout_s=limits.timeout_s)
    after = _await(target, item.name, lambda held: held is not None and held.complete, deadline)
    return Tried(Receipt("done", bytes=max(0, size - had), confirmed_by=after.source))


def _pin(target: CacheTarget, item: Item, limits: PushLimits, now_s: Callable[[], float]) -> Tried:
    now = now_s()
    word, renewed_at_s = renewal(target, item.name, limits, now_s)
    receipt = Receipt("done", confirmed_by=word.source, renewed_at_s=renewed_at_s)
    return Tried(receipt, already=renewed_at_s < now)


def _unpin(_target: CacheTarget, _item: Item, _limits: PushLimits, _now_s: Callable[[], float]) -> Tried:
    # Nothing to tell the cache: an unpinned file is one that is not renewed.
    return Tried(Receipt("done"))


def _evict(target: CacheTarget, item: Item, limits: PushLimits, _now_s: Callable[[], float]) -> Tried:
    deadline = time.monotonic() + limits.timeout_s
    before = target.confirm(item.name)
    if before.held is None:
        return Tried(Receipt("done", confirmed_by=before.source), already=True)
    if before.held.is_open:
        raise PushRejected("in use: a job reads it, so it stays")
    target.evict(item.name, timeout_s=limits.timeout_s)
    after = _await(target, item.name, lambda held: held is None, deadline)
    return Tried(Receipt("done", bytes=before.held.bytes_on_disk, confirmed_by=after.source))


_VERBS = {"prefetch": _prefetch, "pin": _pin, "unpin": _unpin, "evict": _evict}


def _used_since(held: Held, at_s: int) -> bool:
    return held.is_open or (held.last_detach_s is not None and held.last_detach_s >= at_s)


def _await(
    target: CacheTarget, name: str, so: Callable[[Held | None], bool], deadline: float
) -> Confirmation:
    """The cache's word once it is `so`. Raises TargetUnavailable if it is not by `deadline`."""
    n_asked = 0
    while True:
        word = target.confirm(name)
        if so(word.held):
            return word
        pause_s = _POLL_S[min(n_asked, len(_POLL_S) - 1)]
        if time.monotonic() + pause_s > deadline:
            raise TargetUnavailable(f"the cache took the request, but does not confirm it ({word.source})")
        time.sleep(pause_s)
        n_asked += 1
