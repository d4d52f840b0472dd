"""Seeded search of LightGBM's settings (Optuna's TPE) within a budget, validated on later rows."""

from __future__ import annotations

import dataclasses

import optuna

from models.evaluation.metrics import log_loss
from models.learning.fit import validation_parts
from models.learning.frame import Known, Sample
from models.learning.learners import LightGBM
from models.training.compare import Trial


@dataclasses.dataclass(frozen=True)
class Searched:
    """The best learner found, with its log loss, and all trials: the first is of the default settings."""

    learner: LightGBM
    log_loss: float
    trials: tuple[Trial, ...]


def search(train: Known, start: LightGBM, *, seconds: float, max_trials: int) -> Searched | None:
    """Find the settings with the least log loss, beginning from `start`; None if the history is too short.

    A trial is validated on rows a horizon later than those it is fitted on. The rows that the comparison of
    learners validates on are left out, so that this comparison stays fair. `start.seed` sets the order of the
    trials, the machine how many fit into `seconds`: equal seeds give equal settings if `max_trials` ends the
    search.
    """
    compared = validation_parts(train.sample, horizon_s=train.horizon_s)
    parts = compared and validation_parts(compared[0], horizon_s=train.horizon_s)
    if not parts:
        return None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=start.seed))
    study.enqueue_trial({name: getattr(start, name) for name in _names(start)})
    study.optimize(
        lambda trial: _loss(_suggested(trial, start), *parts), n_trials=max_trials, timeout=seconds
    )
    best = dataclasses.replace(start, **study.best_params, name="lightgbm_searched")
    trials = tuple(Trial(one.number, one.params, one.value) for one in study.trials if one.value is not None)
    return Searched(best, study.best_value, trials)


def _suggested(trial: optuna.Trial, start: LightGBM) -> LightGBM:
    return dataclasses.replace(
        start,
        trees=trial.suggest_int("trees", min(20, start.trees), max(400, start.trees), log=True),
        leaves=trial.suggest_int("leaves", 7, 127, log=True),
        min_rows=trial.suggest_int("min_rows", 20, 1000, log=True),
        rate=trial.suggest_float("rate", 0.02, 0.2, log=True),
        column_share=trial.suggest_float("column_share", 0.2, 1.0),
        row_share=trial.suggest_float("row_share", 0.4, 1.0),
        l2=trial.suggest_float("l2", 0.1, 100.0, log=True),
        monotone=trial.suggest_categorical("monotone", [False, True]),
    )


def _names(start: LightGBM) -> list[str]:
    return [name for name in start.knobs if name != "seed"]


def _loss(learner: LightGBM, before: Sample, after: Sample) -> float:
    return log_loss(after.y, learner.fit(before.x, before.y).score(after.x))
