"""Works off one cache's journal: limits, order, retries and memory; the target only translates.

Safe to run again at any time: items done are not touched, and one that a crash left half done is first
looked for in the cache.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from collections.abc import Callable

from features.errors import PushRejected, TargetUnavailable
from prefetch.attempt import PushLimits, Tried, attempt, renewal
from prefetch.journal import LEASE_S, Item, Journal, Receipt
from prefetch.owner import new_owner
from prefetch.target import CacheTarget, Confirmation

__all__ = ["PushLimits", "PushSummary", "push"]

# Evictions make room; pins must be renewed before what is fetched makes a purge choose.
ORDER = ("evict", "unpin", "pin", "prefetch")
Progress = Callable[[Item, Receipt], None]


@dataclasses.dataclass(frozen=True)
class PushSummary:
    """What a push did. `pushed`: items done by it; `already_done`: found so in the cache.

    `stopped`: why it ended before its work did, or None; what is left is planned. `seconds`: wall time.
    """

    pushed: int = 0
    already_done: int = 0
    failed: int = 0
    expired: int = 0
    pins_renewed: int = 0
    bytes_fetched: int = 0
    seconds: float = 0.0
    stopped: str | None = None


def push(
    target: CacheTarget,
    journal: Journal,
    *,
    cache: str,
    now_s: Callable[[], float] = time.time,
    limits: PushLimits | None = None,
    on_progress: Progress | None = None,
) -> PushSummary:
    """Do what the journal plans for `cache`: evictions, then pins due, then prefetches by rank.

    `now_s`: s since 1970, decides what is expired or due. `on_progress` gets every item tried with its
    receipt, in this thread. Errors of the cache are receipts; only faults of ours are raised.
    """
    run = _Run(target, journal, cache, now_s=now_s, limits=limits or PushLimits(), on_progress=on_progress)
    started = time.monotonic()
    summary = run.all()
    return dataclasses.replace(summary, seconds=time.monotonic() - started)


class _Run:
    """One push: its name in the journal, its counts, and its circuit breaker."""

    def __init__(
        self,
        target: CacheTarget,
        journal: Journal,
        cache: str,
        *,
        now_s: Callable[[], float],
        limits: PushLimits,
        on_progress: Progress | None,
    ) -> None:
        self._target, self._journal, self._cache = target, journal, cache
        self._now_s, self._limits, self._on_progress = now_s, limits, on_progress
        self._owner = new_owner()
        self._began_s = now_s()
        self._summary = PushSummary()
        self._n_away = 0
        self._beat = time.monotonic()

    def all(self) -> PushSummary:
        """Everything due now."""
        self._journal.recover(self._cache, now_s=self._now_s())
        try:
            with concurrent.futures.ThreadPoolExecutor(self._limits.parallel, "push") as pool:
                for action in ORDER:
                    self._items(pool, action)
                    if action == "pin":
                        self._renew_due(pool)
        finally:
            self._journal.release(self._owner, now_s=self._now_s())
        self._count(expired=self._journal.expire(self._cache, now_s=self._now_s()))
        return self._summary

    def _items(self, pool: concurrent.futures.Executor, action: str) -> None:
        running: dict[concurrent.futures.Future[Tried], Item] = {}
        while True:
            room = 0 if self._summary.stopped else self._limits.parallel - len(running)
            for item in self._claim(action, room):
                running[pool.submit(attempt, self._target, item, self._limits, self._now_s)] = item
            if not running:
                return
            waited = concurrent.futures.wait(running, LEASE_S / 10, concurrent.futures.FIRST_COMPLETED)
            for future in waited.done:
                self._note(running.pop(future), future.result())
            self._heartbeat()

    def _claim(self, action: str, n_items: int) -> list[Item]:
        if n_items <= 0:
            return []
        now_s = self._now_s()
        return self._journal.claim(self._cache, action, n_items, owner=self._owner, now_s=now_s)

    def _note(self, item: Item, tried: Tried) -> None:
        receipt = tried.receipt
        self._journal.finish(item.item_id, receipt, owner=self._owner, now_s=self._now_s())
        self._answered(tried.away, receipt.error)
        done = receipt.state == "done"
        self._count(
            pushed=int(done and not tried.already),
            already_done=int(done and tried.already),
            failed=int(receipt.state == "failed"),
            bytes_fetched=receipt.bytes if done and item.action == "prefetch" else 0,
        )
        if self._on_progress is not None:
            self._on_progress(item, receipt)

    def _renew_due(self, pool: concurrent.futures.Executor) -> None:
        # As of the run's begin: what this run itself pinned is not due again.
        touch_every_s = self._limits.touch_every_s
        due = self._journal.due_pins(self._cache, now_s=self._began_s, touch_every_s=touch_every_s)
        for first in range(0, len(due), self._limits.parallel):
            if self._summary.stopped:
                return
            batch = due[first : first + self._limits.parallel]
            futures = [
                pool.submit(renewal, self._target, pin.name, self._limits, self._now_s) for pin in batch
            ]
            for pin, future in zip(batch, futures, strict=True):
                self._note_renewal(pin, future)

    def _note_renewal(self, pin: Item, future: concurrent.futures.Future[tuple[Confirmation, float]]) -> None:
        try:
            _, renewed_at_s = future.result()
        except PushRejected as error:
            self._journal.lose_pin(pin.item_id, str(error), now_s=self._now_s())
            self._answered(False, None)
        except TargetUnavailable as error:
            self._answered(True, str(error))
        else:
            self._journal.renewed(pin.item_id, at_s=renewed_at_s)
            self._answered(False, None)
            self._count(pins_renewed=1)

    def _answered(self, away: bool, error: str | None) -> None:
        self._n_away = self._n_away + 1 if away else 0
        if self._n_away >= self._limits.breaker and self._summary.stopped is None:
            reason = f"cache {self._cache!r} was away {self._n_away} times in a row: {error}"
            self._summary = dataclasses.replace(self._summary, stopped=reason)

    def _heartbeat(self) -> None:
        if time.monotonic() - self._beat > LEASE_S / 10:
            self._journal.heartbeat(self._owner, now_s=self._now_s())
            self._beat = time.monotonic()

    def _count(self, **added: int) -> None:
        totals = {field: getattr(self._summary, field) + number for field, number in added.items()}
        self._summary = dataclasses.replace(self._summary, **totals)
