"""All horizons of a training: learners and baselines compared, the best kept to serve."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from features.errors import ModelError
from features.spec import FeatureSpec
from features.times import as_of_label
from features.units import duration_label
from models.learning.baselines import baselines
from models.learning.fit import fit_calibrated
from models.learning.frame import HorizonParts, horizon_parts, known_by, learn_vocabulary, model_matrix
from models.learning.learners import HistBoosting, Learner, LightGBM, Scorer
from models.learning.sklearn_learners import Forest, Logistic
from models.serving.bundle import Bundle, HorizonModel
from models.serving.drift import references
from models.serving.scoring import LoadedModels
from models.serving.spool import Spool
from models.training.compare import Evaluation, evaluate_baseline, evaluate_learner
from models.training.recording import ModelReport, holding_row, horizon_model, record, slice_row
from models.training.search import search

Rows = list[dict[str, Any]]
Say = Callable[[int, int, str], None]


@dataclasses.dataclass(frozen=True)
class Effort:
    """What is compared, and how hard it is tried.

    `test_share`: the last part of the as_ofs, which judges; `learners`: names of `LEARNERS`; `search_s`:
    seconds to search LightGBM's settings in, shared by the horizons, 0 for none; `search_trials`: at most.
    """

    test_share: float
    learners: Sequence[str]
    trees: int
    seed: int
    search_s: float
    search_trials: int


@dataclasses.dataclass(frozen=True)
class Trained:
    """A bundle, the figures of all that was compared, and rows of tables by name."""

    bundle: Bundle
    reports: list[ModelReport]
    rows: dict[str, Rows]


LEARNERS: Mapping[str, Callable[[Effort], Learner]] = {
    "lightgbm": lambda effort: LightGBM(trees=effort.trees, seed=effort.seed),
    "lightgbm_monotone": lambda effort: LightGBM(
        trees=effort.trees, seed=effort.seed, monotone=True, name="lightgbm_monotone"
    ),
    "hist_boosting": lambda effort: HistBoosting(trees=effort.trees, seed=effort.seed),
    "forest": lambda effort: Forest(seed=effort.seed),
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
    say: Say,
) -> Trained:
    """Every horizon's comparison into `spool`, and the best of each into its bundle.

    `rows`: features ⋈ labels, with as_of_s and dataset. A horizon that cannot be trained is dropped, with the
    reason. Raises ModelError if none can.
    """
    vocabulary = learn_vocabulary(rows, spec)
    models: list[HorizonModel] = []
    reports: list[ModelReport] = []
    dropped: dict[str, str] = {}
    kept: dict[str, Rows] = {"reliability": [], "slices": [], "holdings": []}
    for n_done, horizon_s in enumerate(spec.horizons_s):
        within = duration_label(horizon_s)
        try:
            part = horizon_parts(
                rows,
                spec,
                horizon_s=horizon_s,
                share=effort.test_share,
                until_s=until_s,
                vocabulary=vocabulary,
            )
            evaluations = _evaluations(
                part, spec, effort, functools.partial(say, n_done, len(spec.horizons_s))
            )
            told, model = record(spool, evaluations, part, region=region, tags=tags)
        except ModelError as error:
            dropped[within] = str(error)
            continue
        models.append(model)
        reports += told
        for name, found in _rows(evaluations, horizon_s).items():
            kept[name] += found
    if not models:
        raise _none_trained(until_s, dropped)
    matrix = model_matrix(rows, spec, vocabulary)
    bundle = Bundle(
        region=region,
        spec=spec,
        columns=tuple(matrix.columns),
        vocabulary=vocabulary,
        until_s=until_s,
        models=tuple(models),
        dropped=dropped,
        spread=references(matrix, rows["as_of_s"].to_numpy()),
    )
    return Trained(bundle, reports, kept)


def fit_in_memory(
    rows: pd.DataFrame,
    *,
    spec: FeatureSpec,
    region: str,
    until_s: int,
    learner: Callable[[int], Learner],
    version: str,
) -> LoadedModels:
    """Every horizon's model fitted on what is known by `until_s`, ready to score; nothing is recorded.

    For a walk that learns anew as it moves on. `learner`: by horizon, what learns; a baseline does too, and
    so gets a calibrated probability. Horizons that cannot be learned are left out, with the reason. Raises
    ModelError if none can.
    """
    vocabulary = learn_vocabulary(rows, spec)
    fitted: list[tuple[HorizonModel, Scorer]] = []
    dropped: dict[str, str] = {}
    for horizon_s in spec.horizons_s:
        try:
            known = known_by(rows, spec, horizon_s=horizon_s, until_s=until_s, vocabulary=vocabulary)
            model = fit_calibrated(learner(horizon_s), known.sample, horizon_s=horizon_s)
        except ModelError as error:
            dropped[duration_label(horizon_s)] = str(error)
            continue
        fitted.append((horizon_model(model, known, "in memory"), model.scorer))
    if not fitted:
        raise _none_trained(until_s, dropped)
    columns = (*spec.numeric_columns, *spec.categorical_columns)
    models = tuple(model for model, _ in fitted)
    bundle = Bundle(region, spec, columns, vocabulary, until_s, models, dropped, {})
    return LoadedModels(bundle, tuple(fitted), version)


def _none_trained(until_s: int, dropped: Mapping[str, str]) -> ModelError:
    why = "; ".join(f"{within}: {reason}" for within, reason in dropped.items())
    return ModelError(f"no horizon can be trained as of {as_of_label(until_s)}: {why}")


def _evaluations(
    part: HorizonParts, spec: FeatureSpec, effort: Effort, say: Callable[[str], None]
) -> list[Evaluation]:
    within = duration_label(part.train.horizon_s)
    found = [evaluate_baseline(one, part.train, part.test) for one in baselines(spec, part.train.horizon_s)]
    learners = [LEARNERS[name](effort) for name in effort.learners]
    if effort.search_s:
        say(f"{within} search")
        start = LightGBM(trees=effort.trees, seed=effort.seed)
        seconds = effort.search_s / len(spec.horizons_s)
        if searched := search(part.train, start, seconds=seconds, max_trials=effort.search_trials):
            learners.append(searched.learner)
    for learner in learners:
        say(f"{within} {learner.name}")
        found.append(evaluate_learner(learner, part.train, part.test))
    return found


def _rows(evaluations: Sequence[Evaluation], horizon_s: int) -> dict[str, Rows]:
    return {
        "reliability": [
            {"model": one.name, "horizon_s": horizon_s, "bin": i, "predicted": b.predicted}
            | {"observed": b.observed, "n_rows": round(b.weight)}
            for one in evaluations
            for i, b in enumerate(one.quality.reliability)
        ],
        "slices": [slice_row(one, part, horizon_s) for one in evaluations for part in one.slices],
        "holdings": [holding_row(one, held, horizon_s) for one in evaluations for held in one.holdings],
    }
