"""What a run has in hand: items leased a moment ahead, and items that ended and are not yet journaled.

A transaction waits for the disk; one for each item would make the journal slower than a cache with fast
files. So items are leased and noted in groups, of as many as a moment brings: of slow files one at a time. A
run that is killed leaves less than that moment's work to be looked at again; the cache then says it is done.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

from prefetch.journal.journal import Item, Journal, Patience
from prefetch.push.attempt import Tried

AHEAD_S = 0.25
"""Work leased ahead: more would keep items from other runs, and from being cancelled."""

WRITE_S = 0.1
"""What ended is journaled within this time …"""

MOST_ITEMS = 256
"""… and never more than so many items at once."""

Ended = tuple[Item, Tried]


class Hand:
    """The items of `cache` that run `owner` leases from `journal`."""

    def __init__(self, journal: Journal, cache: str, owner: str, now_s: Callable[[], float]) -> None:
        self._journal, self._cache, self._owner, self._now_s = journal, cache, owner, now_s
        self._ahead = deque[Item]()
        self._ended = list[Ended]()
        self._items_per_s = 0.0
        self._written = time.monotonic()

    def next(self, action: str, n_items: int, patience: Callable[[], Patience]) -> Item | None:
        """An item to try now; where none is leased, `n_items` are, and as many as are soon wanted."""
        if not self._ahead:
            n_items += min(MOST_ITEMS, int(self._items_per_s * AHEAD_S))
            self._ahead.extend(
                self._journal.claim(
                    self._cache, action, n_items, owner=self._owner, now_s=self._now_s(), patience=patience()
                )
            )
        return self._ahead.popleft() if self._ahead else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is leased that was not begun."""
        return not self._ahead

    def drop(self, first: Item | None, unwanted: Callable[[Item], bool]) -> None:
        """Give back `first`, and what else is leased, not begun and `unwanted`; none of it was tried."""
        dropped = [*([] if first is None else [first]), *filter(unwanted, self._ahead)]
        self._ahead = deque(item for item in self._ahead if not unwanted(item))
        if dropped:
            ids = [item.item_id for item in dropped]
            self._journal.give_back(ids, owner=self._owner, now_s=self._now_s())

    def ended(self, item: Item, tried: Tried) -> None:
        """Note a try, to be journaled soon."""
        self._ended.append((item, tried))

    @property
    def due_s(self) -> float:
        """Seconds until what ended should be journaled; infinity: nothing waits for that."""
        if not self._ended:
            return math.inf
        if len(self._ended) >= MOST_ITEMS:
            return 0.0
        return max(0.0, self._written + WRITE_S - time.monotonic())

    def write(self) -> list[Ended]:
        """Journal what ended; return what of it still was ours. What was cancelled meanwhile is dropped."""
        ended, self._ended = self._ended, []
        if not ended:
            return []
        receipts = {item.item_id: tried.receipt for item, tried in ended}
        ours = self._journal.finish(receipts, owner=self._owner, now_s=self._now_s())
        now = time.monotonic()
        self._items_per_s = len(ended) / max(now - self._written, 1e-3)
        self._written = now
        if self._ahead:
            withdrawn = self._journal.withdrawn(self._owner)
            self.drop(None, lambda item: item.item_id in withdrawn)
        return [one for one in ended if one[0].item_id in ours]
