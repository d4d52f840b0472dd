"""What is predicted of files at one time, what queued jobs are known to read, and what else is known."""

from __future__ import annotations

import dataclasses
import enum
import functools
from weakref import WeakKeyDictionary

import numpy as np

from features.common.arrays import AnyFloatArray, AnyIntArray, BoolArray, FloatArray, Ids, IntArray
from features.common.errors import InputError
from features.common.times import DAY_S
from prefetch.plan.rules import Treatment

UNKNOWN = -1
NEVER_S = -(2**60)
"""The last read of a file that was never read."""
HALF_READ_S = 3600
"""Of files whose jobs are expected to start now, half are read within this time."""
KEPT = 4
"""So many scores keep their derived columns in memory, as several caches plan by the same ones."""
Entries = IntArray | slice
EVERY = slice(None)


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """What is predicted at `as_of_s`, one entry per candidate file; `item` is unique, in no order.

    `probability`: float[k, n], of a read within each of `horizons_s` (rising). `last_read_s`: int64[n],
    s since 1970, or NEVER_S. `n_jobs`: int64[n], queued jobs that are known to read it (None: no queue
    known). `rate`: what `prefetch.plan.forecasts.hit_rate` says of them, None: not asked yet. `place`: what
    `places` says; entries that it leaves out are no candidates: their sizes, chances and rates are 0 and they
    were never read. `rises`: `probability` falls nowhere along k. A plan looks at the entries that it needs:
    most are neither on disk nor likely. Raises InputError if the shapes do not fit.
    """

    as_of_s: int
    item: IntArray
    size_bytes: IntArray
    horizons_s: tuple[int, ...]
    probability: AnyFloatArray
    last_read_s: IntArray
    n_jobs: IntArray | None = None
    rate: AnyFloatArray | None = None
    place: Ids | None = None
    rises: bool = False

    def __post_init__(self) -> None:
        if self.probability.shape != (len(self.horizons_s), self.item.size):
            raise InputError(
                f"probabilities of shape {self.probability.shape} do not fit {len(self.horizons_s)} horizons "
                f"and {self.item.size} files"
            )
        if any(of is not None and of.size != self.item.size for of in (self.last_read_s, self.n_jobs)):
            raise InputError(
                f"each of {self.item.size} files must have a last read, and queued jobs if any has"
            )
        if not self.horizons_s or list(self.horizons_s) != sorted(set(self.horizons_s)):
            raise InputError(f"horizons must rise and there must be one, not {self.horizons_s}")

    def within(self, horizon: int, entry: Entries = EVERY) -> FloatArray:
        """`probability` at a horizon's index, raised to that of shorter ones where it is less: float64[e]."""
        return self.raised(horizon)[entry].astype(np.float64)

    def raised(self, horizon: int) -> AnyFloatArray:
        """The same of all entries, in the type of `probability`; all caches that plan by them share it."""
        if self.rises:
            as_it_is: AnyFloatArray = self.probability[horizon]
            return as_it_is
        if horizon not in self._raised:
            self._raised[horizon] = self.probability[: horizon + 1].max(axis=0)
        return self._raised[horizon]

    @functools.cached_property
    def _raised(self) -> dict[int, AnyFloatArray]:
        return {}

    @functools.cached_property
    def means_by_tier(self) -> WeakKeyDictionary[Files, dict[str, FloatArray]]:
        """What `prefetch.plan.forecasts` has worked out of files read, for all plans of the same files."""
        return WeakKeyDictionary()

    def longest(self, entry: Entries = EVERY) -> FloatArray:
        """The same at the longest horizon."""
        return self.within(len(self.horizons_s) - 1, entry)

    def queued(self, entry: Entries = EVERY) -> IntArray:
        """`n_jobs`, 0 where no queue is known: int64[e]."""
        return np.zeros_like(self.item[entry]) if self.n_jobs is None else self.n_jobs[entry]

    @functools.cached_property
    def was_read(self) -> BoolArray:
        read: BoolArray = self.last_read_s > NEVER_S
        return read


@dataclasses.dataclass(frozen=True, eq=False)
class Chances:
    """Chances of `scores` within a horizon (an index), of which less comes true than was predicted.

    `share`: of them that comes true where the chance is `stated` (rising), float64[c] each and interpolated;
    empty: all of them. What a queue names keeps its chance.
    """

    scores: Scores
    horizon: int
    stated: FloatArray = dataclasses.field(default_factory=lambda: np.zeros(0))
    share: FloatArray = dataclasses.field(default_factory=lambda: np.zeros(0))

    def of(self, entry: Entries = EVERY) -> FloatArray:
        """The chance of each of `entry`, float64[e]; none is above that of `scores`."""
        chances = self.scores.within(self.horizon, entry)
        if not self.share.size:
            return chances
        less = chances * np.interp(chances, self.stated, self.share)
        return less if self.scores.n_jobs is None else np.where(self.scores.queued(entry) > 0, chances, less)

    def at_least(self, least: float) -> IntArray:
        """The entries with a chance of `least` or more, ascending."""
        entry = np.flatnonzero(self.scores.raised(self.horizon) >= np.float64(least))
        return entry[self.of(entry) >= least]


def places(scores: Scores, n_files: int) -> Ids:
    """The entry of each dense file id in `scores`, int32[n_files]; UNKNOWN where there is none."""
    return _places(scores, n_files) if scores.place is None else scores.place


@functools.lru_cache(maxsize=KEPT)
def _places(scores: Scores, n_files: int) -> Ids:
    place = np.full(n_files, UNKNOWN, np.int32)
    place[scores.item] = np.arange(scores.item.size)
    return place


class Barred(enum.IntEnum):
    """Why a file is not fetched, whatever its value."""

    NOT = 0
    AT_SITE = 1
    ON_TAPE = 2


FORBIDDEN, TESTS, ELSEWHERE = -3.0, -2.0, -1.0
"""Eviction keys below any density: forbidden files go first, then test files, then another server's."""
BARRED_WORDS = {
    Barred.AT_SITE: "the site's own storage has it: it is not fetched over the WAN",
    Barred.ON_TAPE: "only tape has it, which [plan] from_tape leaves alone",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Files:
    """What a planner knows of each file apart from predictions; arrays by dense id.

    `is_control`: in the control group, never planned; `treatment`: codes of `prefetch.plan.rules.Treatment`;
    `is_here`: this cache is where the federation looks for it; `dataset`, `tier`, `origin`: codes, -1 where
    unknown; `read_share`: share of its bytes that a job reads; `saved_hours_per_byte`: CPU-hours that a byte
    read from the cache saves; `barred`: codes of `Barred`.
    """

    is_control: BoolArray
    treatment: AnyIntArray
    is_here: BoolArray
    dataset: AnyIntArray
    tier: AnyIntArray
    origin: AnyIntArray
    read_share: FloatArray
    saved_hours_per_byte: FloatArray
    barred: AnyIntArray

    @property
    def n(self) -> int:
        return self.is_control.size

    @functools.cached_property
    def may_be_held(self) -> BoolArray:
        """Which files this cache may hold by rules, bool[n]."""
        may = (self.treatment == Treatment.PLANNED) | (self.treatment == Treatment.PIN)
        held: BoolArray = may & ~self.is_control & self.is_here
        return held

    @functools.cached_property
    def held_by_rule(self) -> BoolArray:
        """Which files a rule pins in this cache, bool[n]."""
        held: BoolArray = (self.treatment == Treatment.PIN) & ~self.is_control & self.is_here
        return held

    @functools.cached_property
    def may_be_evicted(self) -> BoolArray:
        """Which files a plan may evict, bool[n]."""
        may = (self.treatment != Treatment.EXCLUDED) & (self.treatment != Treatment.PIN)
        evicted: BoolArray = may & ~self.is_control
        return evicted

    @functools.cached_property
    def eviction_key(self) -> AnyFloatArray:
        """Keys of files that are evicted before any other, 0 of those that go by density, float32[n]."""
        key = np.where(self.is_here, 0, ELSEWHERE).astype(np.float32)
        key[self.treatment == Treatment.TEST] = TESTS
        key[self.treatment == Treatment.NEVER] = FORBIDDEN
        return key

    def members(self, groups: IntArray) -> Ids:
        """The files of `groups`, codes of datasets from 0 on; each group's rise."""
        order, starts = self._by_dataset
        sizes = starts[groups + 1] - starts[groups]
        first = np.repeat(starts[groups] - (np.cumsum(sizes) - sizes), sizes)
        return order[first + np.arange(first.size)]

    @functools.cached_property
    def _by_dataset(self) -> tuple[Ids, IntArray]:
        """The files by code, and where each code's begin."""
        order = np.argsort(self.dataset, kind="stable").astype(np.int32)
        return order, np.cumsum(np.bincount(self.dataset + 1))


@dataclasses.dataclass(frozen=True, eq=False)
class KnownWork:
    """Files that queued jobs read, one entry each; `item` (dense file id) is unique, in no order.

    `n_jobs`: jobs that read the file; `wait_s`: until the first of them is expected to start, 0 or more;
    `certainty`: that any reads it, 0 to 1; `late_s`: since it was expected, 0 or more.
    """

    item: IntArray
    size_bytes: IntArray
    n_jobs: IntArray
    wait_s: IntArray
    certainty: FloatArray
    late_s: IntArray

    def chances(self, horizons_s: tuple[int, ...]) -> FloatArray:
        """Of a read within each of `horizons_s`, float64[k, n]; within the longest, or a day if that is less.

        Half of the files are read within `HALF_READ_S` of the expected start, and of those that are late
        within half the time that they have been late: what has waited for days is not read in this hour.
        """
        after_s = np.array([*horizons_s[:-1], max(horizons_s[-1], DAY_S)])[:, None] - self.wait_s[None, :]
        half_s = np.maximum(HALF_READ_S, self.late_s / 2)
        read: FloatArray = -np.expm1(np.log(0.5) * np.maximum(after_s, 0) / half_s)
        return self.certainty * read

    def starting_within(self, horizon_s: int) -> KnownWork:
        """The files whose jobs are expected to start within it."""
        near = self.wait_s <= horizon_s
        return KnownWork(*(getattr(self, field.name)[near] for field in dataclasses.fields(self)))


def with_known(scores: Scores, work: KnownWork) -> Scores:
    """`scores` with at least the chances that `work` gives to its files.

    Files that were not scored are added. Work that starts after the longest horizon changes nothing.
    """
    work = work.starting_within(scores.horizons_s[-1])
    item = work.item
    if not item.size:
        return scores
    is_new = ~np.isin(item, scores.item)
    items = np.concatenate([scores.item, item[is_new]])
    n_new = int(is_new.sum())
    probability = np.pad(scores.probability.astype(np.float64, copy=False), ((0, 0), (0, n_new)))
    order = np.argsort(items)
    entry = order[np.searchsorted(items, item, sorter=order)]
    probability[:, entry] = np.maximum(probability[:, entry], work.chances(scores.horizons_s))
    n_jobs = np.append(scores.queued(), np.zeros(n_new, np.int64))
    n_jobs[entry] = work.n_jobs
    return Scores(
        scores.as_of_s,
        items,
        np.concatenate([scores.size_bytes, work.size_bytes[is_new]]),
        scores.horizons_s,
        probability,
        np.append(scores.last_read_s, np.full(n_new, NEVER_S)),
        n_jobs,
    )


def certain(work: KnownWork, *, as_of_s: int, horizon_s: int) -> Scores:
    """Scores of the files of `work` alone: each is certain to be read within `horizon_s`."""
    n = work.item.size
    chance, never = np.ones((1, n)), np.full(n, NEVER_S)
    return Scores(as_of_s, work.item, work.size_bytes, (horizon_s,), chance, never, work.n_jobs)
