"""Fit of one horizon's model: calibrated on rows that the fits have not seen, then fitted on all rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pandas as pd

from features.arrays import FloatArray
from features.errors import ModelError
from models.evaluation.metrics import log_loss
from models.learning.calibration import IDENTITY, Knots, calibrate, reads_if_any
from models.learning.frame import Sample
from models.learning.learners import Learner, Scorer
from models.learning.split import time_split

VALIDATION_SHARE = 0.25
EARLIER_BLOCKS = 2
"""Number of blocks before the validation that the calibration also uses, to see other weeks."""


@dataclasses.dataclass(frozen=True)
class CalibratedModel:
    """A scorer with its calibration, and the map to mean reads.

    `validation_log_loss`: of uncalibrated probabilities, on rows at least a horizon after those fitted on;
    None if the history is too short for a validation (then `calibration` is the identity).
    """

    name: str
    scorer: Scorer
    calibration: Knots
    reads: Knots
    validation_log_loss: float | None

    def predict(self, x: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
        """Probability and expected reads of every row of a model matrix."""
        return probability_and_reads(self.scorer.score(x), self.calibration, self.reads)


def probability_and_reads(
    scores: FloatArray, calibration: Knots, reads: Knots
) -> tuple[FloatArray, FloatArray]:
    """Probability = calibration(score); expected reads = probability × mean reads of files that are read."""
    probability = calibration(scores)
    return probability, probability * reads(probability)


def fit_calibrated(learner: Learner, sample: Sample, *, horizon_s: int) -> CalibratedModel:
    """Fit `learner` on `sample`, whose labels are all known.

    The last quarter of the as_ofs validates a fit on those at least a horizon earlier. The calibration uses
    these scores, and scores of earlier blocks by fits on rows at least a horizon away from the block. The
    scorer itself is fitted on all rows. Without enough history there is no calibration. Raises ModelError if
    all rows have one label.
    """
    if not 0 < sample.y.sum() < len(sample):
        raise ModelError(f"all {len(sample)} training rows have one label; train on more days")
    parts = validation_parts(sample, horizon_s=horizon_s)
    scorer = learner.fit(sample.x, sample.y)
    if parts is None:
        reads = reads_if_any(scorer.score(sample.x), sample.reads)
        return CalibratedModel(learner.name, scorer, IDENTITY, reads, None)
    scored = [
        (after, learner.fit(before.x, before.y).score(after.x))
        for before, after in (*earlier_parts(sample, int(parts[1].as_of.min()), horizon_s), parts)
    ]
    raw = np.concatenate([scores for _, scores in scored])
    y, n_reads, as_of = (
        np.concatenate(column)
        for column in zip(*((part.y, part.reads, part.as_of) for part, _ in scored), strict=True)
    )
    calibration = calibrate(raw, y, as_of)
    loss = log_loss(parts[1].y, scored[-1][1])
    return CalibratedModel(learner.name, scorer, calibration, reads_if_any(calibration(raw), n_reads), loss)


def earlier_parts(sample: Sample, until_s: int, horizon_s: int) -> Iterator[tuple[Sample, Sample]]:
    """Rows to fit on and rows to score, per block of consecutive as_ofs before `until_s`.

    The labels of the two do not overlap in time. A block is left out if either part lacks a class.
    """
    as_ofs = np.unique(sample.as_of[sample.as_of < until_s])
    for block in np.array_split(as_ofs, EARLIER_BLOCKS):
        if not block.size:
            continue
        inside = (sample.as_of >= block[0]) & (sample.as_of <= block[-1])
        apart = (sample.as_of + horizon_s <= block[0]) | (sample.as_of >= block[-1] + horizon_s)
        rest, part = sample.where(apart & ~inside), sample.where(inside)
        if _has_both(rest) and _has_both(part):
            yield rest, part


def validation_parts(sample: Sample, *, horizon_s: int) -> tuple[Sample, Sample] | None:
    """Rows to fit on and rows to validate on, a horizon apart; None if either would lack a class."""
    try:
        split = time_split(
            [int(a) for a in np.unique(sample.as_of)], horizon_s=horizon_s, share=VALIDATION_SHARE
        )
    except ModelError:
        return None
    before = sample.where(np.isin(sample.as_of, split.before))
    after = sample.where(np.isin(sample.as_of, split.after))
    return (before, after) if _has_both(before) and _has_both(after) else None


def _has_both(part: Sample) -> bool:
    return bool(0 < part.y.sum() < len(part))
