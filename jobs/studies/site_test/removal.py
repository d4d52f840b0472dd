"""The files that a test has the cache fetch, and their removal from it: never a file that it held before."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections.abc import Collection, Iterable
from typing import Final

from features.common.errors import PushError, PushRejected, SourceUnavailable, TargetUnavailable, bounded
from prefetch.target import CacheTarget
from prefetch.xcache.client import XCacheTarget
from prefetch.xcache.reading import plain

_TIMEOUT_S = 10.0
_AT_ONCE = 8
_PATIENCE_S: Final = 60.0
"""With read-ahead a server counts a file as open for half a minute after it was closed."""
_POLL_S, _AGAIN_S = 0.05, 10.0
"""A second command while the first waits would remove the file after the next read."""
_SETTLE_S = 0.5
"""After it a block that was on its way when a client was ended is on disk."""


class Fetched:
    """The files that were not in the cache before this test asked for them, by the server's own answer."""

    def __init__(self, target: XCacheTarget) -> None:
        self._target = target
        self._ours = set[str]()
        self._keeps_open = not target.removes_open_files()

    def claim(self, names: Iterable[str]) -> None:
        """Note that the cache is about to be asked for `names`. Raises PushRejected if it holds one of them.

        Files that are noted already are this test's.
        """
        new = set(names) - self._ours
        if came := self._held(new):
            raise PushRejected(
                f"{min(came)} came into the cache meanwhile: a job reads it; try again, or name others"
            )
        self._ours |= new

    def lost(self, names: Collection[str]) -> list[str]:
        """Those of `names` of which the cache holds nothing."""
        return sorted(set(names) - self._held(names))

    def remove(self, names: Collection[str], *, patience_s: float = _PATIENCE_S) -> list[str]:
        """Have the cache drop those of `names` that are this test's; the names of those that it keeps.

        Raises TargetUnavailable if it does not answer.
        """
        left, deadline = self._ours & set(names), time.monotonic() + patience_s
        again_s = 0.0
        while left:
            if time.monotonic() >= again_s:
                for name in sorted(left):
                    self._drop(name)
                again_s = time.monotonic() + _AGAIN_S
            left = self._held(left)
            if not left or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        return sorted(left)

    def remove_all(self) -> list[str]:
        """As `remove`, of every file; looked at again once blocks that were on their way have come."""
        if not self._ours:
            return []
        self.remove(self._ours)
        time.sleep(_SETTLE_S)
        return self.remove(self._ours)

    def _held(self, names: Collection[str]) -> set[str]:
        """Those of `names` that the server holds a part of, each asked for on a connection of its own."""
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            found = dict(zip(names, pool.map(self._holds, names), strict=True))
        return {name for name, is_held in found.items() if is_held}

    def _holds(self, name: str) -> bool:
        try:
            return self._target.server_holds(name)
        except SourceUnavailable:
            return False  # of what it holds it answers without its origin

    def _drop(self, name: str) -> None:
        """Evict it, but not from under a job: a server before 5.6 would remove a file that is open."""
        if not self._keeps_open and _is_open(self._target, name):
            return
        self._target.evict(name, timeout_s=_TIMEOUT_S)

    def end(self) -> str | None:
        """Remove all; what may be left in the cache and why, in one line; None: nothing is."""
        why = "it keeps them as open"
        try:
            left = self.remove_all()
        except PushError as error:
            why, left = plain(str(error)), sorted(self._ours)
            with contextlib.suppress(PushError):
                left = sorted(self._held(self._ours))
        return f"may be left in the cache ({why}): {bounded(', '.join(left), 300)}" if left else None


def _is_open(target: CacheTarget, name: str) -> bool:
    """Whether its record says so; where this machine sees no record, nothing does."""
    try:
        held = target.confirm(name).held
    except TargetUnavailable:
        return False
    return held is not None and held.is_open
