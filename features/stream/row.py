"""The columns of one file as they are now."""

from __future__ import annotations

import numpy as np

from features.arrays import Float32Array, FloatArray
from features.jit import bare
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
    DECAYS,
    FIRST,
    FRONT,
    GAP,
    GAPS,
    HALF_LIVES_S,
    KEY,
    LAST,
    P_GAP,
    P_LAST,
    P_READS,
    PASS_DECAYS,
    PASS_HALF_LIVES_S,
    PASSES,
    POSITION,
    READS,
    SERIAL,
    START,
    Files,
    State,
    has_read,
)

DAY_S = 86400.0
SHOWN_PASSES = 3
SHORTEST_PASS_S = 300.0
"""A pass that began just now has no rate yet: it counts as if it had begun this long ago."""

COLUMNS = (
    *("size_bytes", "tier", "n_reads", "since_first_s", "recency_s"),
    *(f"decayed_{s / 3600:.0f}h" for s in HALF_LIVES_S),
    *(f"gap_{k}_s" for k in range(GAPS)),
    *("dataset_recency_s", "dataset_n_files", "dataset_reads_per_file"),
    *(f"dataset_decayed_{s / 3600:.0f}h" for s in HALF_LIVES_S),
    *("dataset_since_first_s", "dataset_n_passes", "dataset_passes_per_day", "dataset_since_pass_s"),
    *(f"dataset_passes_{s / 3600:.0f}h" for s in PASS_HALF_LIVES_S),
    "due_s",
    *(
        f"pass_{k}_{what}"
        for k in range(SHOWN_PASSES)
        for what in ("age_s", "share", "silence_s", "has_read", "gap_s", "front_due_s")
    ),
    *("n_in_progress", "n_to_come", "least_share_to_come", "most_share_to_come", "rate_to_come"),
    *("front_due_s", "position", "hour", "weekday"),
)
"""Names of the columns, in the order of a row. `..._to_come`: of passes in progress that have not read the file."""


@bare
def row(state: State, files: Files, item: int, now_s: float, pause_s: float, out: Float32Array) -> None:
    """Write the columns of file `item` at `now_s` to `out`, float32[len(COLUMNS)]; NaN: not known."""
    dataset = files.dataset[item]
    of_file, of_dataset = state.file[item], state.dataset[dataset]
    n_files = max(1.0, of_dataset[D_FILES])
    out[0] = files.size_bytes[item]
    out[1] = files.tier[item]
    out[2] = of_file[READS]
    out[3] = now_s - of_file[FIRST]
    out[4] = now_s - of_file[LAST]
    at = 5
    for k in range(DECAYS):
        out[at + k] = of_file[DECAYED + k] * np.exp2(-(now_s - of_file[LAST]) / HALF_LIVES_S[k])
    at += DECAYS
    for k in range(GAPS):
        out[at + k] = of_file[GAP + k]
    at += GAPS
    at = _dataset_columns(of_dataset, n_files, now_s, out, at)
    out[at] = of_dataset[D_SHIFT] - (now_s - of_file[LAST])
    _pass_columns(state.passes[dataset], of_file, n_files, now_s, pause_s, out, at + 1)
    at = out.size - 3
    out[at] = of_file[POSITION] / n_files
    out[at + 1] = now_s % DAY_S // 3600
    out[at + 2] = now_s // DAY_S % 7


@bare
def _dataset_columns(of: FloatArray, n_files: float, now_s: float, out: Float32Array, at: int) -> int:
    """Columns from `at` on; the next free column."""
    out[at] = now_s - of[D_LAST]
    out[at + 1] = n_files
    out[at + 2] = of[D_READS] / n_files
    at += 3
    for k in range(DECAYS):
        out[at + k] = of[D_DECAYED + k] * np.exp2(-(now_s - of[D_LAST]) / HALF_LIVES_S[k]) / n_files
    at += DECAYS
    out[at] = now_s - of[D_FIRST]
    out[at + 1] = of[D_PASSES]
    out[at + 2] = of[D_PASSES] / (now_s - of[D_FIRST] + DAY_S) * DAY_S
    out[at + 3] = now_s - of[D_PASS_LAST]
    at += 4
    for k in range(PASS_DECAYS):
        silence_s = now_s - of[D_PASS_LAST]
        out[at + k] = of[D_PASS_DECAYED + k] * np.exp2(-silence_s / PASS_HALF_LIVES_S[k])
    return at + PASS_DECAYS


@bare
def _pass_columns(
    passes: FloatArray,
    of_file: FloatArray,
    n_files: float,
    now_s: float,
    pause_s: float,
    out: Float32Array,
    at: int,
) -> None:
    in_progress, to_come, least, most, rate, due = 0.0, 0.0, np.nan, np.nan, 0.0, np.nan
    for k in range(PASSES):
        of = passes[k]
        is_known = of[KEY] >= 0
        mine = is_known and has_read(of_file, of[SERIAL])
        share, front_due_s = of[P_READS] / n_files, np.nan
        age_s = max(SHORTEST_PASS_S, now_s - of[START])
        if is_known and now_s - of[P_LAST] <= pause_s:
            in_progress += 1
            if not mine:
                to_come += 1
                rate += share / age_s * 3600
                least = share if to_come == 1 else min(share, least)
                most = share if to_come == 1 else max(share, most)
                # The pass reads in the dataset's order: its front comes to this file after so long.
                front_due_s = (of_file[POSITION] - of[FRONT]) * age_s / (of[FRONT] + 1)
                if front_due_s >= 0 and not front_due_s >= due:
                    due = front_due_s
        if k < SHOWN_PASSES:
            out[at] = now_s - of[START]
            out[at + 1] = share
            out[at + 2] = now_s - of[P_LAST]
            out[at + 3] = (1.0 if mine else 0.0) if is_known else np.nan
            out[at + 4] = of[P_GAP]
            out[at + 5] = front_due_s
            at += 6
    out[at] = in_progress
    out[at + 1] = to_come
    out[at + 2] = least
    out[at + 3] = most
    out[at + 4] = rate
    out[at + 5] = due
