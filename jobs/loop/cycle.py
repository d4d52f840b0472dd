"""One cycle of the service in one process: pull what is new, features, perhaps a training, predictions."""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from features.common.progress import Advance, unwatched
from features.common.times import as_of_label
from jobs.ground.settings.sources import SERVER
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull
from jobs.loop.train import features, predict, training
from jobs.loop.train.features import sample_share


@dataclasses.dataclass
class CycleSummary:
    """Summary of a cycle. `pulled`, `rejected`: rows; `seconds`: per step; `alarms`: for the operator."""

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
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[step] = round(time.perf_counter() - started, 1)


def run(
    settings: Settings, *, as_of_s: int, inputs: Sequence[tuple[str, str]], train: bool, on_progress: Advance
) -> CycleSummary:
    """Run the cycle at `as_of_s`; `inputs`: source and path of each pull.

    With `train` a model is trained on the moments of `[training]` before `as_of_s`, and scores as the
    region's candidate; else the models of `[mlflow] serve` score. Raises what the steps raise; finished
    steps are not repeated by a second run.
    """
    summary = CycleSummary(as_of_label(as_of_s))
    n_steps = 4 if train else 3
    on_progress(0, n_steps, "pull")
    with summary.timed("pull"):
        for source, path in inputs:
            is_files = source != SERVER
            answer = pull.run(settings, source=source, path=path, day_s=as_of_s, new_only=is_files)
            summary.pulled += answer.n_new
            summary.rejected += sum(answer.n_rejected.values())
    on_progress(1, n_steps, "features")
    with summary.timed("features"):
        summary.features = features.run(settings, as_ofs=[as_of_s]).rows
    if train:
        on_progress(2, n_steps, "training")
        with summary.timed("training features"):
            summary.trained_at, share = _training_features(settings, as_of_s, summary.features)
        with summary.timed("training"):
            training.run(settings, until_s=as_of_s, sample_share=share, on_progress=unwatched)
    on_progress(n_steps - 1, n_steps, "predictions")
    with summary.timed("predictions"):
        alias = "candidate" if train else None
        predicted = predict.run(settings, as_ofs=[as_of_s], alias=alias)
    summary.predictions, summary.model_version = predicted.rows, predicted.model_version
    summary.alarms = predicted.alarms
    on_progress(n_steps, n_steps, "done")
    return summary


def _training_features(settings: Settings, as_of_s: int, n_candidates: int) -> tuple[int, float]:
    """Compute missing features for the training; the number of its decision times, and the sampled share."""
    training = settings.training
    moments = range(as_of_s - training.every, as_of_s - training.span - 1, -training.every)
    share = sample_share(training, candidates=n_candidates, moments=len(moments))
    spec = dataclasses.replace(settings.features.spec, sample_share=share)
    there = Tables.of(settings).head(spec.features_table).partitions
    region = settings.region.name
    missing = [at for at in moments if MomentKey.at(at, region) not in there]
    if missing:
        features.run(settings, as_ofs=missing, sample_share=share)
    return len(moments), share
