"""A cache that is served a stream of accesses, chunk after chunk, and keeps nothing of those it has served.

Files come and go: a birth gives the number of a file that is gone to a new one. So memory depends on the
files known at a time, not on the length of the stream.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.arrays import BoolArray, Ids, IntArray
from features.jit import bare
from features.stream.state import Read, forget_dataset, forget_file, update
from replay.kernels.ahead import AHEAD, fetch
from replay.kernels.recency import Recency, append, no_files, oldest, unlink
from replay.kernels.valued import USED, Disk, Known, Rule, empty_disk, insert, least_valuable, remove

# Entries of Cache.tally. OUTLIVED: files that were still on disk when their number went to a new one.
REQUESTS, HITS, BYTES, HIT_BYTES, OUTLIVED = range(5)


class Births(NamedTuple):
    """Files that come to be, in the order of `at`, int64[b]: the index of the access before which each does.

    `item`, `dataset`, `tier`: int32[b], `size_bytes`: int64[b]. The files of a dataset are born together, and
    none of `item` or `dataset` is that of an older file which is still read.
    """

    at: IntArray
    item: Ids
    dataset: Ids
    tier: Ids
    size_bytes: IntArray


class Chunk(NamedTuple):
    """Accesses in time order: `time_s` int64[n], `item` int32[n], `reader` int64[n]; births among them."""

    time_s: IntArray
    item: Ids
    reader: IntArray
    births: Births


class Part(NamedTuple):
    """Accesses `start` … `stop` - 1 of a chunk."""

    start: int
    stop: int


class Cache(NamedTuple):
    """A cache of `capacity` bytes, and `size` of each file, int64[m]; `tally`: int64[5], see above."""

    capacity: int
    size: IntArray
    disk: Disk
    recency: Recency
    tally: IntArray


class Valued(NamedTuple):
    """An order by value, and what it knows of the files; no file is in `spare`, bool[0]."""

    known: Known
    rule: Rule
    spare: BoolArray


def no_births() -> Births:
    """Births of a stream whose files are all known from the beginning."""
    none, wide = np.zeros(0, np.int32), np.zeros(0, np.int64)
    return Births(wide, none, none, none, wide)


def empty_cache(size: IntArray, capacity_bytes: int) -> Cache:
    """A cache without files; births write to `size`."""
    return Cache(
        capacity_bytes, size, empty_disk(size.size), no_files(size.size), np.zeros(OUTLIVED + 1, np.int64)
    )


@bare
def serve_lru(cache: Cache, chunk: Chunk, part: Part, hit: BoolArray) -> None:
    """Serve accesses, marking hits: where a file does not fit, the least recently used ones go."""
    births, item, place = chunk.births, chunk.item, cache.disk.place
    born = int(np.searchsorted(births.at, part.start))
    for i in range(part.start, part.stop):
        if i + AHEAD < part.stop:
            fetch(place, item[i + AHEAD])
            fetch(cache.size, item[i + AHEAD])
            fetch(cache.recency.older, item[i + AHEAD])
            fetch(cache.recency.newer, item[i + AHEAD])
        while born < births.at.size and births.at[born] <= i:
            _replace(cache, births, born)
            born += 1
        if _is_served(cache, item[i]):
            hit[i] = True
        elif cache.size[item[i]] <= cache.capacity:
            while cache.disk.sums[USED] + cache.size[item[i]] > cache.capacity:
                _take_out(cache, oldest(cache.recency))
            _take_in(cache, item[i])


@bare
def serve_valued(cache: Cache, order: Valued, chunk: Chunk, part: Part, hit: BoolArray) -> None:
    """Serve accesses, marking hits, and remember them: where a file does not fit, the least valuable go."""
    births, item, known = chunk.births, chunk.item, order.known
    born = int(np.searchsorted(births.at, part.start))
    for i in range(part.start, part.stop):
        while born < births.at.size and births.at[born] <= i:
            _replace(cache, births, born)
            _forget(known, births, born)
            born += 1
        if _is_served(cache, item[i]):
            hit[i] = True
        elif cache.size[item[i]] <= cache.capacity:
            while cache.disk.sums[USED] + cache.size[item[i]] > cache.capacity:
                now_s = float(chunk.time_s[i])
                _take_out(cache, least_valuable(cache.disk, known, order.rule, order.spare, now_s))
            _take_in(cache, item[i])
        _remember(known, chunk, i)


@bare
def remember(known: Known, chunk: Chunk, part: Part) -> None:
    """Remember accesses that are served without what is known of the files."""
    births = chunk.births
    born = int(np.searchsorted(births.at, part.start))
    for i in range(part.start, part.stop):
        while born < births.at.size and births.at[born] <= i:
            _forget(known, births, born)
            born += 1
        _remember(known, chunk, i)


@bare
def _is_served(cache: Cache, file: int) -> bool:
    """Count an access; whether the file is on disk, where it is the newest from now on."""
    is_hit = cache.disk.place[file] >= 0
    cache.tally[REQUESTS] += 1
    cache.tally[BYTES] += cache.size[file]
    if is_hit:
        cache.tally[HITS] += 1
        cache.tally[HIT_BYTES] += cache.size[file]
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
def _replace(cache: Cache, births: Births, born: int) -> None:
    """Let a new file have its number; the file that had it leaves the disk."""
    file = births.item[born]
    if cache.disk.place[file] >= 0:
        _take_out(cache, file)
        cache.tally[OUTLIVED] += 1
    cache.size[file] = births.size_bytes[born]


@bare
def _forget(known: Known, births: Births, born: int) -> None:
    """Forget the file and the dataset that had the numbers of a new one."""
    file, dataset = births.item[born], births.dataset[born]
    known.files.dataset[file], known.files.tier[file] = dataset, births.tier[born]
    known.files.size_bytes[file] = births.size_bytes[born]
    forget_file(known.state.file[file])
    forget_dataset(known.state.dataset[dataset], known.state.passes[dataset])
    known.values.at_s[file] = np.nan


@bare
def _remember(known: Known, chunk: Chunk, i: int) -> None:
    now_s = float(chunk.time_s[i])
    update(known.state, known.files, Read(chunk.item[i], chunk.reader[i], 1.0, now_s, now_s))
