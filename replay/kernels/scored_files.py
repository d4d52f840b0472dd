"""Files on disk by value: which of a random sample a learned order would miss least."""

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, Float32Array, FloatArray, Ids, IntArray
from features.common.jit import bare, inner, wide
from features.spec import COLUMNS
from features.stream.row import row
from features.stream.state import D_LAST, LAST, READS, Files, State
from replay.kernels.trees import LANES, Block, HorizonModels, fill, hit_rates, new_block

SAMPLE = LANES
"""Candidates of an eviction: as many as are scored side by side."""
STALE = 0.05
"""A file is scored again when the time since the file's last read has grown by this share."""
SETTLED_S = 3600.0
"""So long a rate holds although other files of the dataset are read."""
YOUNGEST_S = 60.0
"""Recency counts as at least this long."""
SOON_S = 1800.0
"""A read by known work is expected no sooner, as nobody knows when within a job it comes."""
SEED = 88172645463325252

OUTCOME_KEPT = 1 - 1 / 2048
"""What is known of older entries of queues counts less, by this factor for each newer one."""
# Entries of Values.outcomes.
READ, UNREAD = range(2)
# Entries of Disk.sums.
N_HELD, N_EVICTABLE = range(2)


class Disk(NamedTuple):
    """Files on disk. `place`: int32[m], index of each file in `held`, -1 if absent; `sums`: see above.

    Victims are drawn from the first `N_EVICTABLE` of `held`; behind them are files that stayed when they were
    drawn, until `put_back` says that they may go.
    """

    place: Ids
    held: Ids
    sums: IntArray


class Values(NamedTuple):
    """What is known of each file's value; orders by the same models share it.

    `log_rate`: float32[m], of its hits by the models, per s; `at_s`: float64[m], when it was scored, NaN:
    never. `due_s`: float32[m], when known work is expected to read the file, NaN: never; `due_from_s`:
    float32[m], since when that is known; both to a minute or two. `outcomes`: float64[2], expected files that
    were read, and that were not. `seed`: int64[1]. `drawn`, `stale`: int32[SAMPLE], a sample, and those of it
    that are being scored; `x`: float32[columns], the row of one of them.
    """

    log_rate: Float32Array
    at_s: FloatArray
    due_s: Float32Array
    due_from_s: Float32Array
    outcomes: FloatArray
    seed: IntArray
    drawn: Ids
    stale: Ids
    x: Float32Array


class Known(NamedTuple):
    """What is known of the files' reads, and their last values."""

    state: State
    files: Files
    values: Values


class Rule(NamedTuple):
    """log value = share · log hit rate + (1 - share) · log 1/age; `block`: room for rows being scored.

    `share`: above 0, at most 1. A file that known work reads is worth at least 1/s until it is due, and 1/s
    since, times the square of the share of such files that were read: some of them would have been read
    anyway.
    """

    models: HorizonModels
    share: float
    block: Block


class Eviction(NamedTuple):
    """An eviction of `n_bytes` at `now_s`.

    `bytes_of`: int64[m], on disk; `spare`: bool[m], files that stay, bool[0]: none.
    """

    n_bytes: int
    now_s: float
    bytes_of: IntArray
    spare: BoolArray


def empty_disk(n_files: int) -> Disk:
    """A disk for `n_files` files, with none."""
    return Disk(np.full(n_files, -1, np.int32), np.zeros(n_files, np.int32), np.zeros(2, np.int64))


def no_values(n_files: int) -> Values:
    """Values of `n_files` files of which none is scored."""
    return Values(
        np.zeros(n_files, np.float32),
        np.full(n_files, np.nan),
        due_s=np.full(n_files, np.nan, np.float32),
        due_from_s=np.full(n_files, np.nan, np.float32),
        outcomes=np.zeros(2),
        seed=np.array([SEED], np.int64),
        drawn=np.zeros(SAMPLE, np.int32),
        stale=np.zeros(SAMPLE, np.int32),
        x=np.zeros(len(COLUMNS), np.float32),
    )


def new_rule(models: HorizonModels) -> Rule:
    """A rule by the hit rate alone, for one replay at a time."""
    return Rule(models, 1.0, new_block(models.forest))


@bare
def choose(disk: Disk, known: Known, rule: Rule, eviction: Eviction, victim: Ids) -> int:
    """Write the files that should go to `victim`, until their bytes are enough; their number."""
    missing, n = eviction.n_bytes, 0
    while missing > 0:
        file = least_valuable(disk, known, rule, eviction.spare, eviction.now_s)
        if file < 0:
            break
        set_aside(disk, file)
        victim[n] = file
        missing -= eviction.bytes_of[file]
        n += 1
    for k in range(n - 1, -1, -1):  # as they came: where nothing stays, all is in place again
        put_back(disk, wide(victim[k]))
    return n


@bare
def least_valuable(disk: Disk, known: Known, rule: Rule, spare: BoolArray, now_s: float) -> int:
    """The least valuable file of a sample, -1 if every file is spared.

    Files in `spare` that are drawn are set aside. No file in `spare`, and nothing is: bool[0].
    """
    values = known.values
    n = n_stale = wide(0)
    while n < SAMPLE:
        file = _drawn(disk, values, spare)
        if file < 0:
            break
        values.drawn[n] = file
        n += 1
    for file in values.drawn[:n]:
        if not _is_fresh(known, file, now_s):
            values.at_s[file] = now_s  # drawn again, it is not scored again
            values.stale[n_stale] = file
            n_stale += 1
    score(known, rule, n_stale, now_s)
    worst, least = -1, np.inf
    for file in values.drawn[:n]:
        value = worth(known, rule, file, now_s)
        if worst < 0 or value < least:
            worst, least = file, value
    return int(worst)


@bare
def worth(known: Known, rule: Rule, file: int, now_s: float) -> float:
    """The value of a file that is scored by `rule`. One that was never read has no age, only its rate."""
    of, values = known.state.file, known.values
    share = 1.0 if of[file, READS] == 0 else rule.share
    value = share * values.log_rate[file]
    if share < 1:
        value -= (1 - share) * np.log(max(YOUNGEST_S, now_s - of[file, LAST]))
    if not np.isnan(values.due_s[file]):
        wait_s = max(SOON_S, abs(values.due_s[file] - now_s))
        n_read, n_unread = values.outcomes[READ], values.outcomes[UNREAD]
        value = max(np.log(((n_read + 1) / (n_read + n_unread + 1)) ** 2 / wait_s), value)
    return float(value)


@inner
def _drawn(disk: Disk, values: Values, spare: BoolArray) -> int:
    """A file on disk that is not spared; -1 if there is none."""
    while disk.sums[N_EVICTABLE] > 0:
        file = wide(disk.held[_draw(values.seed, disk.sums[N_EVICTABLE])])
        if not (spare.size and spare[file]):
            return int(file)
        set_aside(disk, file)
    return -1


@inner
def _is_fresh(known: Known, file: int, now_s: float) -> bool:
    """Whether the file's rate still holds: it was not read since, nor its dataset, and is hardly older."""
    at_s, last_s = known.values.at_s[file], known.state.file[file, LAST]
    if not at_s >= last_s or now_s - at_s > STALE * (at_s - last_s) + YOUNGEST_S:
        return False
    is_settled = at_s >= known.state.dataset[known.files.dataset[file], D_LAST]
    return bool(is_settled or now_s - at_s <= SETTLED_S)


@bare
def score(known: Known, rule: Rule, n: int, now_s: float) -> None:
    """Write the hit rates of the first `n` stale files."""
    values, block = known.values, rule.block
    for lane in range(n):
        row(known.state, known.files, values.stale[lane], now_s, values.x)
        fill(rule.models.forest, values.x, block, lane)
    hit_rates(rule.models, block, n)
    for lane in range(n):
        values.log_rate[values.stale[lane]] = np.log(block.rate[lane])


@bare
def expect(known: Known, file: int, due_s: float, now_s: float) -> None:
    """From `now_s` on known work is expected to read a file at `due_s`; NaN: not any more."""
    values = known.values
    if np.isnan(values.due_s[file]):
        values.due_from_s[file] = now_s
    elif known.state.file[file, LAST] >= values.due_from_s[file]:
        _count(values, READ)
        values.due_from_s[file] = now_s
    elif np.isnan(due_s):
        _count(values, UNREAD)
    values.due_s[file] = due_s


@inner
def _count(values: Values, how: int) -> None:
    for k in range(values.outcomes.size):
        values.outcomes[k] *= OUTCOME_KEPT
    values.outcomes[how] += 1


@inner
def _draw(seed: IntArray, below: int) -> int:
    """A number from 0 to `below` - 1, by xorshift: the same on every machine."""
    s = np.uint64(seed[0])
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    seed[0] = np.int64(s)
    return int(s % np.uint64(below))


@bare
def insert(disk: Disk, file: int) -> None:
    """Add a file that is absent."""
    n = disk.sums[N_HELD]
    disk.held[n], disk.place[file] = file, n
    disk.sums[N_HELD] += 1
    put_back(disk, file)


@bare
def remove(disk: Disk, file: int) -> None:
    """Remove a file that is on disk."""
    if disk.place[file] < disk.sums[N_EVICTABLE]:
        set_aside(disk, file)
    disk.sums[N_HELD] -= 1
    _swap(disk, file, disk.sums[N_HELD])
    disk.place[file] = -1


@bare
def set_aside(disk: Disk, file: int) -> None:
    """Move a file that may be drawn behind those that may."""
    disk.sums[N_EVICTABLE] -= 1
    _swap(disk, file, disk.sums[N_EVICTABLE])


@bare
def put_back(disk: Disk, file: int) -> None:
    """From now on a file on disk may be drawn."""
    if disk.place[file] >= disk.sums[N_EVICTABLE]:
        _swap(disk, file, disk.sums[N_EVICTABLE])
        disk.sums[N_EVICTABLE] += 1


@inner
def _swap(disk: Disk, file: int, to: int) -> None:
    """Exchange the places of a file and of the one at `to`."""
    place, other = disk.place[file], disk.held[to]
    disk.held[place], disk.place[other] = other, place
    disk.held[to], disk.place[file] = file, to
