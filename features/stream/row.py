"""The columns of one file, or of many, as they are now."""

import numpy as np

from features.common.arrays import Float32Array, FloatArray, Ids
from features.common.jit import bare, inner, kernel
from features.spec import COLUMNS, DECAYS, GAPS, HALF_LIVES_S, PASS_DECAYS, PASS_HALF_LIVES_S, SHOWN_PASSES
from features.stream.state import (
    D_DECAYED,
    D_FILES,
    D_FIRST,
    D_LAST,
    D_PASS_DECAYED,
    D_PASS_LAST,
    D_PASSES,
    D_READS,
    D_SHIFT,
    DECAYED,
    FIRST,
    FRONT,
    GAP,
    KEY,
    LAST,
    P_GAP,
    P_LAST,
    P_READS,
    PASSES,
    POSITION,
    READS,
    SERIAL,
    START,
    Files,
    State,
    forget_file,
    has_read,
    is_known,
    pause_s,
)

DAY_S = 86400.0
SHORTEST_PASS_S = 300.0
"""A pass that began just now has no rate yet: it counts as if it had begun this long ago."""

C_SIZE, C_TIER, C_READS, C_SINCE_FIRST, C_SILENCE, C_DECAYED, C_GAP = (
    COLUMNS.index(name)
    for name in ("size_bytes", "tier", "n_reads", "since_first_s", "recency_s", "decayed_2h", "gap_0_s")
)
C_DATASET_SILENCE, C_N_FILES, C_READS_PER_FILE, C_DATASET_DECAYED, C_DATASET_SINCE_FIRST = (
    COLUMNS.index(f"dataset_{name}")
    for name in ("recency_s", "n_files", "reads_per_file", "decayed_2h", "since_first_s")
)
C_N_PASSES, C_PASSES_PER_DAY, C_SINCE_PASS, C_PASSES_DECAYED = (
    COLUMNS.index(f"dataset_{name}") for name in ("n_passes", "passes_per_day", "since_pass_s", "passes_24h")
)
C_PASS_AGE, C_PASS_SHARE, C_PASS_SILENCE, C_PASS_HAS_READ, C_PASS_GAP, C_PASS_DUE = (
    COLUMNS.index(f"pass_0_{name}")
    for name in ("age_s", "share", "silence_s", "has_read", "gap_s", "front_due_s")
)
C_IN_PROGRESS, C_TO_COME, C_LEAST, C_MOST, C_RATE, C_FRONT_DUE = (
    COLUMNS.index(name)
    for name in (
        *("n_in_progress", "n_to_come", "least_share_to_come", "most_share_to_come", "rate_to_come"),
        "front_due_s",
    )
)
C_DUE, C_POSITION, C_HOUR, C_WEEKDAY = (
    COLUMNS.index(name) for name in ("due_s", "position", "hour", "weekday")
)
"""Places in a row; of columns that there are several of, the first one's."""
_PASS_WIDTH = COLUMNS.index("pass_1_age_s") - C_PASS_AGE

_BLOCK = 64
"""Rows that are written and then turned into columns, while they are in the processor's caches."""


@bare
def row(state: State, files: Files, item: int, now_s: float, out: Float32Array) -> None:
    """Write the columns of file `item` at `now_s` to `out`, float32[len(COLUMNS)]; NaN: not known.

    Reads from before the dataset began anew (`Files.history_s`) do not count.
    """
    dataset = files.dataset[item]
    of_file, of_dataset, passes = state.file[item], state.dataset[dataset], state.passes[dataset]
    if not is_known(of_file, of_dataset):
        forget_file(of_file)
    n_files = max(1.0, of_dataset[D_FILES], files.n_files[dataset])
    position = of_file[POSITION]  # in the order of first reads; files that nobody has read come later
    if np.isnan(position) and files.rank[item] >= 0:
        position = of_dataset[D_FILES] + files.rank[item]
    out[C_SIZE] = files.size_bytes[item] if files.size_bytes[item] >= 0 else np.nan
    out[C_TIER] = files.tier[item] if files.tier[item] >= 0 else np.nan
    _file_columns(of_file, now_s, out)
    _dataset_columns(of_dataset, n_files, now_s, out)
    out[C_DUE] = of_dataset[D_SHIFT] - (now_s - of_file[LAST])
    for k in range(SHOWN_PASSES):
        _pass_columns(passes[k], of_file, n_files, now_s, out[k * _PASS_WIDTH :])
        if _comes(passes[k], of_file, now_s):
            out[k * _PASS_WIDTH + C_PASS_DUE] = _front_due_s(passes[k], position, now_s)
    _progress_columns(passes, of_file, position, now_s, out)
    for k in (C_LEAST, C_MOST, C_RATE):
        out[k] /= n_files
    out[C_POSITION] = position / n_files
    out[C_HOUR] = now_s % DAY_S // 3600
    out[C_WEEKDAY] = now_s // DAY_S % 7


@inner
def _decayed(count: float, silence_s: float, half_life_s: float) -> float:
    return float(count * np.exp2(-silence_s / half_life_s)) if count > 0 else 0.0


@inner
def _file_columns(of: FloatArray, now_s: float, out: Float32Array) -> None:
    silence_s = now_s - of[LAST]
    out[C_READS] = of[READS]
    out[C_SINCE_FIRST] = now_s - of[FIRST]
    out[C_SILENCE] = silence_s
    for k in range(DECAYS):
        out[C_DECAYED + k] = _decayed(of[DECAYED + k], silence_s, HALF_LIVES_S[k])
    for k in range(GAPS):
        out[C_GAP + k] = of[GAP + k]


@inner
def _dataset_columns(of: FloatArray, n_files: float, now_s: float, out: Float32Array) -> None:
    silence_s, since_pass_s, age_s = now_s - of[D_LAST], now_s - of[D_PASS_LAST], now_s - of[D_FIRST]
    out[C_DATASET_SILENCE] = silence_s
    out[C_N_FILES] = n_files
    out[C_READS_PER_FILE] = of[D_READS] / n_files
    for k in range(DECAYS):
        out[C_DATASET_DECAYED + k] = _decayed(of[D_DECAYED + k], silence_s, HALF_LIVES_S[k]) / n_files
    out[C_DATASET_SINCE_FIRST] = age_s
    out[C_N_PASSES] = of[D_PASSES]
    out[C_PASSES_PER_DAY] = of[D_PASSES] / (max(age_s, 0.0) + DAY_S) * DAY_S  # clocks run backwards too
    out[C_SINCE_PASS] = since_pass_s
    for k in range(PASS_DECAYS):
        out[C_PASSES_DECAYED + k] = _decayed(of[D_PASS_DECAYED + k], since_pass_s, PASS_HALF_LIVES_S[k])


@inner
def _pass_columns(
    of: FloatArray, of_file: FloatArray, n_files: float, now_s: float, out: Float32Array
) -> None:
    """The columns of one pass, its due time unknown; `out` begins where they fit the first one's."""
    out[C_PASS_AGE] = now_s - of[START]
    out[C_PASS_SHARE] = of[P_READS] / n_files
    out[C_PASS_SILENCE] = now_s - of[P_LAST]
    out[C_PASS_HAS_READ] = np.nan if not of[KEY] >= 0 else 1.0 if has_read(of_file, of[SERIAL]) else 0.0
    out[C_PASS_GAP] = of[P_GAP]
    out[C_PASS_DUE] = np.nan


@inner
def _progress_columns(
    passes: FloatArray, of_file: FloatArray, position: float, now_s: float, out: Float32Array
) -> None:
    """How many passes are in progress; how many of them have not read the file, their files, rate and due."""
    in_progress, to_come, least, most, rate, due = 0.0, 0.0, np.nan, np.nan, 0.0, np.nan
    for k in range(PASSES):
        of = passes[k]
        if in_pass(of, now_s):
            in_progress += 1
        if _comes(of, of_file, now_s):
            to_come += 1
            least = of[P_READS] if to_come == 1 else min(of[P_READS], least)
            most = of[P_READS] if to_come == 1 else max(of[P_READS], most)
            rate += of[P_READS] / _age_s(of, now_s) * 3600
            front_due_s = _front_due_s(of, position, now_s)
            if front_due_s >= 0 and not front_due_s >= due:
                due = front_due_s
    out[C_IN_PROGRESS] = in_progress
    out[C_TO_COME] = to_come
    out[C_LEAST] = least
    out[C_MOST] = most
    out[C_RATE] = rate
    out[C_FRONT_DUE] = due


@bare
def in_pass(of: FloatArray, now_s: float) -> bool:
    """Whether a pass is in progress at `now_s`."""
    return bool(of[KEY] >= 0 and now_s - of[P_LAST] <= pause_s(of[KEY]))


@inner
def _comes(of: FloatArray, of_file: FloatArray, now_s: float) -> bool:
    """Whether a pass in progress has not read the file."""
    return in_pass(of, now_s) and not has_read(of_file, of[SERIAL])


@inner
def _age_s(of: FloatArray, now_s: float) -> float:
    return float(max(SHORTEST_PASS_S, now_s - of[START]))


@inner
def _front_due_s(of: FloatArray, position: float, now_s: float) -> float:
    """Time until a pass that reads in the dataset's order comes to the file; negative: it left it out."""
    return float((position - of[FRONT]) * _age_s(of, now_s) / (of[FRONT] + 1))


@kernel
def written(state: State, files: Files, item: Ids, now_s: float) -> Float32Array:
    """The columns of each of `item`, no file twice, as they are at `now_s`: float32[len(COLUMNS), k]."""
    x = np.empty((len(COLUMNS), item.size), np.float32)
    block = np.empty((_BLOCK, len(COLUMNS)), np.float32)
    for start in range(0, item.size, _BLOCK):
        n = min(_BLOCK, item.size - start)
        for k in range(n):
            row(state, files, item[start + k], now_s, block[k])
        for column in range(len(COLUMNS)):
            for k in range(n):
                x[column, start + k] = block[k, column]
    return x
