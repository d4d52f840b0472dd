"""A steward and a plan in one cache, in plain Python: every order found by looking at every file, no delays.

It shares no code with the replay: a dict of files, of which the longest unread one goes.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Wishes(NamedTuple):
    """What a plan asks for, by file."""

    prefetch: Sequence[int]
    pin: Sequence[int]
    unpin: Sequence[int]
    evict: Sequence[int]


def peak_of(inflows: Sequence[int], cycle_s: int) -> int:
    """What about one cycle of the last day's exceeds, between the two next to it."""
    last_day = sorted(inflows[-max(1, 86400 // cycle_s) :])
    at = max(0.5, 1 - cycle_s / 86400) * (len(last_day) - 1)
    below, above = last_day[int(at)], last_day[min(int(at) + 1, len(last_day) - 1)]
    return int(below + (above - below) * (at - int(at)))


def sure_of(inflows: Sequence[int], cycle_s: int) -> int:
    """The smaller of the last cycle's and of the one a day before the next; 0 before a day is over."""
    n = 86400 // cycle_s
    return 0 if n < 2 or len(inflows) < n else min(inflows[-1], inflows[-n])


class Pair:
    """The cache; `rows`: time, requested bytes, hit, refetched bytes of each read; `came`: see `ends`."""

    def __init__(self, sizes: Sequence[int], capacity: int) -> None:
        self.sizes, self.capacity = sizes, capacity
        self.used_at: dict[int, int] = {}
        self.last_s: dict[int, int] = {}
        self.pins: set[int] = set()
        self.first_to_go: list[int] = []
        self.evicted_by_plan: set[int] = set()
        self.rows: list[tuple[int, int, bool, int]] = []
        self.came: list[dict[str, Any]] = []
        self.clock = self.inflow = self.peak = 0
        self.inflows: list[int] = []

    def bytes_held(self) -> int:
        return sum(self.sizes[file] for file in self.used_at)

    def tick(self, file: int) -> None:
        self.clock += 1
        self.used_at[file] = self.clock

    def leave(self, file: int, now: int) -> None:
        del self.used_at[file]
        self.pins.discard(file)
        self.first_to_go = [f for f in self.first_to_go if f != file]
        for arrival in self.came:
            if arrival["file"] == file and arrival["end"] is None:
                arrival.update(end=now, read=False)

    def enter(self, file: int, now: int) -> bool:
        if self.sizes[file] > self.capacity:
            return False
        while self.bytes_held() + self.sizes[file] > self.capacity:
            hinted = [f for f in self.first_to_go if f in self.used_at and f not in self.pins]
            free = [f for f in self.used_at if f not in self.pins] or list(self.used_at)
            gone = hinted[0] if hinted else min(free, key=self.used_at.__getitem__)
            if hinted:
                self.evicted_by_plan.add(gone)
            self.leave(gone, now)
        self.tick(file)
        self.inflow += self.sizes[file]
        self.peak = max(self.peak, self.bytes_held())
        return True

    def read(self, file: int, now: int) -> None:
        hit = file in self.used_at
        for arrival in self.came:
            if arrival["file"] == file and arrival["end"] is None:
                arrival.update(end=now, read=True)
        if hit or self.enter(file, now):
            self.tick(file)
        again = 0 if hit or file not in self.evicted_by_plan else self.sizes[file]
        self.evicted_by_plan.discard(file)
        self.last_s[file] = now
        self.rows.append((now, self.sizes[file], hit, again))

    def boundary(self, now: int, cycle_s: int, plan: Callable[[dict[str, Any]], Wishes]) -> None:
        self.inflows.append(self.inflow)
        wishes = plan(self.state(now, cycle_s))
        self.inflow = 0
        self.first_to_go = list(dict.fromkeys(wishes.evict))
        self.pins -= set(wishes.unpin)
        self.pins |= {file for file in wishes.pin if file in self.used_at}
        for file in [f for f in wishes.prefetch if f not in self.used_at]:
            if file not in self.used_at and self.enter(file, now):
                self.evicted_by_plan.discard(file)
                self.last_s[file] = now
                self.came.append({"file": file, "at": now, "end": None, "read": False})

    def state(self, now: int, cycle_s: int) -> dict[str, Any]:
        files = sorted(self.used_at)
        return {
            "as_of_s": now,
            "item": files,
            "bytes_on_disk": [self.sizes[f] for f in files],
            "last_access_s": [self.last_s[f] for f in files],
            "pinned": [f in self.pins for f in files],
            "inflow_bytes": self.inflow,
            "sure_inflow_bytes": sure_of(self.inflows, cycle_s),
            "peak_inflow_bytes": peak_of(self.inflows, cycle_s),
        }

    def result(self, count_from_s: int) -> dict[str, int]:
        rows = [row for row in self.rows if row[0] >= count_from_s]
        came = [each for each in self.came if each["end"] is None or each["end"] >= count_from_s]
        fetched, read = (
            sum(self.sizes[each["file"]] for each in came if each["read"] or not only) for only in (0, 1)
        )
        return {
            "requests": len(rows),
            "hits": sum(row[2] for row in rows),
            "bytes_requested": sum(row[1] for row in rows),
            "hit_bytes": sum(row[1] for row in rows if row[2]),
            "wan_bytes": sum(row[1] for row in rows if not row[2]) + fetched,
            "prefetch_bytes": fetched,
            "prefetch_read_bytes": read,
            "wasted_bytes": fetched - read,
            "refetch_bytes": sum(row[3] for row in rows),
            "peak_usage_bytes": self.peak,
        }


def brute_pair(
    times: Sequence[int],
    items: Sequence[int],
    sizes: Sequence[int],
    capacity: int,
    *,
    plan: Callable[[dict[str, Any]], Wishes],
    cycle_s: int,
    plan_from_s: int,
    count_from_s: int,
) -> dict[str, int]:
    """The sums of a replay of reads of whole files; `plan` is asked before the reads of its second."""
    pair = Pair(sizes, capacity)
    first = next(at for at in range(max(times[0], plan_from_s), times[-1] + 2 * cycle_s) if at % cycle_s == 0)
    asks = list(range(first, times[-1] + 1, cycle_s))
    events = [(first - cycle_s, 0, 0), *((at, 1, 0) for at in asks)]
    events += [(at, 2, item) for at, item in zip(times, items, strict=True)]
    for now, kind, item in sorted(events, key=lambda event: event[:2]):
        if kind == 0:
            pair.inflow = 0
        elif kind == 1:
            pair.boundary(now, cycle_s, plan)
        else:
            pair.read(item, now)
    return pair.result(count_from_s)
