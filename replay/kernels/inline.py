"""A cache served access by access: for room the least recently used file goes, or the least valuable."""

from __future__ import annotations

from typing import NamedTuple

from features.common.arrays import BoolArray, Ids, IntArray
from features.common.jit import bare
from features.stream.state import Read, update
from replay.kernels.ahead import AHEAD, fetch
from replay.kernels.recency import Recency, append, no_files, oldest, unlink
from replay.kernels.scored_files import USED, Disk, Known, Rule, empty_disk, insert, least_valuable, remove


class Accesses(NamedTuple):
    """Accesses in time order: `time_s` int64[n], `item` int32[n], `reader` int64[n]."""

    time_s: IntArray
    item: Ids
    reader: IntArray


class Part(NamedTuple):
    """Accesses `start` … `stop` - 1."""

    start: int
    stop: int


class Cache(NamedTuple):
    """A cache of `capacity` bytes, and `size` of each file, int64[m]."""

    capacity: int
    size: IntArray
    disk: Disk
    recency: Recency


class ScoredFiles(NamedTuple):
    """An order by value, and what it knows of the files; no file is in `spare`, bool[0]."""

    known: Known
    rule: Rule
    spare: BoolArray


def empty_cache(size: IntArray, capacity_bytes: int) -> Cache:
    """A cache without files."""
    return Cache(capacity_bytes, size, empty_disk(size.size), no_files(size.size))


@bare
def serve_lru(cache: Cache, accesses: Accesses, part: Part, hit: BoolArray) -> None:
    """Serve accesses, marking hits: where a file does not fit, the least recently used ones go."""
    item, place = accesses.item, cache.disk.place
    for i in range(part.start, part.stop):
        if i + AHEAD < part.stop:
            fetch(place, item[i + AHEAD])
            fetch(cache.size, item[i + AHEAD])
            fetch(cache.recency.older, item[i + AHEAD])
            fetch(cache.recency.newer, item[i + AHEAD])
        if _is_served(cache, item[i]):
            hit[i] = True
        elif cache.size[item[i]] <= cache.capacity:
            while cache.disk.sums[USED] + cache.size[item[i]] > cache.capacity:
                _take_out(cache, oldest(cache.recency))
            _take_in(cache, item[i])


@bare
def serve_valued(cache: Cache, order: ScoredFiles, accesses: Accesses, part: Part, hit: BoolArray) -> None:
    """Serve accesses, marking hits, and remember them: where a file does not fit, the least valuable go."""
    item, known = accesses.item, order.known
    for i in range(part.start, part.stop):
        if _is_served(cache, item[i]):
            hit[i] = True
        elif cache.size[item[i]] <= cache.capacity:
            while cache.disk.sums[USED] + cache.size[item[i]] > cache.capacity:
                now_s = float(accesses.time_s[i])
                _take_out(cache, least_valuable(cache.disk, known, order.rule, order.spare, now_s))
            _take_in(cache, item[i])
        _remember(known, accesses, i)


@bare
def remember(known: Known, accesses: Accesses, part: Part) -> None:
    """Remember accesses that are served without what is known of the files."""
    for i in range(part.start, part.stop):
        _remember(known, accesses, i)


@bare
def _is_served(cache: Cache, file: int) -> bool:
    """Whether the file is on disk, where it is the newest from now on."""
    is_hit = cache.disk.place[file] >= 0
    if is_hit:
        unlink(cache.recency, file)
        append(cache.recency, file)
    return bool(is_hit)


@bare
def _take_in(cache: Cache, file: int) -> None:
    insert(cache.disk, file, cache.size[file])
    append(cache.recency, file)


@bare
def _take_out(cache: Cache, file: int) -> None:
    remove(cache.disk, file, cache.size[file])
    unlink(cache.recency, file)


@bare
def _remember(known: Known, accesses: Accesses, i: int) -> None:
    now_s = float(accesses.time_s[i])
    update(known.state, known.files, Read(accesses.item[i], accesses.reader[i], 1.0, now_s, now_s))
