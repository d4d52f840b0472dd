"""Carries out the items in one cache's journal: order, limits, retries and receipts.

It is safe to repeat at any time. A cache has one pusher at a time (`prefetch.journal.lease`), done items are
not touched, and items that a crash left half done are first looked up in the cache.
"""

import dataclasses
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping

from prefetch.actions import Action, ItemState
from prefetch.journal.journal import Item, Journal, Receipt
from prefetch.journal.lease import BEAT_S, Lease
from prefetch.journal.tables import CLOCK_SLACK_S
from prefetch.push.attempt import PushLimits
from prefetch.push.limiter import Breaker, Limiter
from prefetch.push.origins import SourceHealth
from prefetch.push.worker import MarkedItems, Renewals, Worker
from prefetch.target import CacheTarget

__all__ = ["PushLimits", "PushSummary", "push", "sources_seen"]

Progress = Callable[[Item, Receipt], None]

_MOST_KINDS = 5
_LONG_NUMBER = re.compile(r"\d{5,}")


@dataclasses.dataclass(frozen=True)
class PushSummary:
    """What a push did. `pushed`: items that it carried out; `already_done`: items done by the cache before.

    `failures`: failed items by error, in which `…` stands for names and sizes; the rarest are `other errors`.
    `stopped`: why it ended early; `left_alone`: sources whose items stay planned; `left_to_steward`:
    evictions that stay planned; `seconds`: wall time. `withheld`: items of the plan per action that did not
    enter the journal, and `unproven`: why.
    """

    pushed: int = 0
    already_done: int = 0
    failed: int = 0
    failures: Mapping[str, int] = dataclasses.field(default_factory=dict)
    expired: int = 0
    pins_renewed: int = 0
    bytes_fetched: int = 0
    left_to_steward: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    left_alone: tuple[str, ...] = ()
    withheld: Mapping[str, int] = dataclasses.field(default_factory=dict)
    unproven: str | None = None


def push(
    target: CacheTarget,
    journal: Journal,
    *,
    cache: str,
    now_s: Callable[[], float] = time.time,
    limits: PushLimits | None = None,
    on_progress: Progress | None = None,
    check: Callable[[], None] = lambda: None,
) -> PushSummary:
    """Carry out the planned items of `cache`, in the order of `Action`; due pins are renewed after new ones.

    `now_s`: s since 1970, decides what is expired or due. `on_progress` gets every item tried with its
    receipt, in this thread. `check` may raise before anything is done, when nobody else pushes. Errors of the
    cache become receipts. Raises ConflictError if another pusher holds the lease of `cache`, or took it
    because this one was silent for too long.
    """
    started = time.monotonic()
    limits = limits or PushLimits()
    with journal.leases.held(cache, now_s) as lease:
        check()
        limiter = Limiter(limits, sources_seen(journal, cache, limits, now_s()), now_s)
        breaker = Breaker(cache, limits.breaker)
        worker = Worker(target, limits, now_s)
        marked = MarkedItems(lease, now_s, limits.retry_after_s)
        run = _ItemRun(lease, marked, limiter, breaker, worker, now_s, on_progress)
        renewals = Renewals(journal.reports, lease, limiter, breaker, worker, now_s)
        journal.plans.cancel_superseded(cache, now_s=now_s())
        n_expired = _expired(journal, cache, now_s(), limits)
        try:
            with worker:
                for action in Action:
                    if action == Action.EVICT and not limits.evicts:
                        continue
                    if action == Action.PIN:
                        renewals.measure()
                    run.carry_out(action)
                    if action == Action.PIN:
                        run.counts["pins_renewed"] += renewals.renew_due()
        finally:
            run.close()
        n_expired += _expired(journal, cache, now_s(), limits)
    return PushSummary(
        **run.counts,
        failures=_by_kind(run.failures),
        expired=n_expired,
        left_to_steward=0 if limits.evicts else len(journal.reports.evictions(cache, now_s=now_s())),
        seconds=time.monotonic() - started,
        stopped=breaker.reason,
        left_alone=tuple(str(state) for state in limiter.left_alone.values()),
        withheld={},
        unproven=None,
    )


def sources_seen(journal: Journal, cache: str, limits: PushLimits, now_s: float) -> SourceHealth:
    """The health of the sources of `cache`, from the last tries in the journal."""
    since_s, until_s = now_s - limits.sources.reconsider_s, now_s + CLOCK_SLACK_S
    return SourceHealth(limits.sources, journal.reports.tries(cache, since_s=since_s, until_s=until_s))


def _expired(journal: Journal, cache: str, now_s: float, limits: PushLimits) -> int:
    """Let items expire; return how many, without evictions where a steward makes the room."""
    return journal.plans.expire(cache, now_s=now_s, uncounted=() if limits.evicts else (Action.EVICT,))


@dataclasses.dataclass
class _ItemRun:
    """Takes items from `marked` to `worker` as `limiter` and `breaker` allow, and counts the results."""

    lease: Lease
    marked: MarkedItems
    limiter: Limiter
    breaker: Breaker
    worker: Worker
    now_s: Callable[[], float]
    on_progress: Progress | None
    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: Counter[str] = dataclasses.field(default_factory=Counter)

    def carry_out(self, action: Action) -> None:
        while True:
            self._start(action)
            if self.worker.is_busy:
                self._collect()
            else:
                self.write()
                if not self._wait_for_more(action):
                    return
            self.lease.keep(now_s=self.now_s())

    def write(self) -> None:
        for item, receipt in self.marked.write():
            self._count(item, receipt)

    def close(self) -> None:
        self.write()
        self.marked.drop(lambda _: True)

    def _start(self, action: Action) -> None:
        while (room := self.worker.room) > 0:
            if self.breaker.reason is not None or self.limiter.wait_s():
                return
            n_items = 1 if action == Action.PREFETCH and self.limiter.is_rated else room
            item = self.marked.next(action, n_items, lambda: self.limiter.failing(action))
            if item is None:
                return
            if self.limiter.leaves(item):
                self.marked.drop(self.limiter.leaves, begun=[item])
                continue
            self.limiter.start(item)
            self.worker.start(item)

    def _collect(self) -> None:
        limited_s = self.limiter.wait_s() or math.inf
        ended = self.worker.await_ended(min(BEAT_S, self.marked.due_s, limited_s))
        for item, future in ended:
            if future.exception() is None:
                self._note(item, future.result())
        for _, future in ended:
            future.result()  # raises an error of this program, after the other results were kept
        if not self.marked.due_s:
            self.write()

    def _note(self, item: Item, receipt: Receipt) -> None:
        self.marked.note_result(item, receipt)
        self.breaker.note(receipt.error if receipt.fault == "cache" else None)
        self.limiter.end(item, receipt)

    def _wait_for_more(self, action: Action) -> bool:
        """Wait a while for tries that are due later; False if there are none."""
        if self.breaker.reason is not None:
            return False
        retry_s = self.marked.retry_in_s(action, self.limiter.failing(action))
        if retry_s is None:
            return False
        time.sleep(min(max(retry_s, self.limiter.wait_s(), 0.0), BEAT_S))
        return True

    def _count(self, item: Item, receipt: Receipt) -> None:
        done = receipt.state == ItemState.DONE
        self.counts["pushed"] += done and not receipt.already
        self.counts["already_done"] += done and receipt.already
        if receipt.state == ItemState.FAILED:
            self.counts["failed"] += 1
            self.failures[_kind(item, receipt)] += 1
        if done and item.action == Action.PREFETCH:
            self.counts["bytes_fetched"] += receipt.bytes
        if self.on_progress is not None:
            self.on_progress(item, receipt)


def _kind(item: Item, receipt: Receipt) -> str:
    """The error of a failed item without what differs from item to item: its URLs, paths and numbers."""
    file = re.escape(item.name.rpartition("/")[2])
    return _LONG_NUMBER.sub("…", re.sub(rf"[^\s;]*{file}", "…", receipt.error or "no error was stated"))


def _by_kind(failures: Counter[str]) -> dict[str, int]:
    """The commonest errors first, the others together."""
    named = dict(failures.most_common(_MOST_KINDS))
    n_others = failures.total() - sum(named.values())
    return named | ({"other errors": n_others} if n_others else {})
