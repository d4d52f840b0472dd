"""A live steward beside a cache, told of each event when it becomes known: what a replay must equal."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pair_oracle import Wishes

from replay.access_context import AccessContext
from replay.kernels.delayed import Delays
from replay.steward import EvictionOrder, Steward
from replay.trace import Trace


class Beside:
    """The cache is plain LRU; it purges for itself what the steward did not evict in time.

    `queued`: what queues say, time, file and when it is due; `came`: see `Prefetched`.
    """

    def __init__(
        self,
        steward: Steward,
        capacity: int,
        delays: Delays,
        size: Sequence[int] = (),
        queued: Sequence[Any] = (),
    ) -> None:
        self.steward, self.capacity, self.delays, self.size = steward, capacity, delays, size
        self.queued = list(queued)
        self.target = int(capacity * (1 - delays.headroom))
        self.disk: dict[int, int] = {}  # the longest unread file first
        self.open_until: dict[int, int] = {}
        self.last_use: dict[int, int] = {}
        self.due = list[tuple[int, int, Callable[[int], None]]]()
        self.n_due, self.leaving, self.is_look_due = 0, 0, False
        self.pins: set[int] = set()
        self.came: list[list[Any]] = []
        self.inflow = self.peak = 0

    def until(self, now: float) -> None:
        """Do what is due, each when no more is known than then."""
        while self.due and self.due[0][0] <= now:
            due, _, act = heapq.heappop(self.due)
            self.tell(due)
            act(due)
        self.tell(now)

    def tell(self, now: float) -> None:
        while self.queued and self.queued[0][0] <= now:
            self.steward.expect(*self.queued.pop(0)[1:])

    def read(self, file: int, reader: int, needed: int, now: int, close: int) -> int:
        """What was on disk; -1: it was not there."""
        self.until(now)
        had = self.disk.get(file, -1)
        if had < needed <= self.capacity:
            self.fetch(file, needed, now)
        self.end(file, now, True)
        if file in self.disk:
            self.disk[file] = self.disk.pop(file)
        self.last_use[file] = max(self.last_use.get(file, now), close)
        if self.delays.open_s:
            self.open_until[file] = max(self.open_until.get(file, now), close)
        self.later(now, self.delays.seen_s, lambda _: self.see(file, reader, now, close))
        return had

    def fetch(self, file: int, needed: int, now: int) -> None:
        n_bytes = needed - self.disk.get(file, 0)
        if not self.delays.look_s:
            self.steward.opened(file)
            self.look(now, n_bytes)
            self.steward.closed(file)
        for old in sorted(self.disk, key=self.pins.__contains__):
            if sum(self.disk.values()) + n_bytes <= self.capacity:
                break
            if old != file and self.open_until.get(old, now) <= now:
                self.remove(old, now)
        if sum(self.disk.values()) + n_bytes <= self.capacity:
            self.disk[file] = needed
            self.inflow += n_bytes
            self.peak = max(self.peak, sum(self.disk.values()))

    def see(self, file: int, reader: int, at: int, close: int) -> None:
        self.steward.read(file, reader, at)
        if file in self.disk:
            self.steward.stored(file, self.disk[file], at)
        if self.delays.open_s:
            self.steward.opened(file)
            self.later(at, close - at, lambda _: self.steward.closed(file))
        self.look_later(at)

    def look_later(self, at: int) -> None:
        if self.delays.look_s and not self.is_look_due:
            self.is_look_due = True
            self.later(at, self.delays.look_s, lambda now: self.look(now, 0))

    def look(self, now: int, need: int) -> None:
        self.is_look_due = False
        over = sum(self.disk.values()) - self.leaving + need - self.target
        for file in self.steward.victims(over, now):
            n_bytes = self.steward.bytes_on_disk(file) or 0
            self.leaving += n_bytes
            self.steward.opened(file)
            self.later(now, self.delays.effect_s, self.goes(file, n_bytes))

    def goes(self, file: int, n_bytes: int) -> Callable[[int], None]:
        def act(now: int) -> None:
            self.leaving -= n_bytes
            self.steward.closed(file)
            if file in self.disk and self.open_until.get(file, now) <= now:
                self.remove(file, now)

        return act

    def remove(self, file: int, now: int) -> None:
        self.end(file, now, False)
        del self.disk[file]
        self.steward.removed(file)
        self.pins.discard(file)
        self.steward.pin(self.pins)

    def end(self, file: int, now: int, is_read: bool) -> None:
        for arrival in self.came:
            if arrival[0] == file and arrival[3] is None:
                arrival[3:] = now, is_read

    def plan_from(self, at: int, cycle: int, decide: Callable[[dict[str, Any]], Wishes]) -> None:
        """Plans at a boundary and each `cycle` later."""

        def plan(now: int) -> None:
            item = sorted(self.disk)
            state = {
                "as_of_s": now,
                "item": item,
                "bytes_on_disk": [self.disk[file] for file in item],
                "last_access_s": [self.last_use[file] for file in item],
                "pinned": [file in self.pins for file in item],
                "inflow_bytes": self.inflow,
            }
            self.carry_out(decide(state), now)
            self.later(now, cycle, plan)

        def begin(now: int) -> None:
            self.inflow = 0

        heapq.heappush(self.due, (at - cycle, -2, begin))
        heapq.heappush(self.due, (at, -1, plan))

    def carry_out(self, wishes: Wishes, now: int) -> None:
        self.inflow = 0
        self.steward.evict_first(wishes.evict)
        self.pins = self.pins - {*wishes.unpin} | {*wishes.pin} & self.disk.keys()
        self.steward.pin(self.pins)
        coming = [file for file in wishes.prefetch if file not in self.disk]
        if self.delays.look_s:
            self.look(now, sum(self.size[file] for file in coming))
        for file in coming:
            self.later(now, self.delays.fetch_s, self.comes(file))

    def comes(self, file: int) -> Callable[[int], None]:
        def act(now: int) -> None:
            if file in self.disk or self.size[file] > self.capacity:
                return
            self.fetch(file, self.size[file], now)
            if file in self.disk:
                self.came.append([file, now, self.size[file], None, False])
                self.last_use[file] = now
                self.steward.stored(file, self.size[file], now)
                self.look_later(now)

        return act

    def later(self, now: int, delay: int, act: Callable[[int], None]) -> None:
        if not delay:
            act(now)
            return
        self.n_due += 1
        heapq.heappush(self.due, (now + delay, self.n_due, act))


def beside(
    order: EvictionOrder, trace: Trace, context: AccessContext, capacity: int, delays: Delays
) -> Beside:
    """An empty cache and its steward."""
    steward = Steward(order, capacity_bytes=capacity)
    steward.add(context.files.dataset, context.files.tier, trace.size_bytes)
    size, queued = trace.size_bytes.tolist(), zip(*context.queued, strict=True)
    return Beside(steward, capacity, delays, size, list(queued))


def held_before(cache: Beside, trace: Trace, context: AccessContext, needed: Sequence[int]) -> Iterator[int]:
    """What is on disk of the file of each access, which reads `needed` bytes of it; -1: it is not there."""
    close_s = trace.time_s + cache.delays.open_s
    if trace.close_s is not None and cache.delays.open_s:
        close_s = trace.close_s
    columns = (trace.item, context.reader, trace.time_s, close_s)
    item, reader, time_s, closes = (column.tolist() for column in columns)
    reads = zip(item, reader, needed, time_s, closes, strict=False)
    return (cache.read(*read) for read in reads)


def hits_beside(
    order: EvictionOrder, trace: Trace, context: AccessContext, capacity: int, delays: Delays
) -> Iterator[bool]:
    """Whether each access is served from disk."""
    needed = trace.size_bytes[trace.item].tolist()
    held = held_before(beside(order, trace, context, capacity, delays), trace, context, needed)
    return (had >= n_bytes for had, n_bytes in zip(held, needed, strict=True))
