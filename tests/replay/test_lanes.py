"""Vector instructions against their plain twin, a loop over rows and splits."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from features.common.arrays import Float32Array, Ids
from features.common.jit import bare
from replay.kernels.trees import FEW, LANES, Words, aligned, rule_out, rule_out_few

ALL = 0xFFFFFFFF


class Splits(NamedTuple):
    plane: Ids
    threshold: Float32Array
    rest: Words


def plain(planes: Float32Array, splits: Splits, part: tuple[int, int]) -> list[int]:
    """For each row, the leaves that no split of `part` rules out."""
    words = [ALL] * LANES
    for row in range(LANES):
        for split in range(*part):
            if not planes[splits.plane[split], row] <= splits.threshold[split]:
                words[row] &= int(splits.rest[split])
    return words


@bare
def by_vectors(words: Words, planes: Float32Array, splits: Splits, part: tuple[int, int]) -> None:
    rule_out(words, planes, splits.plane, splits.threshold, splits.rest, part[0], part[1])


@bare
def by_short_vectors(words: Words, planes: Float32Array, splits: Splits, part: tuple[int, int]) -> None:
    rule_out_few(words, planes, splits.plane, splits.threshold, splits.rest, part[0], part[1])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("kernel", "n_rows"), [(by_vectors, LANES), (by_short_vectors, FEW)])
def test_the_leaves_left_are_those_of_the_plain_twin(
    kernel: Callable[..., None], n_rows: int, seed: int
) -> None:
    """With missing values, infinities and values that equal the threshold; other rows are left alone."""
    draw, n_planes, n_splits = np.random.default_rng(seed), 7, 31
    planes = aligned(n_planes * LANES, np.float32).reshape(-1, LANES)
    planes[:] = draw.choice([np.nan, -np.inf, np.inf, 0.0, 1.0, 1.5, -3.0], planes.shape)
    rest = draw.integers(0, 2**32, (2, n_splits), dtype=np.uint32)
    splits = Splits(
        draw.integers(0, n_planes, n_splits).astype(np.int32),
        draw.choice([0.0, 1.0, 1.5, np.inf], n_splits).astype(np.float32),
        rest[0] | rest[1],
    )
    for part in ((0, n_splits), (3, 9), (5, 5)):
        words = aligned(LANES, np.uint32)
        words[:] = 7
        kernel(words, planes, splits, part)
        assert words[:n_rows].tolist() == plain(planes, splits, part)[:n_rows]
        assert (words[n_rows:] == 7).all()
