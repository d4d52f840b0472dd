"""Comparison of learners and baselines: fitted on the same past, tested on the same later rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from features.common.arrays import FloatArray
from models.evaluation.metrics import Quality, quality, ranking_quality
from models.learning.baselines import RECENCY, Baseline
from models.learning.fit import CalibratedModel, fit_calibrated
from models.learning.frame import Known, Sample
from models.learning.learners import Learner, LightGBM
from models.training.slices import Holding, Slice, holdings, slices


@dataclasses.dataclass(frozen=True)
class Trial:
    """Settings that a search tried, and their log loss (nats per row) on rows that no comparison sees."""

    number: int
    knobs: Mapping[str, float]
    log_loss: float


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """One learner or baseline on the test rows. `learner` and `model` are None for a baseline.

    `scores`: one per test row; probabilities if there is a model. `trials`: of the search that found it.
    """

    name: str
    quality: Quality
    knobs: Mapping[str, float]
    learner: Learner | None
    model: CalibratedModel | None
    scores: FloatArray
    slices: tuple[Slice, ...]
    holdings: tuple[Holding, ...]
    trials: tuple[Trial, ...] = ()


def evaluate_learner(learner: Learner, train: Known, test: Sample) -> Evaluation:
    """Fit and calibrate on `train`, measure on `test`. Raises ModelError if `train` has one class."""
    model = fit_calibrated(learner, train.sample, horizon_s=train.horizon_s)
    probability, _ = model.predict(test.x)
    return Evaluation(
        learner.name,
        quality(test.y, probability),
        learner.knobs,
        learner,
        model,
        probability,
        tuple(slices(test, probability, train.vocabulary, are_probabilities=True)),
        tuple(holdings(test, probability)),
    )


def evaluate_baseline(baseline: Baseline, train: Known, test: Sample) -> Evaluation:
    """Measure how well a baseline ranks `test`. Of `train` only the vocabulary is used."""
    scores = baseline.score(test.x)
    return Evaluation(
        baseline.name,
        ranking_quality(test.y, scores),
        baseline.knobs,
        None,
        None,
        scores,
        tuple(slices(test, scores, train.vocabulary, are_probabilities=False)),
        tuple(holdings(test, scores)),
    )


def best(evaluations: Sequence[Evaluation]) -> Evaluation:
    """What serves: the LightGBM with the least log loss on validation rows (never test).

    The first LightGBM serves if none could be validated, and recency if none is among them.
    """
    learned = [e for e in evaluations if isinstance(e.learner, LightGBM)]
    losses = [(e.model.validation_log_loss, e) for e in learned if e.model]
    validated = [(loss, evaluation) for loss, evaluation in losses if loss is not None]
    if validated:
        return min(validated, key=lambda pair: pair[0])[1]
    return learned[0] if learned else next(e for e in evaluations if e.name == RECENCY)
