"""A live steward beside a cache, told of each event when it becomes known: what a replay must equal."""

import heapq
from collections.abc import Callable, Iterator

from replay.access_context import AccessContext
from replay.kernels.delayed import Delays
from replay.steward import EvictionOrder, Steward
from replay.trace import Trace


class Beside:
    """The cache is plain LRU; it purges for itself what the steward did not evict in time."""

    def __init__(self, steward: Steward, capacity: int, delays: Delays) -> None:
        self.steward, self.capacity, self.delays = steward, capacity, delays
        self.target = int(capacity * (1 - delays.headroom))
        self.disk: dict[int, int] = {}  # the longest unread file first
        self.open_until: dict[int, int] = {}
        self.due: list[tuple[int, int, Callable[[int], None]]] = []
        self.n_due, self.leaving, self.is_look_due = 0, 0, False

    def read(self, file: int, reader: int, needed: int, now: int) -> bool:
        while self.due and self.due[0][0] <= now:
            due, _, act = heapq.heappop(self.due)
            act(due)
        had = self.disk.get(file, -1)
        if had < needed <= self.capacity:
            self.fetch(file, needed, now)
        if file in self.disk:
            self.disk[file] = self.disk.pop(file)
        if self.delays.open_s:
            self.open_until[file] = now + self.delays.open_s
        self.later(now, self.delays.seen_s, lambda _: self.see(file, reader, now))
        return had >= needed

    def fetch(self, file: int, needed: int, now: int) -> None:
        n_bytes = needed - self.disk.get(file, 0)
        if not self.delays.look_s:
            self.steward.opened(file)
            self.look(now, n_bytes)
            self.steward.closed(file)
        for old in list(self.disk):
            if sum(self.disk.values()) + n_bytes <= self.capacity:
                break
            if old != file and self.open_until.get(old, now) <= now:
                self.remove(old)
        if sum(self.disk.values()) + n_bytes <= self.capacity:
            self.disk[file] = needed

    def see(self, file: int, reader: int, at: int) -> None:
        self.steward.read(file, reader, at)
        if file in self.disk:
            self.steward.stored(file, self.disk[file], at)
        if self.delays.open_s:
            self.steward.opened(file)
            self.later(at, self.delays.open_s, lambda _: self.steward.closed(file))
        if self.delays.look_s and not self.is_look_due:
            self.is_look_due = True
            self.later(at, self.delays.look_s, lambda now: self.look(now, 0))

    def look(self, now: int, need: int) -> None:
        self.is_look_due = False
        over = self.steward.used_bytes - self.leaving + need - self.target
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
                self.remove(file)

        return act

    def remove(self, file: int) -> None:
        del self.disk[file]
        self.steward.removed(file)

    def later(self, now: int, delay: int, act: Callable[[int], None]) -> None:
        if not delay:
            act(now)
            return
        self.n_due += 1
        heapq.heappush(self.due, (now + delay, self.n_due, act))


def hits_beside(
    order: EvictionOrder, trace: Trace, context: AccessContext, capacity: int, delays: Delays
) -> Iterator[bool]:
    """Whether each access is served from disk."""
    steward = Steward(order, capacity_bytes=capacity)
    steward.add(context.files.dataset, context.files.tier, trace.size_bytes)
    cache, queued = Beside(steward, capacity, delays), list(zip(*context.queued, strict=True))
    for file, now, reader in zip(
        trace.item.tolist(), trace.time_s.tolist(), context.reader.tolist(), strict=False
    ):
        while queued and queued[0][0] <= now:
            steward.expect(*queued.pop(0)[1:])
        yield cache.read(file, reader, int(trace.size_bytes[file]), now)
