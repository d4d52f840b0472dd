"""An XCache in plain Python, for the engine's tests: one dict of files, every order found by sorting it.

It follows the purge of XRootD as read in its source, event by event, and shares no code with the engine.
"""

import fnmatch
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from pair_oracle import peak_of, sure_of

from replay.config import CacheConfig
from replay.planner import Actions, CacheState, Planner
from replay.trace import Trace

CHECK, COUNT, CYCLE, BOUNDARY, ACCESS = range(5)


def ids(values: object) -> Any:
    return np.array(values, np.int64)


NEVER = (-(10**18), 1, 0)


class File:
    """A resident file: bytes, and its last use as (time, 0 for a close or 1 for a touch, sequence)."""

    def __init__(self) -> None:
        self.held = 0
        self.use = NEVER
        self.session: tuple[int, int] | None = None
        self.asked = NEVER[0]
        self.arrived = NEVER[0]

    def is_open(self, now: int) -> bool:
        return self.session is not None and self.use[0] >= now


class Brute:
    """A cache, given `config`; the caller tells it what happens, in order."""

    def __init__(self, trace: Trace, config: CacheConfig, elsewhere: Iterable[int] = ()) -> None:
        self.size = trace.size_bytes.tolist()
        self.config = config
        self.low = int(config.low_watermark * config.capacity_bytes)
        self.high = int(config.high_watermark * config.capacity_bytes)
        names = [None] * trace.n_items if trace.names is None else trace.names.to_pylist()
        self.refused = {
            i for i, name in enumerate(names) if any(fnmatch.fnmatchcase(name, p) for p in config.never_cache)
        }
        self.refused |= set(elsewhere)
        self.files: dict[int, File] = {}
        self.pins: set[int] = set()
        self.fresh: set[int] = set()
        self.away: set[int] = set()
        self.ssd: list[int] = []
        self.sequence = self.inflow = self.wasted = self.read = self.peak = self.checks = 0
        self.age: int | None = None
        self.inflows: list[int] = []
        self.closes: dict[int, list[int]] = {}

    @property
    def used(self) -> int:
        return sum(file.held for file in self.files.values())

    def hold(self, file: int, extra: int) -> None:
        self.files[file].held += extra
        self.inflow += extra
        self.peak = max(self.peak, self.used)

    def touch(self, file: int, now: int) -> None:
        self.sequence += 1
        record = self.files[file]
        record.asked = now
        if not record.is_open(now):
            record.use, record.session = (now, 1, self.sequence), None

    def use(self, file: int, now: int, close: int, index: int) -> None:
        record = self.files.setdefault(file, File())
        record.asked = now
        if record.session is None or record.use[0] < now:
            record.session = (now, index)
        if record.use[1] == 1 or (close, 0, index) > record.use:
            record.use = (close, 0, index)

    def remove(self, file: int) -> None:
        held = self.files.pop(file).held
        self.pins.discard(file)
        if file in self.ssd:
            self.ssd.remove(file)
        if file in self.fresh:
            self.fresh.remove(file)
            self.wasted += held

    def check(self, now: int) -> None:
        self.checks += 1
        need = self.used - self.low if self.used > self.high else 0
        cold_age_s = self.config.cold_age_s if self.checks % self.config.cold_every == 0 else None
        oldest = now - cold_age_s if cold_age_s else -(10**18)
        order = []
        for file, record in self.files.items():
            if record.session is not None and record.is_open(now):
                order.append((record.session[0], 2, record.session[1], file))
            else:
                order.append((*record.use, file))
        examined = freed = 0
        for stamp, *_, file in sorted(order):
            if stamp >= oldest and (freed >= need or examined >= 2 * need):
                break
            record = self.files[file]
            examined += record.held
            if record.is_open(now) or record.asked >= now - self.config.purge_interval_s:
                continue
            freed += record.held
            if file not in self.pins:
                self.age = now - stamp
            self.remove(file)

    def access(self, file: int, now: int, close: int, index: int, asked_bytes: int) -> tuple[int, ...]:
        """(asked, hit, bytes from disk, fetched, refetched, bypassed, bytes from the SSD)"""
        block = self.config.block_bytes
        want = self.size[file]
        if block:
            want = min(want, -(-asked_bytes // block) * block)
        again, record = file in self.away, self.files.get(file)
        self.away.discard(file)
        self.closes.setdefault(file, []).append(close)
        have = record.held if record else 0
        if file in self.fresh:
            self.fresh.remove(file)
            self.read += have
        served = min(asked_bytes, have)
        fast = served if file in self.ssd else 0
        fits = self.used + want - have <= self.config.capacity_bytes and file not in self.refused
        fetched, hit, bypassed = want - have, False, 0
        if record and want <= have:
            fetched, hit = 0, True
        elif not fits:
            fetched = bypassed = asked_bytes - served
        if record or fits:
            self.use(file, now, close, index)
        if not hit and fits:
            self.hold(file, fetched)
        if file in self.files:
            self.promote(file)
        return asked_bytes, hit, served, fetched, fetched * again, bypassed, fast

    def promote(self, file: int) -> None:
        if file in self.ssd:
            self.ssd.remove(file)
        elif self.files[file].held > self.config.ssd_bytes:
            return
        self.ssd.append(file)
        while sum(self.files[f].held for f in self.ssd) > self.config.ssd_bytes:
            self.ssd.pop(0)

    def act(self, actions: Actions, now: int) -> int:
        fetched = self.inflow = 0
        for file in actions.evict.tolist():
            if file in self.files:
                self.remove(file)
                self.away.add(file)
        self.pins -= set(actions.unpin.tolist())
        for file in actions.prefetch.tolist():
            size = self.size[file]
            if file in self.files or file in self.refused or self.used + size > self.config.capacity_bytes:
                continue
            self.files[file] = File()
            self.files[file].use = (-1, 1, 0)
            self.files[file].arrived = now
            self.touch(file, now)
            self.hold(file, size)
            self.fresh.add(file)
            self.away.discard(file)
            fetched += size
        for file in sorted(self.pins):
            self.touch(file, now)
        for file in reversed(actions.pin.tolist()):
            if file in self.files:
                self.pins.add(file)
                self.touch(file, now)
        return fetched

    def last_use(self, file: int, now: int) -> int:
        """The last close or the arrival, never a touch."""
        record = self.files[file]
        if record.use[1] == 0:
            return record.use[0]
        return max([record.arrived, *(close for close in self.closes.get(file, []) if close < now)])

    def state(self, now: int, cycle_s: int) -> CacheState:
        files = ids(sorted(self.files))
        self.inflows.append(self.inflow)
        return CacheState(
            as_of_s=now,
            capacity_bytes=self.config.capacity_bytes,
            low_watermark=self.config.low_watermark,
            high_watermark=self.config.high_watermark,
            item=files,
            bytes_on_disk=ids([self.files[f].held for f in files]),
            last_access_s=ids([self.last_use(f, now) for f in files]),
            pinned=np.array([f in self.pins for f in files], bool),
            is_open=np.array([self.files[f].is_open(now) for f in files], bool),
            inflow_bytes=self.inflow,
            peak_inflow_bytes=peak_of(self.inflows, cycle_s),
            lru_age_s=self.age,
            sure_inflow_bytes=sure_of(self.inflows, cycle_s),
        )


def events(
    trace: Trace,
    config: CacheConfig,
    *,
    span: tuple[int, int],
    cycle_s: int,
    plan_from_s: int,
    count_from_s: int,
) -> Iterator[tuple[int, int, int]]:
    """(time, kind, access) in the engine's order of one second: check, count, boundary, accesses."""
    start, end = span
    first = -(-max(start, plan_from_s) // cycle_s) * cycle_s
    yield from ((int(t), ACCESS, i) for i, t in enumerate(trace.time_s))
    yield from ((t, CHECK, 0) for t in range(start + 1, end + 2) if t % config.purge_interval_s == 0)
    yield from ((t, BOUNDARY, 0) for t in range(first, end + 1, cycle_s))
    yield (count_from_s, COUNT, 0)
    yield (first - cycle_s, CYCLE, 0)


def brute_simulate(
    trace: Trace,
    config: CacheConfig,
    *,
    planner: Planner | None,
    cycle_s: int,
    plan_from_s: int,
    count_from_s: int,
    span: tuple[int, int] | None = None,
    elsewhere: Iterable[int] = (),
) -> tuple[dict[str, int], dict[int, int]]:
    """The engine's Result as a dict, and the mean fill of each hour.

    `span`: first and last second of the replay, if not those of the trace; `elsewhere`: files it never holds.
    """
    closes = (trace.time_s if trace.close_s is None else trace.close_s).tolist()
    sizes = trace.size_bytes[trace.item]
    read_bytes = sizes if config.block_bytes is None or trace.read_bytes is None else trace.read_bytes
    asked_bytes = read_bytes.tolist()
    disk, counting, rows, fetched = Brute(trace, config, elsewhere), False, [], 0
    fill: dict[int, list[int]] = {}
    moments = {"cycle_s": cycle_s, "plan_from_s": plan_from_s, "count_from_s": count_from_s}
    span = span or (int(trace.time_s[0]), int(trace.time_s[-1]))
    for now, kind, i in sorted(events(trace, config, span=span, **moments)):
        if kind == CHECK:
            disk.check(now)
        elif kind == COUNT:
            counting = True
            disk.wasted, disk.read, disk.peak = 0, 0, disk.used
            fetched = sum(disk.files[f].held for f in disk.fresh)
        elif kind == CYCLE:
            disk.inflow = 0
        elif kind == BOUNDARY and planner is not None:
            fetched += disk.act(planner.actions(disk.state(now, cycle_s)), now)
        elif kind == ACCESS:
            row = disk.access(int(trace.item[i]), now, closes[i], i, asked_bytes[i])
            if counting:
                rows.append(row)
                fill.setdefault(now // 3600 * 3600, []).append(disk.used)
    requested, hits, served, demand, again, past, fast = (sum(column) for column in zip(*rows, strict=True))
    return {
        "requests": len(rows),
        "hits": hits,
        "bytes_requested": requested,
        "hit_bytes": served,
        "wan_bytes": demand + fetched,
        "prefetch_bytes": fetched,
        "prefetch_read_bytes": disk.read,
        "wasted_bytes": disk.wasted + sum(disk.files[f].held for f in disk.fresh),
        "refetch_bytes": again,
        "bypassed_bytes": past,
        "ssd_hit_bytes": fast,
        "peak_usage_bytes": disk.peak,
    }, {hour: round(sum(used) / len(used)) for hour, used in fill.items()}
