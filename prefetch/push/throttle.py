"""A token bucket: bytes a second on average, whole files at a time."""

from __future__ import annotations

import time


class TokenBucket:
    """Lets a file start while it is not in debt; every file started is a debt of its bytes.

    `bytes_per_s`: None lets all start at once. A file is fetched as fast as it comes, so bursts are as long
    as files are; over minutes the rate holds.
    """

    def __init__(self, bytes_per_s: int | None) -> None:
        self._rate = bytes_per_s
        self._balance = 0.0
        self._at = time.monotonic()

    def wait_s(self) -> float:
        """Seconds until the next file may start."""
        self._fill()
        return 0.0 if self._rate is None else max(0.0, -self._balance / self._rate)

    def spend(self, n_bytes: int) -> None:
        """Book a file that starts; a negative number gives back what it did not need."""
        self._fill()
        self._balance -= n_bytes

    def _fill(self) -> None:
        now = time.monotonic()
        if self._rate is not None:
            # Time without work is no credit for a burst later: a second's worth at most.
            self._balance = min(self._balance + self._rate * (now - self._at), float(self._rate))
        self._at = now
