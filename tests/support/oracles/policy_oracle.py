"""Policies in plain Python, but for those that libCacheSim judges: sums and minima anew at each step."""

import math

from replay.trace import Trace


class Cache:
    """Files in `files`, in an order that is the policy's own; `serve` says which accesses were hits."""

    def __init__(self, trace: Trace, capacity: int) -> None:
        self.trace, self.capacity = trace, capacity
        self.files: list[int] = []
        self.last: dict[int, int] = {}
        self.count: dict[int, int] = {}
        self.now = self.peak = 0

    def serve(self) -> list[bool]:
        hits = []
        for now, file in enumerate(self.trace.item.tolist()):
            self.now = now
            present = file in self.content()
            hits.append(present)
            fits = self.size(file) <= self.capacity
            if present:
                self.count[file] += 1
                self.hit(file)
            elif fits:
                self.miss(file)
            if present or fits:
                self.last[file] = self.now
            assert self.used() <= self.capacity
            self.peak = max(self.peak, self.used())
        return hits

    def size(self, file: int) -> int:
        return int(self.trace.size_bytes[file])

    def bytes_of(self, files: list[int]) -> int:
        return sum(map(self.size, files))

    def content(self) -> list[int]:
        return self.files

    def used(self) -> int:
        return self.bytes_of(self.content())

    def hit(self, file: int) -> None:
        pass

    def miss(self, file: int) -> None:
        while self.used() + self.size(file) > self.capacity:
            self.files.remove(self.victim(file))
        self.enter(file)

    def enter(self, file: int) -> None:
        self.files.append(file)
        self.count[file] = 1

    def victim(self, newcomer: int) -> int:
        raise NotImplementedError

    def next_use(self, file: int) -> float:
        later = self.trace.item[self.now + 1 :].tolist()
        return later.index(file) if file in later else math.inf


class Lru(Cache):
    def victim(self, newcomer: int) -> int:
        return min(self.files, key=self.last.__getitem__)


class ScoredFiles(Cache):
    """Keys L + worth, L that of the last victim."""

    def __init__(self, trace: Trace, capacity: int) -> None:
        super().__init__(trace, capacity)
        self.inflation = 0.0
        self.key: dict[int, float] = {}

    def worth(self, file: int) -> float:
        return self.count[file]

    def hit(self, file: int) -> None:
        self.key[file] = self.inflation + self.worth(file)

    def enter(self, file: int) -> None:
        super().enter(file)
        self.hit(file)

    def victim(self, newcomer: int) -> int:
        file = min(self.files, key=lambda f: (self.key[f], self.last[f]))
        self.inflation = self.key[file]
        return file


class TwoQueues(Cache):
    def __init__(self, trace: Trace, capacity: int) -> None:
        super().__init__(trace, capacity)
        self.main: list[int] = []
        self.ghosts: list[int] = []

    def content(self) -> list[int]:
        return self.files + self.main

    def hit(self, file: int) -> None:
        if file in self.main:
            self.main.remove(file)
            self.main.append(file)

    def miss(self, file: int) -> None:
        known = file in self.ghosts
        if known:
            self.ghosts.remove(file)
        while self.used() + self.size(file) > self.capacity:
            too_many = self.bytes_of(self.files) > int(self.capacity * 0.25)
            if self.files and (too_many or not self.bytes_of(self.main)):
                gone = self.files.pop(0)
                remember(self, gone, int(self.capacity * 0.5))
            else:
                self.main.pop(0)
        self.count[file] = 1
        (self.main if known else self.files).append(file)


def remember(cache: TwoQueues, file: int, limit: int) -> None:
    if cache.size(file) > limit:
        return
    while cache.bytes_of(cache.ghosts) + cache.size(file) > limit:
        cache.ghosts.pop(0)
    cache.ghosts.append(file)


class Clairvoyant(Cache):
    def victim(self, newcomer: int) -> int:
        # Among files never read again it matters to the peak alone which one goes.
        return max(self.files, key=lambda f: (self.next_use(f), self.last[f]))


class Bypass(Clairvoyant):
    def miss(self, file: int) -> None:
        while self.used() + self.size(file) > self.capacity:
            victim = self.victim(file)
            if self.next_use(victim) != math.inf and self.next_use(file) >= self.next_use(victim):
                return
            self.files.remove(victim)
        self.enter(file)


ORACLES = {
    "lru": Lru,
    "lfu-da": ScoredFiles,
    "2q": TwoQueues,
    "clairvoyant": Clairvoyant,
    "clairvoyant-bypass": Bypass,
}
