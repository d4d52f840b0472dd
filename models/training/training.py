"""Training of a model per horizon: learners and baselines are measured, and the best LightGBM is kept."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pandas as pd

from features.common.errors import ModelError
from features.common.progress import Advance
from features.common.times import as_of_label
from features.common.units import duration_label
from features.spec import FeatureSpec
from models.learning.baselines import Recency, Untrained, baselines
from models.learning.fit import CalibratedModel, check_enough, fit_calibrated
from models.learning.frame import HorizonParts, Known, horizon_parts, known_by, learn_vocabulary, model_matrix
from models.learning.learners import Learner, LightGBM, Scorer
from models.learning.sklearn_learners import HistBoosting, Logistic, RandomForest
from models.parallel import map_parallel
from models.serving.bundle import Bundle, HorizonModel, RegionModels
from models.serving.drift import references
from models.serving.spool import Spool
from models.training.compare import Evaluation, best, evaluate, why_recency
from models.training.recording import ModelReport, horizon_model, record, to_serve, trees_of

Rows = list[dict[str, Any]]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Effort:
    """What is compared, and how much time it may take.

    `test_share`: the last part of the as_ofs, used for the test; `learners`: names of `LEARNERS`, of which
    the best LightGBM serves.
    """

    test_share: float
    learners: Sequence[str]
    trees: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Trained:
    """A bundle, the figures of all models compared, and rows of the table reliability.

    `gains`: share of each column in the trees of the shortest horizon that has trees.
    """

    bundle: Bundle
    reports: list[ModelReport]
    reliability: Rows
    gains: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class _Compared:
    """One horizon: all models with their figures, and the model that serves, fitted on all rows."""

    part: HorizonParts
    evaluations: list[Evaluation]
    serving: CalibratedModel


LEARNERS: Mapping[str, Callable[[Effort], Learner]] = {
    "lightgbm": lambda effort: LightGBM(trees=effort.trees, seed=effort.seed),
    "lightgbm_monotone": lambda effort: LightGBM(
        trees=effort.trees, seed=effort.seed, monotone=True, name="lightgbm_monotone"
    ),
    "hist_boosting": lambda effort: HistBoosting(trees=effort.trees, seed=effort.seed),
    "forest": lambda effort: RandomForest(seed=effort.seed),
    "logistic": lambda effort: Logistic(),
}


def train(
    rows: pd.DataFrame,
    spool: Spool,
    *,
    spec: FeatureSpec,
    region: str,
    until_s: int,
    effort: Effort,
    tags: Mapping[str, str],
    on_progress: Advance,
) -> Trained:
    """Measure learners and baselines at every horizon; keep all runs, and a bundle of the best, in `spool`.

    `rows`: features ⋈ labels, with as_of_s and dataset. Recency serves a horizon with too few labels to learn
    from, or where it ranks better; a horizon with none, or with one kind of label, is dropped. Both with the
    reason. Raises ModelError if all are dropped.
    """
    vocabulary = learn_vocabulary(rows, spec)
    by_recency: dict[str, str] = {}

    def compare(horizon_s: int) -> _Compared:
        known = known_by(rows, spec, horizon_s=horizon_s, until_s=until_s, vocabulary=vocabulary)
        rivals = baselines(spec, horizon_s)
        try:
            check_enough(known)
            part = horizon_parts(rows, spec, known, share=effort.test_share, until_s=until_s)
            learners = [*rivals, *(LEARNERS[name](effort) for name in effort.learners)]
            evaluations = [evaluate(learner, part.train, part.test) for learner in learners]
            if reason := why_recency(evaluations):
                by_recency[duration_label(horizon_s)] = reason
        except ModelError as error:
            part = HorizonParts(known, known.sample, known)  # baselines learn nothing: any row may test them
            evaluations = [evaluate(rival, part.train, part.test) for rival in rivals]
            by_recency[duration_label(horizon_s)] = str(error)
        return _Compared(part, evaluations, to_serve(best(evaluations), part))

    compared, dropped = _by_horizon(spec, until_s, compare, on_progress)
    recorded = [
        record(spool, horizon.evaluations, horizon.serving, horizon.part, region=region, tags=tags)
        for horizon in compared
    ]
    matrix = model_matrix(rows, spec, vocabulary)
    bundle = Bundle(
        region=region,
        spec=spec,
        columns=tuple(matrix.columns),
        vocabulary=vocabulary,
        until_s=until_s,
        models=tuple(model for _, model in recorded),
        dropped=dropped,
        spread=references(matrix, rows["as_of_s"].to_numpy()),
        by_recency={within: why for within, why in by_recency.items() if within not in dropped},
    )
    return Trained(
        bundle,
        [report for reports, _ in recorded for report in reports],
        [row for horizon in compared for row in _reliability(horizon)],
        next((trees.importance() for horizon in compared if (trees := trees_of(horizon.serving))), {}),
    )


def fit_in_memory(
    rows: pd.DataFrame,
    *,
    spec: FeatureSpec,
    region: str,
    until_s: int,
    learners: Mapping[str, Callable[[int], Learner]],
) -> dict[str, RegionModels]:
    """Fit a model per learner and horizon on what is known by `until_s`, ready to score; nothing is recorded.

    For evaluations that retrain as they move through time. `learners`: by name, each of a horizon (in
    seconds). A baseline is a learner too, and gets calibrated probabilities this way. Horizons with few
    labels, or none, are treated as by `train`. Raises ModelError if all are dropped.
    """
    vocabulary = learn_vocabulary(rows, spec)
    by_recency: dict[str, dict[str, str]] = {name: {} for name in learners}

    def fit(horizon_s: int) -> dict[str, tuple[HorizonModel, Scorer]]:
        known = known_by(rows, spec, horizon_s=horizon_s, until_s=until_s, vocabulary=vocabulary)
        return {name: fit_by(name, known) for name in learners}

    def fit_by(name: str, known: Known) -> tuple[HorizonModel, Scorer]:
        own_learner = learners[name](known.horizon_s)
        try:
            if not isinstance(own_learner, Untrained):
                check_enough(known)
        except ModelError as error:
            own_learner, by_recency[name][duration_label(known.horizon_s)] = Recency(), str(error)
        model = fit_calibrated(own_learner, known.sample, horizon_s=known.horizon_s)
        return horizon_model(model, known), model.scorer

    fitted, dropped = _by_horizon(spec, until_s, fit, lambda *_: None)
    columns = (*spec.numeric_columns, *spec.categorical_columns)
    models = dict[str, RegionModels]()
    for name in learners:
        mine = tuple(horizon[name] for horizon in fitted)
        served = tuple(model for model, _ in mine)
        bundle = Bundle(region, spec, columns, vocabulary, until_s, served, dropped, {}, by_recency[name])
        models[name] = RegionModels(bundle, mine, f"{name} at {as_of_label(until_s)}")
    return models


def _by_horizon(
    spec: FeatureSpec, until_s: int, fit: Callable[[int], T], on_progress: Advance
) -> tuple[list[T], dict[str, str]]:
    """The result of `fit` per horizon, and the reason per dropped horizon. Raises ModelError if all are."""
    done: list[int] = []

    def attempt(horizon_s: int) -> T | ModelError:
        try:
            return fit(horizon_s)
        except ModelError as error:
            return error
        finally:
            done.append(horizon_s)
            on_progress(len(done), len(spec.horizons_s), f"{duration_label(horizon_s)} learned")

    outcomes = map_parallel(attempt, spec.horizons_s)
    results = [outcome for outcome in outcomes if not isinstance(outcome, ModelError)]
    dropped = {
        duration_label(horizon_s): str(outcome)
        for horizon_s, outcome in zip(spec.horizons_s, outcomes, strict=True)
        if isinstance(outcome, ModelError)
    }
    if not results:
        reasons = "; ".join(f"{within}: {reason}" for within, reason in dropped.items())
        raise ModelError(f"no horizon can be trained as of {as_of_label(until_s)}: {reasons}")
    return results, dropped


def _reliability(horizon: _Compared) -> Rows:
    return [
        {
            "model": evaluation.name,
            "horizon_s": horizon.part.train.horizon_s,
            "bin": i,
            "predicted": part.predicted,
            "observed": part.observed,
            "n_rows": round(part.weight),
        }
        for evaluation in horizon.evaluations
        for i, part in enumerate(evaluation.quality.reliability)
    ]
