"""The accesses of one cache as a stream: drawn in time order from a seed, a chunk at a time, never held.

Of a scenario of conf/workloads it keeps, per category: sizes of files, files per dataset, popularity, reads
per file, how soon a pass over a dataset follows another, how long passes take, and passes over a part. Of
these, sizes, files per dataset, popularity and lengths are log-normal. It has no days, weekends, users or
sites: each pass has a reader of its own.

Datasets are born at a constant rate, are read by spells of passes at a rate that falls by a factor of e in
DECAY_DAYS, and are gone after LIFE_DAYS. Numbers of files and datasets form rings: REST_DAYS after the last
read of a dataset its numbers go to new ones, so memory depends on the rate of accesses alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from features.arrays import FloatArray, Ids, IntArray
from features.jit import bare
from features.times import DAY_S
from replay.kernels.heap import Entry, Heap, fill, no_entries, push, replace
from replay.kernels.inline import Births, Chunk
from replay.workload.community import PART
from replay.workload.config import CategoryConfig

DECAY_DAYS = 20.0
"""As in conf/workloads/site.toml."""
LIFE_DAYS = 100.0
PASS_DAYS = 7.0
"""A pass takes this long at most, as in replay.workload."""
REST_DAYS = 14.0
ROOM = 1.3
"""Numbers of files, datasets and passes, over those expected to be in use."""
MOST_FILES = 8
"""Files of a dataset at most, over the median."""
PACE_SIGMA = 0.2
"""Spread of the lengths of passes over one dataset."""
MIN_SIZE = 65536.0
FULL_S = 600.0
"""A pass begins so much later while there is no room for one more."""

# Entries of Stream.sums.
N_STARTS, N_READS, N_FREE, N_DATASETS, NEXT_FILE, N_PASSES, OVERRUN, SEED = range(8)
# Entries of Stream.clock.
NOW, NEXT_BIRTH = 0, 1


class Law(NamedTuple):
    """Per category, float64[k]; `share`: cumulated, of the datasets; `spells`: expected after the first one.

    `birth_gap_s`: mean time between births of datasets; `most_files`: of one of them.
    """

    share: FloatArray
    size: FloatArray
    size_sigma: FloatArray
    files: FloatArray
    files_sigma: FloatArray
    popularity_sigma: FloatArray
    spells: FloatArray
    close_share: FloatArray
    close_s: FloatArray
    partial_share: FloatArray
    pass_s: FloatArray
    pass_sigma: FloatArray
    birth_gap_s: float
    most_files: int


class Datasets(NamedTuple):
    """Per number of a dataset: its first file, its files, and what its passes are drawn from."""

    first: Ids
    n_files: Ids
    tier: Ids
    born_s: FloatArray
    spells: FloatArray
    pass_s: FloatArray


class Passes(NamedTuple):
    """Passes in progress: the next file to read and the one behind the last, and the mean gap between reads.

    `free`: numbers not in use.
    """

    dataset: Ids
    file: Ids
    stop: Ids
    gap_s: FloatArray
    reader: IntArray
    free: Ids


class Stream(NamedTuple):
    """A stream in progress. `starts`: datasets by their next pass; `reads`: passes by their next read.

    `free_s`: int64[m], when the number of a file may go to a new one; `sums`, `clock`: see above.
    """

    law: Law
    datasets: Datasets
    passes: Passes
    starts: Heap
    reads: Heap
    free_s: IntArray
    sums: IntArray
    clock: FloatArray


class Drawing:
    """A stream of `per_s` accesses per second in the long run."""

    def __init__(self, categories: Sequence[CategoryConfig], per_s: float, seed: int, *, most: int) -> None:
        law = law_of(categories, per_s)
        n_datasets, self.n_files, n_passes = _rooms(categories, law)
        self.n_datasets = n_datasets
        self._stream = Stream(
            law,
            Datasets(*(np.zeros(n_datasets, np.int32) for _ in range(3)), *_floats(n_datasets, 3)),
            Passes(
                *(np.zeros(n_passes, np.int32) for _ in range(3)),
                *_floats(n_passes, 1),
                np.zeros(n_passes, np.int64),
                np.arange(n_passes, dtype=np.int32),
            ),
            no_entries(n_datasets),
            no_entries(n_passes),
            np.zeros(self.n_files, np.int64),
            np.zeros(SEED + 1, np.int64),
            np.zeros(2),
        )
        self._stream.sums[N_FREE] = n_passes
        self._stream.sums[SEED] = (seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % (1 << 63)
        self._chunk = _room(most)

    @property
    def n_known(self) -> int:
        """Files whose numbers are in use."""
        return int((self._stream.free_s > self._stream.clock[NOW]).sum())

    def next(self, n: int, until_s: float = np.inf) -> Chunk:
        """The next accesses, at most `n`, before `until_s`; the chunk is written over by the next one."""
        drawn, born = draw(self._stream, self._chunk, n, until_s)
        if self._stream.sums[OVERRUN]:
            raise RuntimeError(f"{self.n_files} files and {self.n_datasets} datasets are too few; raise ROOM")
        births = Births(*(column[:born] for column in self._chunk.births))
        return Chunk(*(column[:drawn] for column in self._chunk[:3]), births)


def law_of(categories: Sequence[CategoryConfig], per_s: float) -> Law:
    """The law by which accesses to some categories are drawn, `per_s` of them together."""

    def column(name: str, unit: float = 1.0) -> FloatArray:
        return np.array([getattr(one, name) for one in categories], np.float64) * unit

    close = column("close_share")
    part = 1 - column("partial_share") * (1 - sum(PART) / 2)
    reads_per_file = column("accesses") / column("files")
    files = column("files_median") * np.exp(column("files_sigma") ** 2 / 2)
    datasets = column("accesses") / (files * reads_per_file)
    return Law(
        share=np.cumsum(datasets) / datasets.sum(),
        size=column("mean_size_bytes"),
        size_sigma=column("size_sigma"),
        files=column("files_median"),
        files_sigma=column("files_sigma"),
        popularity_sigma=column("popularity_sigma"),
        spells=np.maximum(0.0, reads_per_file * (1 - close) / part - 1),
        close_share=close,
        close_s=column("close_hours", 3600.0),
        partial_share=column("partial_share"),
        pass_s=column("pass_hours_median", 3600.0),
        pass_sigma=column("pass_hours_sigma"),
        birth_gap_s=float(column("accesses").sum() / datasets.sum() / per_s),
        most_files=int(MOST_FILES * column("files_median").max()),
    )


def _rooms(categories: Sequence[CategoryConfig], law: Law) -> tuple[int, int, int]:
    """Numbers of datasets, of files and of passes."""
    kept_s = (LIFE_DAYS + PASS_DAYS + REST_DAYS) * DAY_S
    shares = np.diff(law.share, prepend=0.0)
    datasets = kept_s / law.birth_gap_s
    files = law.files * np.exp(law.files_sigma**2 / 2)
    passes = (1 + law.spells) / (1 - law.close_share) * law.pass_s * np.exp(law.pass_sigma**2 / 2)
    busy = float(shares @ passes) / law.birth_gap_s
    files_squared = float(shares @ (law.files**2 * np.exp(2 * law.files_sigma**2)))
    return (
        _with_room(datasets, datasets) + 20,
        _with_room(datasets * float(shares @ files), datasets * files_squared) + law.most_files,
        _with_room(busy, busy * law.most_files) + 100,
    )


def _with_room(mean: float, variance: float) -> int:
    return int(ROOM * mean + 5 * np.sqrt(variance))


def _floats(n: int, columns: int) -> list[FloatArray]:
    return [np.zeros(n) for _ in range(columns)]


def _room(n: int) -> Chunk:
    """Room for a chunk of `n` accesses and as many births."""
    births = Births(np.zeros(n, np.int64), *(np.zeros(n, np.int32) for _ in range(3)), np.zeros(n, np.int64))
    return Chunk(np.zeros(n, np.int64), np.zeros(n, np.int32), np.zeros(n, np.int64), births)


@bare
def draw(stream: Stream, chunk: Chunk, n: int, until_s: float) -> tuple[int, int]:
    """Fill `chunk`; the numbers of accesses and of births."""
    sums, clock, births = stream.sums, stream.clock, chunk.births
    drawn = born = 0
    most = births.at.size - stream.law.most_files - 1
    while drawn < n and not sums[OVERRUN]:
        read_s = stream.reads.key[0] if sums[N_READS] else np.inf
        start_s = stream.starts.key[0] if sums[N_STARTS] else np.inf
        if clock[NEXT_BIRTH] <= min(read_s, start_s) and born < most:
            if clock[NEXT_BIRTH] >= until_s:
                break
            clock[NOW] = clock[NEXT_BIRTH]
            born = _bear(stream, births, drawn, born)
        elif min(read_s, start_s) >= until_s:
            break
        elif start_s <= read_s:
            clock[NOW] = start_s
            _start(stream, start_s)
        else:
            clock[NOW] = read_s
            _read(stream, chunk, drawn, read_s)
            drawn += 1
    return drawn, born


@bare
def _bear(stream: Stream, births: Births, drawn: int, born: int) -> int:
    """A dataset comes to be before access `drawn`; the number of births of the chunk from now on."""
    law, datasets, sums, now_s = stream.law, stream.datasets, stream.sums, stream.clock[NOW]
    tier, chance = 0, _uniform(sums)
    while law.share[tier] < chance:
        tier += 1
    most = MOST_FILES * law.files[tier]
    n_files = int(min(most, max(1.0, law.files[tier] * np.exp(law.files_sigma[tier] * _normal(sums)) + 0.5)))
    if sums[NEXT_FILE] + n_files > stream.free_s.size:
        sums[NEXT_FILE] = 0
    first, dataset = sums[NEXT_FILE], sums[N_DATASETS] % datasets.first.size
    kept_s = (LIFE_DAYS + PASS_DAYS + REST_DAYS) * DAY_S
    if sums[N_DATASETS] >= datasets.first.size and datasets.born_s[dataset] + kept_s > now_s:
        sums[OVERRUN] = 1
    sums[NEXT_FILE] += n_files
    sums[N_DATASETS] += 1
    sigma = law.popularity_sigma[tier]
    datasets.first[dataset], datasets.n_files[dataset], datasets.tier[dataset] = first, n_files, tier
    datasets.born_s[dataset] = now_s
    datasets.spells[dataset] = law.spells[tier] * np.exp(sigma * _normal(sums) - sigma * sigma / 2)
    datasets.pass_s[dataset] = law.pass_s[tier] * np.exp(law.pass_sigma[tier] * _normal(sums))
    sigma = law.size_sigma[tier]
    for file in range(first, first + n_files):
        if stream.free_s[file] > now_s:
            sums[OVERRUN] = 1
        stream.free_s[file] = now_s + kept_s
        births.at[born], births.item[born], births.dataset[born] = drawn, file, dataset
        births.tier[born] = tier
        size = law.size[tier] * np.exp(sigma * _normal(sums) - sigma * sigma / 2)
        births.size_bytes[born] = max(MIN_SIZE, size)
        born += 1
    _push(stream.starts, sums, N_STARTS, now_s + law.close_s[tier] * _uniform(sums), dataset)
    stream.clock[NEXT_BIRTH] = now_s + law.birth_gap_s * _exponential(sums)
    return born


@bare
def _start(stream: Stream, now_s: float) -> None:
    """The pass that is due begins, and the next one over its dataset is scheduled."""
    law, datasets, passes, sums = stream.law, stream.datasets, stream.passes, stream.sums
    dataset = stream.starts.file[0]
    if sums[N_FREE] == 0:
        replace(stream.starts, sums[N_STARTS], Entry(now_s + FULL_S, int(dataset), int(dataset)))
        return
    sums[N_FREE] -= 1
    number, tier = passes.free[sums[N_FREE]], datasets.tier[dataset]
    share = 1.0
    if _uniform(sums) < law.partial_share[tier]:
        share = PART[0] + (PART[1] - PART[0]) * _uniform(sums)
    n_files = max(1, int(np.ceil(share * datasets.n_files[dataset])))
    length_s = datasets.pass_s[dataset] * np.exp(PACE_SIGMA * _normal(sums)) * np.sqrt(share)
    passes.dataset[number], passes.file[number] = dataset, datasets.first[dataset]
    passes.stop[number] = datasets.first[dataset] + n_files
    # Gaps are at most 1.5 times the mean.
    passes.gap_s[number] = min(length_s, PASS_DAYS * DAY_S / 1.5) / n_files
    passes.reader[number] = 2 * sums[N_PASSES] + 2
    sums[N_PASSES] += 1
    _push(stream.reads, sums, N_READS, now_s, number)
    next_s = _next_start(law, datasets, sums, int(dataset), now_s)
    if next_s < datasets.born_s[dataset] + LIFE_DAYS * DAY_S:
        replace(stream.starts, sums[N_STARTS], Entry(next_s, int(dataset), int(dataset)))
    else:
        sums[N_STARTS] -= 1
        fill(stream.starts, sums[N_STARTS])


@bare
def _next_start(law: Law, datasets: Datasets, sums: IntArray, dataset: int, now_s: float) -> float:
    """When the next pass over a dataset begins: soon, or with the next spell; inf if there is none."""
    tier, born_s = datasets.tier[dataset], datasets.born_s[dataset]
    if _uniform(sums) < law.close_share[tier]:
        return now_s + law.close_s[tier] * _exponential(sums)
    if datasets.spells[dataset] <= 0:
        return np.inf
    left = np.exp(-(now_s - born_s) / (DECAY_DAYS * DAY_S))
    left -= _exponential(sums) / datasets.spells[dataset]
    if left <= 0:
        return np.inf
    return max(now_s, born_s - DECAY_DAYS * DAY_S * np.log(left))


@bare
def _read(stream: Stream, chunk: Chunk, drawn: int, now_s: float) -> None:
    """The pass that is due reads its next file."""
    passes, sums = stream.passes, stream.sums
    number = stream.reads.file[0]
    chunk.time_s[drawn], chunk.reader[drawn] = now_s, passes.reader[number]
    chunk.item[drawn] = passes.file[number]
    passes.file[number] += 1
    if passes.file[number] < passes.stop[number]:
        next_s = now_s + passes.gap_s[number] * (0.5 + _uniform(sums))
        replace(stream.reads, sums[N_READS], Entry(next_s, int(number), int(number)))
    else:
        sums[N_READS] -= 1
        fill(stream.reads, sums[N_READS])
        passes.free[sums[N_FREE]] = number
        sums[N_FREE] += 1


@bare
def _push(heap: Heap, sums: IntArray, count: int, at_s: float, number: int) -> None:
    push(heap, sums[count], Entry(at_s, int(number), int(number)))
    sums[count] += 1


@bare
def _uniform(sums: IntArray) -> float:
    """A number from 0 to below 1, by xorshift: the same on every machine."""
    s = np.uint64(sums[SEED])
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    sums[SEED] = np.int64(s)
    return float((s * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) * 2.0**-53


@bare
def _exponential(sums: IntArray) -> float:
    """A number of mean 1."""
    return -np.log(1.0 - _uniform(sums))


@bare
def _normal(sums: IntArray) -> float:
    """A number of mean 0 and variance 1, by Box and Muller."""
    radius = np.sqrt(2 * _exponential(sums))
    return radius * np.cos(2 * np.pi * _uniform(sums))
