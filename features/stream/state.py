"""The state of files, datasets and passes, and its update by one access."""

from typing import NamedTuple, TypeVar

import numpy as np

from features.common.arrays import FloatArray, Ids, IntArray
from features.common.jit import bare, inner
from features.spec import DECAYS, GAPS, HALF_LIVES_S, HOUR_S, PASS_DECAYS, PASS_HALF_LIVES_S

_Code = TypeVar("_Code", int, IntArray)

PASSES = 4
"""Passes that a dataset keeps; of more, the one silent for longest goes, of several the first begun."""
READERS = 4
"""Last passes that a file remembers to have been read by."""
SHIFT_WEIGHT = 0.2
"""Weight of the newest gap in the dataset's running mean of gaps between reads of a file."""
TASK_PAUSE_S = 12 * HOUR_S
"""A task's pass ends when it is silent for longer."""
USER_PAUSE_S = 3 * HOUR_S
"""The same of a user, and of readers whom nobody names."""

# Columns of State.file.
LAST, READS, FIRST, DECAYED, GAP, READER, POSITION, LIFE = 0, 1, 2, 3, 3 + DECAYS, 3 + DECAYS + GAPS, 14, 15
FILE_WIDTH = 16
# Columns of State.dataset.
D_LAST, D_READS, D_FIRST, D_DECAYED, D_PASSES, D_PASS_LAST, D_FILES, D_SHIFT, D_PASS_DECAYED = (
    *(0, 1, 2, 3, 3 + DECAYS, 4 + DECAYS, 5 + DECAYS, 6 + DECAYS),
    7 + DECAYS,
)
D_LIFE, D_COUNTED = 7 + DECAYS + PASS_DECAYS, 8 + DECAYS + PASS_DECAYS
DATASET_WIDTH = 16
# Columns of State.passes.
KEY, SERIAL, START, P_LAST, P_READS, FRONT, P_GAP = range(7)
PASS_WIDTH = 7


class State(NamedTuple):
    """What is remembered of `m` files and `d` datasets; times are seconds, NaN where there is none yet.

    `file`: float64[m, 16], `dataset`: float64[d, 16], `passes`: float64[d, 4, 7], the newest start first.
    """

    file: FloatArray
    dataset: FloatArray
    passes: FloatArray


class Read(NamedTuple):
    """`n_reads` reads of a file at a time; `reader`: see `task_number`, 0 if nobody is named.

    `from_s`: when they are counted, never before `at_s`.
    """

    item: int
    reader: int
    n_reads: float
    at_s: float
    from_s: float


class Files(NamedTuple):
    """What is known of `m` files and `d` datasets beside their reads.

    `dataset`: int32[m], dense; `tier`: int32[m], a category; `size_bytes`: int64[m], -1: unknown; `n_files`:
    int64[d], files that a catalogue knows, 0: none. `rank`: int32[m], place of a file that nobody has read
    among those of its dataset, -1: unknown. `history_s`: a dataset begins anew with a read that is counted
    when its last read is older.
    """

    dataset: Ids
    tier: Ids
    size_bytes: IntArray
    rank: Ids
    n_files: IntArray
    history_s: float


def new_state(n_files: int, n_datasets: int) -> State:
    """A state of `m` files and `d` datasets in which nothing was read yet."""
    state = State(
        np.empty((n_files, FILE_WIDTH)),
        np.empty((n_datasets, DATASET_WIDTH)),
        np.empty((n_datasets, PASSES, PASS_WIDTH)),
    )
    forget_all(state)
    return state


@bare
def forget_all(state: State) -> None:
    """Begin anew: nothing was read yet."""
    for k in range(state.file.shape[0]):
        forget_file(state.file[k])
    for k in range(state.dataset.shape[0]):
        forget_dataset(state.dataset[k], state.passes[k])


def task_number(code: _Code) -> _Code:
    """Numbers of readers from numbers of tasks that are 0 or more: even, at least 2."""
    return 2 * code + 2


def user_number(code: _Code) -> _Code:
    """Numbers of readers from numbers of users that are 0 or more: odd."""
    return 2 * code + 1


@bare
def update(state: State, files: Files, read: Read) -> None:
    """Count a read; `from_s` never decreases.

    Reads may become known late: one that is older than what is known counts as of its time, and changes no
    last read. Whether a dataset begins anew depends on when the read is counted, not on its own time: a
    dataset that has been forgotten by then stays forgotten.
    """
    item, reader, now_s = read.item, read.reader, read.at_s
    of_file, of_dataset = state.file[item], state.dataset[files.dataset[item]]
    passes = state.passes[files.dataset[item]]
    if read.from_s - of_dataset[D_LAST] > files.history_s and of_dataset[D_LIFE] < read.from_s:
        forget_dataset(of_dataset, passes)
    if of_dataset[D_PASSES] == 0:
        of_dataset[D_LIFE] = read.from_s
    of_dataset[D_COUNTED] = read.from_s
    current = passes[_pass_of(of_dataset, passes, reader, now_s)]
    if is_known(of_file, of_dataset):
        _note_gap(of_file, of_dataset, now_s)
    else:
        forget_file(of_file)
        of_file[FIRST], of_file[LIFE] = now_s, of_dataset[D_LIFE]
        of_file[POSITION] = of_dataset[D_FILES]
        of_dataset[D_FILES] += 1
    _count(of_file, read.n_reads, now_s)
    _count(of_dataset, read.n_reads, now_s)
    current[P_LAST] = max(current[P_LAST], now_s)
    current[FRONT] = max(current[FRONT], of_file[POSITION])
    if not has_read(of_file, current[SERIAL]):
        current[P_READS] += 1
        for k in range(READERS - 1, 0, -1):
            of_file[READER + k] = of_file[READER + k - 1]
        of_file[READER] = current[SERIAL]


@bare
def is_known(of_file: FloatArray, of_dataset: FloatArray) -> bool:
    """Whether the file was read since its dataset began, for the first time or anew."""
    return bool(of_file[LIFE] == of_dataset[D_LIFE])


@bare
def has_read(of_file: FloatArray, serial: float) -> bool:
    """Whether the pass `serial` is among the last that read the file."""
    is_among = False
    for k in range(READERS):
        is_among |= of_file[READER + k] == serial
    return is_among


@bare
def pause_s(reader: float) -> float:
    """How long (s) a reader may be silent before a pass through the dataset ends."""
    return TASK_PAUSE_S if reader >= 2 and reader % 2 == 0 else USER_PAUSE_S


@bare
def forget_file(of_file: FloatArray) -> None:
    """Forget all reads of a file."""
    of_file[:] = np.nan
    of_file[READS] = 0
    for k in range(DECAYS):
        of_file[DECAYED + k] = 0
    for k in range(READERS):
        of_file[READER + k] = -1


@bare
def forget_dataset(of_dataset: FloatArray, passes: FloatArray) -> None:
    """Forget all reads of a dataset, and its passes; files are forgotten when they are read again."""
    of_dataset[:] = np.nan
    of_dataset[D_READS] = of_dataset[D_PASSES] = of_dataset[D_FILES] = 0
    for k in range(DECAYS):
        of_dataset[D_DECAYED + k] = 0
    for k in range(PASS_DECAYS):
        of_dataset[D_PASS_DECAYED + k] = 0
    passes[:] = np.nan
    passes[:, KEY] = -1


@inner
def _note_gap(of_file: FloatArray, of_dataset: FloatArray, now_s: float) -> None:
    gap = abs(now_s - of_file[LAST])
    for k in range(GAPS - 1, 0, -1):
        of_file[GAP + k] = of_file[GAP + k - 1]
    of_file[GAP] = gap
    of_file[FIRST] = min(of_file[FIRST], now_s)
    shift = of_dataset[D_SHIFT]
    of_dataset[D_SHIFT] = gap if np.isnan(shift) else shift + SHIFT_WEIGHT * (gap - shift)


@inner
def _count(of: FloatArray, n_reads: float, now_s: float) -> None:
    """Count reads of a file or a dataset, whose columns begin alike."""
    if not np.isnan(of[LAST]):
        silence_s = now_s - of[LAST]
        for k in range(DECAYS):
            weight = np.exp2(-abs(silence_s) / HALF_LIVES_S[k])
            if silence_s >= 0:
                of[DECAYED + k] = of[DECAYED + k] * weight + n_reads
            else:
                of[DECAYED + k] += n_reads * weight
        of[LAST] = max(of[LAST], now_s)
    else:
        for k in range(DECAYS):
            of[DECAYED + k] = n_reads
        of[LAST] = now_s
    of[READS] += n_reads


@inner
def _pass_of(of_dataset: FloatArray, passes: FloatArray, reader: int, now_s: float) -> int:
    """The index of the pass that `reader` is in, begun now if it was not in one."""
    pause = pause_s(float(reader))
    for k in range(PASSES):
        is_within = now_s - passes[k, P_LAST] <= pause and passes[k, START] - now_s <= pause
        if passes[k, KEY] == reader and is_within:
            return k
    forgotten = 0
    for k in range(PASSES):
        if passes[k, KEY] < 0:
            forgotten = k
            break
        if passes[k, P_LAST] <= passes[forgotten, P_LAST]:
            forgotten = k
    for k in range(forgotten, 0, -1):
        for column in range(PASS_WIDTH):
            passes[k, column] = passes[k - 1, column]
    _begin(of_dataset, passes[0], reader, now_s)
    return 0


@inner
def _begin(of_dataset: FloatArray, begun: FloatArray, reader: int, now_s: float) -> None:
    if of_dataset[D_PASSES] == 0:
        of_dataset[D_FIRST] = of_dataset[D_PASS_LAST] = now_s
        for k in range(PASS_DECAYS):
            of_dataset[D_PASS_DECAYED + k] = 1
        begun[P_GAP] = np.nan
    else:
        of_dataset[D_FIRST] = min(of_dataset[D_FIRST], now_s)
        gap = now_s - of_dataset[D_PASS_LAST]
        begun[P_GAP] = abs(gap)
        for k in range(PASS_DECAYS):
            at = D_PASS_DECAYED + k
            weight = np.exp2(-abs(gap) / PASS_HALF_LIVES_S[k])
            of_dataset[at] = of_dataset[at] * weight + 1 if gap >= 0 else of_dataset[at] + weight
    begun[KEY], begun[SERIAL], begun[START] = reader, of_dataset[D_PASSES], now_s
    begun[P_LAST], begun[P_READS], begun[FRONT] = now_s, 0, 0
    of_dataset[D_PASSES] += 1
    of_dataset[D_PASS_LAST] = max(of_dataset[D_PASS_LAST], now_s)
