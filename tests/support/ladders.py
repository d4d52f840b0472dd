"""The smallest ladders of models, and ladders asked from Python."""

import numpy as np

from features.common.arrays import Float32Array, FloatArray
from features.spec import COLUMNS
from replay.kernels.trees import (
    NAN_RIGHT,
    PART,
    Forest,
    HorizonModels,
    fill,
    hit_rates,
    join_models,
    new_block,
)

DAY_S = 86400.0


def one_split(column: str, threshold: float, low: float, high: float) -> HorizonModels:
    """A ladder of one tree for a day: `low` up to the threshold, `high` above."""
    leaf = np.zeros((1, PART))
    leaf[0, :2] = low, high
    forest = Forest(
        column=np.array([COLUMNS.index(column)], np.int32),
        rule=np.array([NAN_RIGHT], np.int8),
        first_part=np.array([0, 1], np.int32),
        first_split=np.array([0, 1], np.int32),
        first_set=np.array([1], np.int32),
        leaf=leaf,
        plane=np.zeros(1, np.int32),
        threshold=np.array([threshold], np.float32),
        right=np.array([0xFFFFFFFE], np.uint32),
        first_word=np.zeros(1, np.int32),
        n_words=np.zeros(1, np.int32),
        words=np.zeros(0, np.uint32),
    )
    return join_models([forest], [DAY_S])


def rates_of(of: HorizonModels, rows: Float32Array) -> FloatArray:
    """The hit rate of each row, at most a block of them."""
    block = new_block(of.forest)
    for lane, x in enumerate(rows):
        fill(of.forest, x, block, lane)
    hit_rates(of, block, len(rows))
    return block.rate[: len(rows)].copy()
