"""The items that a push leases ahead from its journal, and the results that it has not written yet.

A transaction waits for the disk: one per item would make the journal slower than a cache with fast files. So
items are leased and written in groups, as many as a fraction of a second brings; slow files one at a time.
After a run is killed, at most that much work is checked again; the cache then reports it as done.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from prefetch.actions import Action
from prefetch.journal.journal import LEASE_S, Item, Journal, Patience
from prefetch.journal.owner import new_owner
from prefetch.push.attempt import Tried

AHEAD_S = 0.25
"""Work leased ahead: more would keep items from other runs, and from being cancelled."""

WRITE_S = 0.1
"""Results are written to the journal within this time …"""

MOST_ITEMS = 256
"""… and never more than so many items at once."""

BEAT_S = LEASE_S / 10
"""Time between the heartbeats of a run."""

Ended = tuple[Item, Tried]


class LeaseBuffer:
    """The items of `cache` that this run leases from `journal`. `beat_s`: time between heartbeats."""

    def __init__(self, journal: Journal, cache: str, now_s: Callable[[], float], beat_s: float) -> None:
        self.beat_s = beat_s
        self._journal, self._cache, self._now_s = journal, cache, now_s
        self._owner = new_owner()
        self._ahead = deque[Item]()
        self._ended = list[Ended]()
        self._items_per_s = 0.0
        self._written = self._beat = time.monotonic()

    def next(self, action: Action, n_items: int, patience: Callable[[], Patience]) -> Item | None:
        """An item to try now; where none is leased, lease `n_items`, and those soon needed."""
        if not self._ahead:
            n_items += min(MOST_ITEMS, int(self._items_per_s * AHEAD_S))
            self._ahead.extend(
                self._journal.claim(
                    self._cache, action, n_items, owner=self._owner, now_s=self._now_s(), patience=patience()
                )
            )
        return self._ahead.popleft() if self._ahead else None

    def retry_in_s(self, action: Action, patience: Patience) -> float | None:
        """Seconds until an item may be tried, not above 0 if one may be now; None: there is none."""
        if self._ahead:
            return 0.0
        now_s = self._now_s()
        at_s = self._journal.next_retry_s(self._cache, action, now_s=now_s, patience=patience)
        return None if at_s is None else at_s - now_s

    def claim_pins(self, pins: Sequence[Item], *, used_until_s: float) -> list[Item]:
        """Lease those of `pins` that are still due for renewal."""
        return self._journal.claim_pins(
            pins, owner=self._owner, now_s=self._now_s(), used_until_s=used_until_s
        )

    def drop(self, unwanted: Callable[[Item], bool], begun: Sequence[Item] = ()) -> None:
        """Give back the leased items that are `unwanted`, and those of `begun`; none of them was tried."""
        dropped = [*begun, *filter(unwanted, self._ahead)]
        self._ahead = deque(item for item in self._ahead if not unwanted(item))
        if dropped:
            ids = [item.item_id for item in dropped]
            self._journal.give_back(ids, owner=self._owner, now_s=self._now_s())

    def ended(self, item: Item, tried: Tried) -> None:
        """Keep the result of a try, to be written soon."""
        self._ended.append((item, tried))

    @property
    def due_s(self) -> float:
        """Seconds until results should be written; infinity: there are none."""
        if not self._ended:
            return math.inf
        if len(self._ended) >= MOST_ITEMS:
            return 0.0
        return max(0.0, self._written + WRITE_S - time.monotonic())

    def write(self) -> list[Ended]:
        """Write the results; return those of items that this run still held. Drop cancelled items."""
        ended, self._ended = self._ended, []
        if not ended:
            return []
        receipts = {item.item_id: tried.receipt for item, tried in ended}
        held = self._journal.finish(receipts, owner=self._owner, now_s=self._now_s())
        now = time.monotonic()
        self._items_per_s = len(ended) / max(now - self._written, 1e-3)
        self._written = now
        if self._ahead:
            cancelled = self._journal.cancelled(self._owner)
            self.drop(lambda item: item.item_id in cancelled)
        return [(item, tried) for item, tried in ended if item.item_id in held]

    def heartbeat(self) -> None:
        """Each `beat_s`, report that this run works, and take over the items of dead ones."""
        if time.monotonic() - self._beat > self.beat_s:
            self._journal.heartbeat(self._owner, now_s=self._now_s())
            self._journal.recover(self._cache, now_s=self._now_s())
            self._beat = time.monotonic()

    def close(self) -> None:
        """Give back all leased items."""
        self.drop(lambda _: True)
        self._journal.release(self._owner, now_s=self._now_s())
