"""Works off one cache's journal: limits, order, retries and memory; the target only translates.

Safe to run again at any time, and beside other runs of the same journal: items done are not touched, what
another run works on is left to it, and an item that a crash left half done is first looked for in the cache.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from collections.abc import Callable, Sequence

from features.errors import InputError, PushRejected, SourceUnavailable, TargetUnavailable
from prefetch.journal.journal import LEASE_S, Item, Journal, Patience, Receipt
from prefetch.journal.owner import new_owner
from prefetch.journal.tables import CLAIMED, CLOCK_SLACK_S
from prefetch.push.attempt import PushLimits, Tried, attempt, renewal
from prefetch.push.lease_buffer import Hand
from prefetch.push.origins import Sources, SourceState, Try
from prefetch.push.throttle import TokenBucket
from prefetch.push.touches import UNMEASURED_S, touch_every_s
from prefetch.target import CacheTarget, Confirmation

__all__ = ["PushLimits", "PushSummary", "push", "sources_seen"]

# Evictions make room; pins must be renewed before what is fetched makes a purge choose.
ORDER = ("evict", "unpin", "pin", "prefetch")
BEAT_S = LEASE_S / 10
Progress = Callable[[Item, Receipt], None]


@dataclasses.dataclass(frozen=True)
class PushSummary:
    """What a push did. `pushed`: items done by it; `already_done`: found so in the cache.

    `stopped`: why it ended before its work did, or None; `left_alone`: sources whose items it left; what is
    left is planned. `in_other_hands`: items that other runs were at when it ended. `seconds`: wall time.
    """

    pushed: int = 0
    already_done: int = 0
    failed: int = 0
    expired: int = 0
    pins_renewed: int = 0
    bytes_fetched: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    left_alone: tuple[str, ...] = ()
    in_other_hands: int = 0


def push(
    target: CacheTarget,
    journal: Journal,
    *,
    cache: str,
    now_s: Callable[[], float] = time.time,
    limits: PushLimits | None = None,
    on_progress: Progress | None = None,
    beat_s: float = BEAT_S,
) -> PushSummary:
    """Do what the journal plans for `cache`: evictions, then pins due, then prefetches by rank.

    `now_s`: s since 1970, decides what is expired or due. `on_progress` gets every item tried with its
    receipt, in this thread. Each `beat_s` it tells other runs that it works, and takes over what dead ones
    left. Errors of the cache are receipts; only faults of ours are raised.
    """
    limits = limits or PushLimits()
    run = _Run(target, journal, cache, now_s=now_s, limits=limits, on_progress=on_progress, beat_s=beat_s)
    started = time.monotonic()
    summary = run.all()
    return dataclasses.replace(summary, seconds=time.monotonic() - started)


def sources_seen(journal: Journal, cache: str, limits: PushLimits, now_s: float) -> Sources:
    """The health of the sources of `cache`, as the journal's last tries tell it."""
    since_s, until_s = now_s - limits.sources.reconsider_s, now_s + CLOCK_SLACK_S
    return Sources(limits.sources, journal.tries(cache, since_s=since_s, until_s=until_s))


class _Run:
    """One push: its name in the journal, its counts, its circuit breaker, and what it saw of sources."""

    def __init__(
        self,
        target: CacheTarget,
        journal: Journal,
        cache: str,
        *,
        now_s: Callable[[], float],
        limits: PushLimits,
        on_progress: Progress | None,
        beat_s: float,
    ) -> None:
        self._target, self._journal, self._cache = target, journal, cache
        self._now_s, self._limits, self._on_progress = now_s, limits, on_progress
        self._owner = new_owner()
        self._summary = PushSummary()
        self._n_away = 0
        self._beat_s = beat_s
        self._beat = time.monotonic()
        self._began_s = now_s()
        # A file that is there whole is touched without its origin: good touches say nothing of fetches.
        self._sources = {
            "prefetch": sources_seen(journal, cache, limits, self._began_s),
            "pin": Sources(limits.sources, ()),
        }
        self._left_alone: dict[str, SourceState] = {}
        self._bucket = TokenBucket(limits.bytes_per_s)
        self._hand = Hand(journal, cache, self._owner, now_s)

    def all(self) -> PushSummary:
        """Everything due now."""
        now_s = self._now_s()
        self._journal.recover(self._cache, now_s=now_s)
        self._journal.settle(self._cache, now_s=now_s)
        self._count(expired=self._journal.expire(self._cache, now_s=now_s))
        try:
            with concurrent.futures.ThreadPoolExecutor(self._limits.parallel, "push") as pool:
                for action in ORDER:
                    if action == "pin":
                        self._measure_touches()
                    self._items(pool, action)
                    if action == "pin":
                        self._renew_due(pool)
        finally:
            self._write()
            self._hand.drop(None, lambda _: True)
            self._journal.release(self._owner, now_s=self._now_s())
        self._count(expired=self._journal.expire(self._cache, now_s=self._now_s()))
        undone = self._journal.undone(self._cache)
        others = sum(undone[state] for state in CLAIMED)
        left = tuple(str(state) for state in self._left_alone.values())
        return dataclasses.replace(self._summary, left_alone=left, in_other_hands=others)

    def _items(self, pool: concurrent.futures.Executor, action: str) -> None:
        running: dict[concurrent.futures.Future[Tried], Item] = {}
        while True:
            self._start(pool, action, running)
            if running:
                patience_s = min(self._beat_s, self._hand.due_s, self._bucket.wait_s() or self._beat_s)
                waited = concurrent.futures.wait(running, patience_s, concurrent.futures.FIRST_COMPLETED)
                self._end([(running.pop(future), future) for future in waited.done])
                if not self._hand.due_s:
                    self._write()
            else:
                self._write()
                if not self._wait_for_more(action):
                    return
            self._heartbeat()

    def _start(
        self,
        pool: concurrent.futures.Executor,
        action: str,
        running: dict[concurrent.futures.Future[Tried], Item],
    ) -> None:
        while (room := self._limits.parallel - len(running)) > 0:
            if self._summary.stopped is not None or self._bucket.wait_s():
                return
            is_limited = action == "prefetch" and self._limits.bytes_per_s is not None
            item = self._hand.next(action, 1 if is_limited else room, lambda: self._patience(action))
            if item is None:
                return
            if self._leaves(item):
                self._hand.drop(item, self._leaves)
                continue
            if action == "prefetch":
                self._bucket.spend(item.size_bytes)
            running[pool.submit(attempt, self._target, item, self._limits, self._now_s)] = item

    def _leaves(self, item: Item) -> bool:
        sources = self._sources.get(item.action)
        return sources is not None and sources.leaves(item.source, self._now_s())

    def _patience(self, action: str) -> Patience:
        left = self._sources[action].left_alone(self._now_s()) if action in self._sources else []
        self._left_alone |= {state.source: state for state in left}
        return Patience([state.source for state in left], self._limits.retry_after_s)

    def _wait_for_more(self, action: str) -> bool:
        """Wait a while for tries that are due later; False if there are none."""
        if self._summary.stopped is not None:
            return False
        patience, now_s = self._patience(action), self._now_s()
        at_s: float | None = now_s
        if self._hand.is_empty:
            at_s = self._journal.next_retry_s(self._cache, action, now_s=now_s, patience=patience)
        if at_s is None:
            return False
        time.sleep(min(max(at_s - now_s, self._bucket.wait_s(), 0.0), self._beat_s))
        return True

    def _end(self, ended: list[tuple[Item, concurrent.futures.Future[Tried]]]) -> None:
        for item, future in ended:
            if future.exception() is None:
                tried = future.result()
                self._hand.ended(item, tried)
                self._answered(tried.receipt.fault == "cache", tried.receipt.error)
                self._note_source(item, tried)
        for _, future in ended:
            future.result()  # a fault of ours is raised, and what was done beside it is journaled

    def _write(self) -> None:
        # Of what is not ours any more, as we were silent for longer than our lease, others give account.
        for item, tried in self._hand.write():
            self._account(item, tried)

    def _account(self, item: Item, tried: Tried) -> None:
        receipt, done = tried.receipt, tried.receipt.state == "done"
        self._count(
            pushed=int(done and not tried.already),
            already_done=int(done and tried.already),
            failed=int(receipt.state == "failed"),
            bytes_fetched=receipt.bytes if done and item.action == "prefetch" else 0,
        )
        if self._on_progress is not None:
            self._on_progress(item, receipt)

    def _note_source(self, item: Item, tried: Tried) -> None:
        receipt, lost = tried.receipt, tried.receipt.fault == "source"
        if item.action == "prefetch" and receipt.state == "done":
            # What was there already costs nothing; of what failed, nobody knows how much came.
            self._bucket.spend(receipt.bytes - item.size_bytes)
        if lost or (receipt.state == "done" and not tried.already):
            self._note_try(item, receipt.seconds, lost)

    def _note_try(self, item: Item, seconds: float, lost: bool) -> None:
        if item.action in self._sources:
            self._sources[item.action].note(Try(item.source, self._now_s(), seconds, lost))

    def _measure_touches(self) -> None:
        if self._limits.touch_every_s is not None:
            return
        now_s = self._now_s()
        pinned = {pin.name for pin in self._journal.pins(self._cache, now_s=now_s)}
        try:
            every_s = touch_every_s(self._target.inventory(), pinned, now_s)
        except (TargetUnavailable, InputError) as error:
            # A folder that cannot be read ends no push: the server is asked about each file itself.
            self._answered(True, str(error))
            every_s = UNMEASURED_S
        self._limits = dataclasses.replace(self._limits, touch_every_s=every_s)

    def _renew_due(self, pool: concurrent.futures.Executor) -> None:
        every_s = self._limits.touch_every_s
        assert every_s is not None
        # As of the run's begin: what this run itself pinned is not due again.
        due = self._journal.due_pins(self._cache, now_s=self._began_s, touch_every_s=every_s)
        for first in range(0, len(due), self._limits.parallel):
            if self._summary.stopped:
                return
            left = self._patience("pin").but
            batch = [pin for pin in due[first : first + self._limits.parallel] if pin.source not in left]
            ours = self._journal.claim_pins(
                batch, owner=self._owner, now_s=self._now_s(), used_until_s=self._began_s - every_s
            )
            began = time.monotonic()
            renewals = [
                (pin, pool.submit(renewal, self._target, pin.name, self._limits, self._now_s)) for pin in ours
            ]
            self._note_renewals(renewals, began)
            self._heartbeat()

    def _note_renewals(
        self,
        renewals: Sequence[tuple[Item, concurrent.futures.Future[tuple[Confirmation, float]]]],
        began: float,
    ) -> None:
        used_at_s = dict[str, float]()
        for pin, future in renewals:
            error, is_lost = None, False
            try:
                _, used_at_s[pin.item_id] = future.result()
            except PushRejected as refused:
                self._journal.lose_pin(pin.item_id, str(refused), now_s=self._now_s())
            except SourceUnavailable:
                # The cache answered: it is none of the tries that end the run.
                is_lost = True
            except TargetUnavailable as away:
                error = str(away)
            self._answered(error is not None, error)
            if is_lost or used_at_s.get(pin.item_id, 0.0) >= self._began_s:
                self._note_try(pin, time.monotonic() - began, is_lost)
        self._journal.renewed(used_at_s)
        self._count(pins_renewed=len(used_at_s))

    def _answered(self, away: bool, error: str | None) -> None:
        self._n_away = self._n_away + 1 if away else 0
        if self._n_away >= self._limits.breaker and self._summary.stopped is None:
            reason = f"cache {self._cache!r} was away {self._n_away} times in a row: {error}"
            self._summary = dataclasses.replace(self._summary, stopped=reason)

    def _heartbeat(self) -> None:
        if time.monotonic() - self._beat > self._beat_s:
            self._journal.heartbeat(self._owner, now_s=self._now_s())
            self._journal.recover(self._cache, now_s=self._now_s())
            self._beat = time.monotonic()

    def _count(self, **added: int) -> None:
        totals = {field: getattr(self._summary, field) + number for field, number in added.items()}
        self._summary = dataclasses.replace(self._summary, **totals)
