"""Comparison of learners and baselines: fitted on the same past, tested on the same later rows.

Figures are given by weighting (file, byte, dataset) and by part of the rows (cold, warm, tier).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from features.common.arrays import BoolArray, FloatArray, IntArray
from models.evaluation.metrics import Quality, quality, ranking_quality
from models.learning.baselines import RECENCY, Untrained
from models.learning.fit import CalibratedModel, fit_calibrated
from models.learning.frame import Known, Sample
from models.learning.learners import Learner, LightGBM

CAPACITY_FRACTIONS = (0.05, 0.1, 0.2)
_MOST_TIERS = 10
_LEAST_ROWS = 50


@dataclasses.dataclass(frozen=True)
class Slice:
    """Figures of one part of the test rows under one weighting.

    `weighting`: file (each row weighs 1), byte (its size) or dataset (a dataset's rows at an as_of share 1);
    `part`: all, cold (never read before), warm (read before) or `tier NAME`.
    """

    weighting: str
    part: str
    quality: Quality


@dataclasses.dataclass(frozen=True)
class Holding:
    """A cache that holds the files with the highest scores, up to a share of all candidates' bytes.

    `precision`: share of the held files that are read within the horizon; `recall`: share of the files read
    that are held; both weighted as in Slice.
    """

    weighting: str
    capacity_fraction: float
    precision: float
    recall: float


def slices(
    sample: Sample, scores: FloatArray, vocabulary: Mapping[str, Sequence[str]], *, are_probabilities: bool
) -> list[Slice]:
    """Figures per weighting and part of at least 50 rows. Rows of weight 0 (size unknown) are left out."""
    results = []
    for weighting, weights in _weightings(sample).items():
        for part, inside in _parts(sample, vocabulary):
            rows = inside & (weights > 0)
            if part != "all" and rows.sum() < _LEAST_ROWS:
                continue
            judge = quality if are_probabilities else ranking_quality
            if rows.any():
                results.append(Slice(weighting, part, judge(sample.y[rows], scores[rows], weights[rows])))
    return results


def holdings(sample: Sample, scores: FloatArray) -> list[Holding]:
    """Precision and recall for each of `CAPACITY_FRACTIONS`; each as_of fills a cache of its own.

    Equal scores keep the order of the rows. Rows of unknown size are left out; the list is empty if all are.
    """
    known = sample.x["size_bytes"].to_numpy(dtype=np.float64) > 0
    if not known.any():
        return []
    sample, scores = sample.where(known), scores[known]
    size = sample.x["size_bytes"].to_numpy(dtype=np.float64)
    filled = _filled(size, scores, sample.as_of)
    results = []
    for fraction in CAPACITY_FRACTIONS:
        held = filled <= fraction
        for weighting, w in _weightings(sample).items():
            hit = w * sample.y * held
            results.append(Holding(weighting, fraction, _share(hit, w * held), _share(hit, w * sample.y)))
    return results


def _filled(size: FloatArray, scores: FloatArray, as_of: IntArray) -> FloatArray:
    """Per row, the share of its as_of's bytes held once this row is, filling by falling score."""
    order = np.lexsort((-scores, as_of))
    total = np.cumsum(size[order])
    starts = np.concatenate([[True], np.diff(as_of[order]) > 0])
    group = np.cumsum(starts) - 1
    before = (total - size[order])[starts]
    ends = np.append(before[1:], total[-1])
    share = np.empty(len(size))
    share[order] = (total - before[group]) / (ends - before)[group]
    return share


def _weightings(sample: Sample) -> dict[str, FloatArray]:
    size = np.nan_to_num(sample.x["size_bytes"].to_numpy(dtype=np.float64), nan=0.0)
    weightings = {"file": np.ones(len(sample)), "byte": np.maximum(size, 0.0)}
    if sample.dataset is not None:
        moment = np.unique(sample.as_of, return_inverse=True)[1]
        pair = moment * (sample.dataset.max(initial=0) + 1) + sample.dataset
        _, group, n_rows = np.unique(pair, return_inverse=True, return_counts=True)
        weightings["dataset"] = 1.0 / n_rows[group]
    return weightings


def _parts(sample: Sample, vocabulary: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, BoolArray]]:
    warm = sample.x["recency_s"].notna().to_numpy()
    yield "all", np.ones(len(sample), dtype=bool)
    yield "cold", ~warm
    yield "warm", warm
    if "tier" in sample.x.columns:
        code = sample.x["tier"].to_numpy()
        for i, tier in enumerate(vocabulary.get("tier", ())[:_MOST_TIERS]):
            yield f"tier {tier}", code == i


def _share(part: FloatArray, whole: FloatArray) -> float:
    total = float(whole.sum())
    return float(part.sum()) / total if total > 0 else float("nan")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """One learner or baseline on the test rows. `model`: None for a baseline.

    `scores`: one per test row; probabilities if there is a model.
    """

    learner: Learner
    model: CalibratedModel | None
    quality: Quality
    scores: FloatArray
    slices: tuple[Slice, ...]
    holdings: tuple[Holding, ...]

    @property
    def name(self) -> str:
        """The learner's name in reports."""
        return self.learner.name


def evaluate(learner: Learner, train: Known, test: Sample) -> Evaluation:
    """Fit and calibrate on `train`, measure on `test`. Raises ModelError if `train` has one class.

    Of a baseline only the ranking is measured; it learns nothing from `train`.
    """
    is_baseline, past = isinstance(learner, Untrained), train.sample
    model = None if is_baseline else fit_calibrated(learner, past, horizon_s=train.horizon_s)
    scores = learner.fit(past.x, past.y).score(test.x) if model is None else model.predict(test.x)
    return Evaluation(
        learner,
        model,
        (ranking_quality if is_baseline else quality)(test.y, scores),
        scores,
        tuple(slices(test, scores, train.vocabulary, are_probabilities=not is_baseline)),
        tuple(holdings(test, scores)),
    )


WORSE_AUC = 0.05
"""A learned model whose AUC on the test rows is so far below that of recency does not serve.

The newest days that are known can only veto a model: which one of several serves, validation says.
"""


def best(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The evaluation that serves: `best_learned`, or recency if there is none, or if recency ranks better."""
    learned, recency = best_learned(evaluations), _recency(evaluations)
    return recency if learned is None or why_recency(evaluations) else learned


def why_recency(evaluations: Sequence[Evaluation]) -> str | None:
    """By what figures recency ranks the test rows better than the best model; None if it does not."""
    learned, recency = best_learned(evaluations), _recency(evaluations).quality.auc
    # An AUC of one class is NaN, which is less than nothing.
    if learned is None or not learned.quality.auc < recency - WORSE_AUC:
        return None
    return (
        f"on the test days {learned.name} has an AUC of {learned.quality.auc:.3f}, and recency {recency:.3f}"
    )


def _recency(evaluations: Sequence[Evaluation]) -> Evaluation:
    return next(e for e in evaluations if e.name == RECENCY)


def best_learned(evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """The LightGBM with the least log loss on validation rows (never test), else the first, if any."""
    learned = [e for e in evaluations if isinstance(e.learner, LightGBM)]
    losses = [(e.model.validation_log_loss, e) for e in learned if e.model]
    validated = [(loss, evaluation) for loss, evaluation in losses if loss is not None]
    if validated:
        return min(validated, key=lambda pair: pair[0])[1]
    return learned[0] if learned else None
