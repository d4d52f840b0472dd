"""The state of files, datasets and passes, and its update by one access."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray
from features.jit import bare

Ids = npt.NDArray[np.int32]

HOUR_S = 3600.0
DECAYS = 4
HALF_LIVES_S = (2 * HOUR_S, 12 * HOUR_S, 48 * HOUR_S, 192 * HOUR_S)
"""Half-lives of the decayed counts of reads of a file and of a dataset, s."""
PASS_DECAYS = 3
PASS_HALF_LIVES_S = (24 * HOUR_S, 96 * HOUR_S, 384 * HOUR_S)
"""Half-lives of the decayed counts of a dataset's passes, s."""
GAPS = 3
"""Last gaps between reads that a file keeps."""
PASSES = 4
"""Passes that a dataset keeps; of more, the one silent for longest is forgotten."""
READERS = 4
"""Last passes that a file remembers to have been read by."""
SHIFT_WEIGHT = 0.2
"""Weight of the newest gap in the dataset's running mean of gaps between reads of a file."""

# Columns of State.file.
LAST, READS, FIRST, DECAYED, GAP, READER, POSITION = 0, 1, 2, 3, 3 + DECAYS, 3 + DECAYS + GAPS, 14
FILE_WIDTH = 16
# Columns of State.dataset.
D_LAST, D_READS, D_FIRST, D_DECAYED, D_PASSES, D_PASS_LAST, D_FILES, D_SHIFT, D_PASS_DECAYED = (
    *(0, 1, 2, 3, 3 + DECAYS, 4 + DECAYS, 5 + DECAYS, 6 + DECAYS),
    7 + DECAYS,
)
DATASET_WIDTH = 16
# Columns of State.passes.
KEY, SERIAL, START, P_LAST, P_READS, FRONT, P_GAP = range(7)
PASS_WIDTH = 8


class State(NamedTuple):
    """What is remembered of `m` files and `d` datasets; times are seconds, NaN where there is none yet.

    `file`: float64[m, 16], `dataset`: float64[d, 16], `passes`: float64[d, 4, 8], the newest start first.
    """

    file: FloatArray
    dataset: FloatArray
    passes: FloatArray


class Files(NamedTuple):
    """What is known of `m` files beside their reads.

    `dataset`: int32[m], dense; `tier`: int32[m], a category; `size_bytes`: int64[m]; `position`: int32[m],
    place in the dataset's order, -1 where no catalogue says it: then the order of the first reads.
    `pause_s`: a pass ends when its reader is silent for longer.
    """

    dataset: Ids
    tier: Ids
    size_bytes: IntArray
    position: Ids
    pause_s: float


def new_state(n_files: int, dataset_files: IntArray) -> State:
    """A state without any access; `dataset_files`: int64[d], files that a catalogue knows, 0: unknown."""
    file = np.full((n_files, FILE_WIDTH), np.nan)
    file[:, READS] = 0
    file[:, DECAYED : DECAYED + DECAYS] = 0
    file[:, READER : READER + READERS] = -1
    dataset = np.full((dataset_files.size, DATASET_WIDTH), np.nan)
    dataset[:, D_READS] = dataset[:, D_PASSES] = 0
    dataset[:, D_DECAYED : D_DECAYED + DECAYS] = 0
    dataset[:, D_PASS_DECAYED : D_PASS_DECAYED + PASS_DECAYS] = 0
    dataset[:, D_FILES] = dataset_files
    passes = np.full((dataset_files.size, PASSES, PASS_WIDTH), np.nan)
    passes[:, :, KEY] = -1
    return State(file, dataset, passes)


@bare
def update(state: State, files: Files, item: int, reader: int, now_s: float) -> None:
    """Count one read of file `item` at `now_s` by `reader` (a task or a user; 0 if nobody is named).

    Times never decrease.
    """
    of_file, of_dataset = state.file[item], state.dataset[files.dataset[item]]
    passes = state.passes[files.dataset[item]]
    current = passes[_pass_of(of_dataset, passes, reader, now_s, files.pause_s)]
    if of_file[READS] == 0:
        of_file[FIRST] = now_s
        _place(of_file, of_dataset, files.position[item])
    else:
        gap = now_s - of_file[LAST]
        for k in range(GAPS - 1, 0, -1):
            of_file[GAP + k] = of_file[GAP + k - 1]
        of_file[GAP] = gap
        shift = of_dataset[D_SHIFT]
        of_dataset[D_SHIFT] = gap if np.isnan(shift) else shift + SHIFT_WEIGHT * (gap - shift)
    _count(of_file, LAST, READS, DECAYED, now_s)
    _count(of_dataset, D_LAST, D_READS, D_DECAYED, now_s)
    current[P_LAST] = now_s
    current[FRONT] = max(current[FRONT], of_file[POSITION])
    if not has_read(of_file, current[SERIAL]):
        current[P_READS] += 1
        for k in range(READERS - 1, 0, -1):
            of_file[READER + k] = of_file[READER + k - 1]
        of_file[READER] = current[SERIAL]


@bare
def has_read(of_file: FloatArray, serial: float) -> bool:
    """Whether the pass `serial` is among the last that read the file."""
    found = False
    for k in range(READERS):
        found |= of_file[READER + k] == serial
    return found


@bare
def _place(of_file: FloatArray, of_dataset: FloatArray, position: int) -> None:
    """Give a file that is read for the first time its place in the dataset's order."""
    if position >= 0:
        of_file[POSITION] = position
        of_dataset[D_FILES] = max(of_dataset[D_FILES], position + 1)
    else:
        of_file[POSITION] = of_dataset[D_FILES]
        of_dataset[D_FILES] += 1


@bare
def _count(of: FloatArray, last: int, reads: int, decayed: int, now_s: float) -> None:
    if of[reads] > 0:
        silence_s = now_s - of[last]
        for k in range(DECAYS):
            of[decayed + k] = of[decayed + k] * np.exp2(-silence_s / HALF_LIVES_S[k]) + 1
    else:
        for k in range(DECAYS):
            of[decayed + k] = 1
    of[last] = now_s
    of[reads] += 1


@bare
def _pass_of(of_dataset: FloatArray, passes: FloatArray, reader: int, now_s: float, pause_s: float) -> int:
    """The index of the pass that `reader` is in, begun now if it was not in one."""
    for k in range(PASSES):
        if passes[k, KEY] == reader and now_s - passes[k, P_LAST] <= pause_s:
            return k
    forgotten = PASSES - 1
    for k in range(PASSES):
        if passes[k, KEY] < 0:
            forgotten = k
            break
        if passes[k, P_LAST] < passes[forgotten, P_LAST]:
            forgotten = k
    for k in range(forgotten, 0, -1):
        for column in range(PASS_WIDTH):
            passes[k, column] = passes[k - 1, column]
    _begin(of_dataset, passes[0], reader, now_s)
    return 0


@bare
def _begin(of_dataset: FloatArray, begun: FloatArray, reader: int, now_s: float) -> None:
    if of_dataset[D_PASSES] == 0:
        of_dataset[D_FIRST] = now_s
        for k in range(PASS_DECAYS):
            of_dataset[D_PASS_DECAYED + k] = 1
        begun[P_GAP] = np.nan
    else:
        gap = now_s - of_dataset[D_PASS_LAST]
        begun[P_GAP] = gap
        for k in range(PASS_DECAYS):
            at = D_PASS_DECAYED + k
            of_dataset[at] = of_dataset[at] * np.exp2(-gap / PASS_HALF_LIVES_S[k]) + 1
    begun[KEY], begun[SERIAL], begun[START] = reader, of_dataset[D_PASSES], now_s
    begun[P_LAST], begun[P_READS], begun[FRONT] = now_s, 0, 0
    of_dataset[D_PASSES] += 1
    of_dataset[D_PASS_LAST] = now_s
