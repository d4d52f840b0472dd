"""One model for one horizon: fitted on the past, calibrated on rows that lie a horizon later, refitted."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pandas as pd

from features.errors import ModelError
from models.calibration import IDENTITY, Knots, calibrate, reads_if_any
from models.frame import Sample, time_split
from models.learners import Learner, Scorer
from models.metrics import log_loss

Floats = npt.NDArray[np.float64]
VALIDATION_SHARE = 0.25


@dataclasses.dataclass(frozen=True)
class CalibratedModel:
    """A scorer with its two maps.

    `validation_log_loss` is of the uncalibrated probabilities, on rows a horizon after those fitted on; None
    where the history is too short for that (then `calibration` is the identity).
    """

    name: str
    scorer: Scorer
    calibration: Knots
    reads: Knots
    validation_log_loss: float | None

    def predict(self, x: pd.DataFrame) -> tuple[Floats, Floats]:
        """Probability and expected reads of every row of a model matrix."""
        return probability_and_reads(self.scorer.score(x), self.calibration, self.reads)


def probability_and_reads(scores: Floats, calibration: Knots, reads: Knots) -> tuple[Floats, Floats]:
    """Probability = calibration(score); expected reads = probability × mean reads of those read at all."""
    probability = calibration(scores)
    return probability, probability * reads(probability)


def fit_calibrated(learner: Learner, sample: Sample, *, horizon_s: int) -> CalibratedModel:
    """Fit `learner` on `sample`, whose labels all lie in the past.

    The last quarter of the as_ofs validates and calibrates a fit on those at least a horizon earlier; the
    scorer returned is then fitted on all rows, under that calibration. Too short a past is not calibrated.
    Raises ModelError with one class.
    """
    if not 0 < sample.y.sum() < len(sample):
        raise ModelError(f"all {len(sample)} training rows have one label; train on more days")
    parts = validation_parts(sample, horizon_s=horizon_s)
    if parts is None:
        scorer = learner.fit(sample.x, sample.y)
        reads = reads_if_any(scorer.score(sample.x), sample.reads)
        return CalibratedModel(learner.name, scorer, IDENTITY, reads, None)
    before, after = parts
    raw = learner.fit(before.x, before.y).score(after.x)
    calibration = calibrate(raw, after.y, after.as_of)
    reads = reads_if_any(calibration(raw), after.reads)
    scorer = learner.fit(sample.x, sample.y)
    return CalibratedModel(learner.name, scorer, calibration, reads, log_loss(after.y, raw))


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
    usable = all(0 < part.y.sum() < len(part) for part in (before, after))
    return (before, after) if usable else None
