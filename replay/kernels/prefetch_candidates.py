"""Which absent files of a dataset are likely to be read soon, by the models of a learned order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from features.common.arrays import BoolArray, FloatArray, Ids
from features.common.jit import kernel
from features.stream.row import row
from features.stream.state import READS
from replay.kernels.scored_files import N_HELD, Disk, Known, Rule, least_valuable, score
from replay.trees.forest import chances, fill
from replay.trees.lanes import LANES


class Asked(NamedTuple):
    """Absent files at a time, int32[k]; `spare`: bool[m], files on disk that are no victims."""

    files: Ids
    now_s: float
    spare: BoolArray


@kernel
def likely(disk: Disk, known: Known, rule: Rule, asked: Asked, rung: int) -> FloatArray:
    """The chance of a read within horizon `rung` of each file, float64[k]; -1: on disk, or never read."""
    files, now_s, n = asked.files, asked.now_s, 0
    out = np.empty(files.size)
    for k in range(files.size):
        file = files[k]
        is_asked = known.state.file[file, READS] > 0 and disk.place[file] < 0
        out[k] = 0.0 if is_asked else -1.0
        if is_asked:
            row(known.state, known.files, file, now_s, known.values.x)
            fill(rule.ladder.forest, known.values.x, rule.block, n)
            known.values.stale[n] = k
            n += 1
        if n == LANES or (n > 0 and k == files.size - 1):
            chances(rule.ladder, rung, rule.block, n)
            for lane in range(n):
                out[known.values.stale[lane]] = rule.block.chance[lane]
            n = 0
    return out


@kernel
def worth_more(disk: Disk, known: Known, rule: Rule, asked: Asked) -> BoolArray:
    """Which of at most `LANES` files are worth more than the least valuable of a sample of those on disk."""
    files, n_held = asked.files, disk.sums[N_HELD]
    worst = least_valuable(disk, known, rule, asked.spare, asked.now_s)
    disk.sums[N_HELD] = n_held
    floor = known.values.value[worst] if worst >= 0 else -np.inf
    known.values.stale[: files.size] = files
    score(known, rule, files.size, asked.now_s)
    known.values.at_s[files] = asked.now_s
    return known.values.value[files] > floor
