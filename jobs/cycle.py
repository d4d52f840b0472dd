"""One cycle of the service in one process: pull what is new, features, perhaps a training, predictions."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from features.times import as_of_label
from jobs.ingest import pull
from jobs.progress import Advance, unwatched
from jobs.settings.tree import Settings
from jobs.store.keys import MomentKey
from jobs.store.tables import Tables
from jobs.train import features, predict, training

SPARE = 1.5
"""Candidates were more at some moments than they are now."""


@dataclasses.dataclass
class CycleSummary:
    """What a cycle did. `pulled`, `rejected`: rows; `seconds` by step; `alarms`: what to look at."""

    as_of: str
    pulled: int = 0
    rejected: int = 0
    features: int = 0
    trained_at: int = 0
    predictions: int = 0
    model_version: str = ""
    alarms: tuple[str, ...] = ()
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Adds the seconds of a block under `step`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] = round(time.perf_counter() - started, 1)


def run(
    settings: Settings,
    *,
    as_of_s: int,
    inputs: Sequence[tuple[str, str]],
    train: bool,
    on_progress: Advance,
) -> CycleSummary:
    """The cycle at `as_of_s`; `inputs`: source and path of what to pull, first.

    With `train` a model is trained on the moments of `[training]` before `as_of_s`, and scores as the
    region's candidate; else the models serve that `[mlflow] serve` names. Raises what the steps raise; what
    is done is done, and a second run takes it up.
    """
    told = CycleSummary(as_of_label(as_of_s))
    n_steps = 4 if train else 3
    on_progress(0, n_steps, "pull")
    with told.timed("pull"):
        for source, path in inputs:
            answer = pull.run(settings, source=source, path=path, day_s=as_of_s, new_only=True)
            told.pulled += answer.n_new
            told.rejected += sum(answer.n_rejected.values())
    on_progress(1, n_steps, "features")
    with told.timed("features"):
        told.features = features.run(settings, as_ofs=[as_of_s]).rows
    if train:
        on_progress(2, n_steps, "training")
        with told.timed("training features"):
            told.trained_at, share = _training_features(settings, as_of_s, told.features)
        with told.timed("training"):
            training.run(settings, until_s=as_of_s, sample_share=share, on_progress=unwatched)
    on_progress(n_steps - 1, n_steps, "predictions")
    with told.timed("predictions"):
        alias = "candidate" if train else None
        predicted = predict.run(settings, as_ofs=[as_of_s], alias=alias)
    told.predictions, told.model_version = predicted.rows, predicted.model_version
    told.alarms = predicted.alarms
    on_progress(n_steps, n_steps, "done")
    return told


def _training_features(settings: Settings, as_of_s: int, n_candidates: int) -> tuple[int, float]:
    """Compute the features at the training's moments that lack them: how many moments, and the share kept.

    Of as many candidates as there are now, a training takes at most `max_rows` of all moments together.
    """
    training = settings.training
    wanted = range(as_of_s - training.every, as_of_s - training.span - 1, -training.every)
    share = min(1.0, SPARE * training.max_rows / max(1, n_candidates * len(wanted)))
    spec = dataclasses.replace(settings.features.spec, sample_share=share)
    there = Tables(settings.tables.root).head(spec.features_table).partitions
    region = settings.region.name
    missing = [at for at in wanted if MomentKey.at(at, region) not in there]
    if missing:
        features.run(settings, as_ofs=missing, sample_share=share)
    return len(wanted), share
