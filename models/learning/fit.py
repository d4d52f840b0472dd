"""Fits one horizon's model: its scorer on all rows, its calibration on scores of rows not fitted on."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from features.common.arrays import FloatArray, IntArray
from features.common.errors import ModelError
from features.common.units import duration_label
from models.evaluation.metrics import log_loss
from models.learning.baselines import Untrained
from models.learning.calibration import (
    IDENTITY,
    Knots,
    by_hour,
    calibrate,
    calibrate_score,
    hour_of_week,
    reads_if_any,
    weekly,
)
from models.learning.frame import Known, Sample, time_split
from models.learning.learners import Learner, Scorer

VALIDATION_SHARE = 0.25
EARLIER_BLOCKS = 2
"""Number of blocks before the validation that the calibration also uses, to see other weeks."""
FEWEST_ROWS = 100
"""A model needs at least this many rows of files that were read, and as many of files that were not."""
PAST_PER_HORIZON = 3
"""Labelled history is at least this many times as long as the horizon, so that there is a past to test on."""


class ScoredRows(NamedTuple):
    """Rows and their scores by fits on rows at least a horizon away; one entry per row in each field."""

    scores: FloatArray
    reads: FloatArray
    as_of: IntArray


@dataclasses.dataclass(frozen=True)
class CalibratedModel:
    """A scorer with its calibration, the map to mean reads, and the rows that both were fitted on.

    `week`: log-odds to add by hour of the week (see `weekly`). `scored`: None if the history is too short
    for a validation; then `calibration` is the identity.
    `validation_log_loss`: of uncalibrated probabilities, on rows at least a horizon after those fitted on;
    None without a validation, and for scores that are not learned.
    """

    name: str
    scorer: Scorer
    calibration: Knots
    reads: Knots
    scored: ScoredRows | None
    validation_log_loss: float | None
    week: tuple[float, ...] = ()

    def predict(self, x: pd.DataFrame) -> FloatArray:
        """The probability of every row of a model matrix; a row's expected reads are p × reads(p)."""
        return calibrated(self.calibration(self.scorer.score(x)), self.week, x)


def calibrated(probability: FloatArray, week: tuple[float, ...], x: pd.DataFrame) -> FloatArray:
    """The calibrated probabilities of the rows of `x`, by hour of the week if there is a `week`."""
    if not week:
        return probability
    return by_hour(probability, week, 24 * x["weekday"].to_numpy(np.int64) + x["hour"].to_numpy(np.int64))


def check_enough(known: Known) -> None:
    """Raise ModelError unless there are enough labels to learn from, of either kind and over enough time."""
    history_s, needed_s = known.until_s - int(known.sample.as_of.min()), PAST_PER_HORIZON * known.horizon_s
    if history_s < needed_s:
        raise ModelError(
            f"{duration_label(history_s)} of history with known labels, and a model needs "
            f"{duration_label(needed_s)}; compute features for more days"
        )
    n_read = int(known.sample.y.sum())
    if min(n_read, len(known.sample) - n_read) < FEWEST_ROWS:
        raise ModelError(
            f"of {len(known.sample)} rows with known labels {n_read} were read, and a model needs "
            f"{FEWEST_ROWS} of either kind; compute features for more days"
        )


def fit_calibrated(learner: Learner, sample: Sample, *, horizon_s: int) -> CalibratedModel:
    """Fit `learner` on `sample`, whose labels are all known.

    The calibration is fitted on scores of rows that are not fitted on: the last quarter of the as_ofs, which
    validates, and earlier blocks. Each is scored by a fit on rows at least a horizon away. The model's scorer
    is fitted on all rows. Without enough history there is no calibration. Scores that are not learned are
    calibrated on all rows. Raises ModelError if all rows have one label.
    """
    if not _has_both(sample):
        raise ModelError(f"all {len(sample)} training rows have one label; train on more days")
    if isinstance(learner, Untrained):
        return _calibrate_model(learner.name, learner, _score(learner, sample), None)
    parts = validation_parts(sample, horizon_s=horizon_s)
    scorer = learner.fit(sample.x, sample.y)
    if parts is None:
        reads = reads_if_any(scorer.score(sample.x), sample.reads)
        return CalibratedModel(learner.name, scorer, IDENTITY, reads, None, None)
    scored = [
        _score(learner.fit(fitted.x, fitted.y), held_out)
        for fitted, held_out in (*earlier_parts(sample, int(parts[1].as_of.min()), horizon_s), parts)
    ]
    loss = log_loss(parts[1].y, scored[-1].scores)
    return _calibrate_model(learner.name, scorer, _join(scored), loss)


def refit(learner: Learner, model: CalibratedModel, later: Sample, all_rows: Sample) -> CalibratedModel:
    """Fit `learner` on `all_rows`; calibrate it on the rows that `model` was calibrated on, and on `later`.

    `model`: of the same learner, fitted on rows at least a horizon before those of `later`.
    """
    scored = [*([model.scored] if model.scored else []), _score(model.scorer, later)]
    scorer = learner.fit(all_rows.x, all_rows.y)
    return _calibrate_model(learner.name, scorer, _join(scored), model.validation_log_loss)


def _calibrate_model(name: str, scorer: Scorer, scored: ScoredRows, loss: float | None) -> CalibratedModel:
    fit = calibrate_score if isinstance(scorer, Untrained) else calibrate
    is_read = (scored.reads > 0).astype(np.float64)
    calibration = fit(scored.scores, is_read, scored.as_of)
    probability = calibration(scored.scores)
    week = weekly(probability, is_read, scored.as_of)
    if week:
        probability = by_hour(probability, week, hour_of_week(scored.as_of))
    return CalibratedModel(
        name, scorer, calibration, reads_if_any(probability, scored.reads), scored, loss, week
    )


def _score(scorer: Scorer, rows: Sample) -> ScoredRows:
    return ScoredRows(scorer.score(rows.x), rows.reads, rows.as_of)


def _join(parts: Sequence[ScoredRows]) -> ScoredRows:
    return ScoredRows(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def earlier_parts(sample: Sample, until_s: int, horizon_s: int) -> Iterator[tuple[Sample, Sample]]:
    """Rows to fit on and rows to score, per block of consecutive as_ofs before `until_s`.

    Their labels do not overlap in time. A block is left out if either part lacks a class.
    """
    as_ofs = np.unique(sample.as_of[sample.as_of < until_s])
    for block in np.array_split(as_ofs, EARLIER_BLOCKS):
        if not block.size:
            continue
        is_inside = (sample.as_of >= block[0]) & (sample.as_of <= block[-1])
        is_apart = (sample.as_of + horizon_s <= block[0]) | (sample.as_of >= block[-1] + horizon_s)
        fitted, held_out = sample.where(is_apart), sample.where(is_inside)
        if _has_both(fitted) and _has_both(held_out):
            yield fitted, held_out


def validation_parts(sample: Sample, *, horizon_s: int) -> tuple[Sample, Sample] | None:
    """Rows to fit on and rows to validate on, a horizon apart; None if either would lack a class."""
    try:
        split = time_split(np.unique(sample.as_of).tolist(), horizon_s=horizon_s, share=VALIDATION_SHARE)
    except ModelError:
        return None
    before = sample.where(np.isin(sample.as_of, split.before))
    after = sample.where(np.isin(sample.as_of, split.after))
    return (before, after) if _has_both(before) and _has_both(after) else None


def _has_both(part: Sample) -> bool:
    return bool(0 < part.y.sum() < len(part))
