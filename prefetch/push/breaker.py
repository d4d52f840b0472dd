"""A circuit breaker: ends a push whose cache does not answer."""

from __future__ import annotations


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
