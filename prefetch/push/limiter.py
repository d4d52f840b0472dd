"""What holds a push back: bytes per second, sources that fail, and a cache that does not answer."""

import time
from collections.abc import Callable, Sequence

from prefetch.actions import Action, ItemState
from prefetch.journal.tables import Item, Receipt, Try
from prefetch.push.attempt import PushLimits
from prefetch.push.origins import SourceHealth, SourceState


class TokenBucket:
    """Lets a file start while no bytes are owed; every file that starts owes its size."""

    def __init__(self, bytes_per_s: int | None) -> None:
        self._rate = bytes_per_s
        self._balance = 0.0
        self._at = time.monotonic()

    def wait_s(self) -> float:
        self._fill()
        return 0.0 if self._rate is None else max(0.0, -self._balance / self._rate)

    def spend(self, n_bytes: int) -> None:
        """Add the bytes of a file that starts; a negative number gives back what it did not need."""
        self._fill()
        self._balance -= n_bytes

    def _fill(self) -> None:
        now = time.monotonic()
        if self._rate is not None:
            # Time without work is no credit for a burst later: a second's worth at most.
            self._balance = min(self._balance + self._rate * (now - self._at), float(self._rate))
        self._at = now


class Breaker:
    """Opens when `cache` was unavailable `n_failures` times in a row. `reason`: why it opened, or None."""

    def __init__(self, cache: str, n_failures: int) -> None:
        self.reason: str | None = None
        self._cache = cache
        self._most = n_failures
        self._n_failed = 0

    def note(self, error: str | None) -> None:
        """Count one try; `error`: why the cache was unavailable, None where it answered."""
        self._n_failed = 0 if error is None else self._n_failed + 1
        if self._n_failed >= self._most and self.reason is None:
            self.reason = f"cache {self._cache!r} was unavailable {self._n_failed} times in a row: {error}"


class Limiter:
    """The rate of a push, and the health of its sources; `left_alone`: those whose items were not tried.

    `is_rated`: fetches have a rate, so that one at a time is to begin.
    """

    def __init__(self, limits: PushLimits, fetches: SourceHealth, now_s: Callable[[], float]) -> None:
        self.left_alone: dict[str, SourceState] = {}
        self.is_rated = limits.bytes_per_s is not None
        self._now_s = now_s
        self._bucket = TokenBucket(limits.bytes_per_s)
        # A complete file is touched without its origin: good touches say nothing about fetches.
        self._sources = {Action.PREFETCH: fetches, Action.PIN: SourceHealth(limits.sources, ())}

    def wait_s(self) -> float:
        return self._bucket.wait_s()

    def failing(self, action: Action) -> Sequence[str]:
        failing = self._sources[action].left_alone(self._now_s()) if action in self._sources else []
        self.left_alone |= {state.source: state for state in failing}
        return [state.source for state in failing]

    def leaves(self, item: Item) -> bool:
        sources = self._sources.get(item.action)
        return sources is not None and sources.leaves(item.source, self._now_s())

    def start(self, item: Item) -> None:
        if item.action == Action.PREFETCH:
            self._bucket.spend(item.size_bytes)

    def end(self, item: Item, receipt: Receipt) -> None:
        """Count what the try of an item showed of its source, and the bytes that it really took."""
        is_done, is_lost = receipt.state == ItemState.DONE, receipt.fault == "source"
        if item.action == Action.PREFETCH and is_done:
            # What was there already costs nothing; how much of a failed file was fetched is unknown.
            self._bucket.spend(receipt.bytes - item.size_bytes)
        if is_lost or (is_done and not receipt.already):
            self.note_try(item, receipt.seconds, is_lost)

    def note_try(self, item: Item, seconds: float, failed: bool) -> None:
        if item.action in self._sources:
            self._sources[item.action].note(Try(item.source, self._now_s(), seconds, failed))
