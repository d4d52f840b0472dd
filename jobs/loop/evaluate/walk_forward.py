"""Walk-forward evaluation: features at every decision time, a training per week, scores at every boundary.

A training at T learns, like `cachecast train` at T, from samples of features before T and from labels of what
was known before T. Its models score the plan boundaries of the following week. Only samples and scores are
written; the features at boundaries are scored as they are computed. A file is scored anew when its features
have changed (`features.stream.region`), so that most scores stay; what changes is kept on disk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd

from features.common.errors import StaleInputError
from features.common.progress import Advance
from features.common.times import DAY_S, as_of_label
from features.results import CHALLENGER_PLAN, CHAMPION_PLAN, S3FIFO_PLAN
from features.spec import FeatureSpec
from jobs.ground.settings.tree import TrainingSettings
from jobs.loop.evaluate.score_store import ScoreStore
from jobs.loop.train import features as feature_job
from jobs.loop.train.engines import RegionData
from jobs.loop.train.features import sample_share
from models.learning.baselines import baselines
from models.learning.learners import Learner, LightGBM
from models.parallel import run_bounded
from models.serving.bundle import RegionModels
from models.training.training import fit_in_memory

WEEK_S = 7 * DAY_S
RECENCY_PLAN = "lru+recency"
SCORERS = (CHALLENGER_PLAN, S3FIFO_PLAN, RECENCY_PLAN)
"""Policies that plan by models trained during the walk."""

By = Callable[[int], Learner]
"""The learner of each horizon."""


@dataclasses.dataclass(frozen=True)
class Week:
    """A training at `trained_s` on features as of `learned_s`, and the decision times its models score."""

    trained_s: int
    learned_s: tuple[int, ...]
    boundaries_s: tuple[int, ...]


def weeks(
    *,
    first_s: int,
    from_s: int,
    until_s: int,
    cycles_s: Sequence[int],
    every_s: int,
    span_s: int,
    most: int | None = None,
) -> list[Week]:
    """The weeks of a walk from `from_s` to before `until_s`, planned at the multiples of all `cycles_s`.

    Trainings learn from one decision time per `every_s`, not before `first_s` and at most `span_s` ago.
    `most`: the largest number of trainings; each then serves several weeks.
    """
    walked = []
    n_weeks = -(-(until_s - from_s) // WEEK_S)
    each_s = WEEK_S * (1 if most is None else max(1, -(-n_weeks // most)))
    for trained_s in range(from_s, until_s, each_s):
        end_s = min(until_s, trained_s + each_s)
        boundaries = {at for cycle in cycles_s for at in range(-(-trained_s // cycle) * cycle, end_s, cycle)}
        first = max(first_s, trained_s - span_s)
        # One grid for all weeks, so that they share most decision times.
        back = (from_s - first) // every_s
        learned = range(from_s - back * every_s, trained_s, every_s)
        walked.append(Week(trained_s, tuple(learned), tuple(sorted(boundaries))))
    return walked


def score(
    data: RegionData,
    training: TrainingSettings,
    walked: Sequence[Week],
    store: ScoreStore,
    *,
    candidates: int,
    champion: RegionModels | None,
    on_progress: Advance,
) -> tuple[str, ...]:
    """Write the scores of every scorer at every boundary into `store`; returns notes on dropped horizons.

    The scorers are the challenger, its equally calibrated rivals without learning, and `champion`.
    `candidates`: their approximate number at one decision time, for samples that are large enough for each
    training. Raises StaleInputError if there is nothing to train on before the first boundary.
    """
    fewest = min(len(week.learned_s) for week in walked)
    share = sample_share(training, candidates=candidates, moments=fewest)
    learning = dataclasses.replace(data, spec=dataclasses.replace(data.spec, sample_share=share))
    on_progress(0, len(walked) + 1, "features to learn from")
    feature_job.compute(learning, [at for week in walked for at in week.learned_s])
    trained: dict[int, Mapping[str, RegionModels]] = {}

    def rows_of_weeks() -> Iterator[tuple[Week, pd.DataFrame]]:
        for done, week in enumerate(walked, start=1):
            on_progress(done, len(walked) + 1, f"training at {as_of_label(week.trained_s)}")
            yield week, _to_learn_from(learning, training, week)

    def train(week_with_rows: tuple[Week, pd.DataFrame]) -> None:
        week, rows = week_with_rows
        fitted = fit_in_memory(
            rows,
            spec=learning.spec,
            region=learning.region,
            until_s=week.trained_s,
            learners=learners(learning.spec, training),
        )
        trained[week.trained_s] = fitted if champion is None else fitted | {CHAMPION_PLAN: champion}

    run_bounded(train, rows_of_weeks())  # a week's rows are read while those before it are learned from
    dropped: dict[str, str] = {}
    serving: dict[int, Mapping[str, RegionModels]] = {}
    for week in walked:
        dropped |= trained[week.trained_s][CHALLENGER_PLAN].bundle.dropped
        serving |= dict.fromkeys(week.boundaries_s, trained[week.trained_s])
    on_progress(len(walked), len(walked) + 1, f"scores at {len(serving)} decision times")
    moments = sorted(serving)
    before_s = [
        earlier if earlier is not None and serving[earlier] is serving[at] else None
        for earlier, at in zip([None, *moments], moments, strict=False)
    ]
    store.whole.update(at for at, earlier in zip(moments, before_s, strict=True) if earlier is None)
    rows = store.numbered(feature_job.streamed(data, moments, before_s))
    run_bounded(lambda at: store.score(at[1], serving[at[0]], at[0]), zip(moments, rows, strict=True))
    on_progress(len(walked) + 1, len(walked) + 1, "scored")
    return tuple(f"no model within {within}: {why}" for within, why in sorted(dropped.items()))


def _to_learn_from(data: RegionData, training: TrainingSettings, week: Week) -> pd.DataFrame:
    """The rows for a training, of what was known before the week."""
    soonest = min(data.spec.horizons_s)
    learned = [at for at in week.learned_s if at + soonest <= week.trained_s]
    if not learned:
        raise StaleInputError(
            f"nothing to train on before {as_of_label(week.trained_s)}; choose a later --from, "
            "or more accesses before it"
        )
    feature_job.label(data, until_s=week.trained_s, as_ofs=learned)
    rows = feature_job.training_sample(
        data,
        data.tables.snapshot(data.spec.features_table),
        data.tables.snapshot(data.spec.labels_table),
        max_rows=training.max_rows,
        until_s=week.trained_s,
    )
    return rows[rows["as_of_s"] >= learned[0]].drop(columns="dataset")


def learners(spec: FeatureSpec, training: TrainingSettings) -> dict[str, By]:
    """The learner of each policy."""

    def baseline(name: str) -> By:
        return lambda horizon_s: next(
            learner for learner in baselines(spec, horizon_s) if learner.name == name
        )

    return {
        CHALLENGER_PLAN: lambda _: LightGBM(trees=training.trees, seed=training.seed),
        S3FIFO_PLAN: baseline("s3fifo_counts"),
        RECENCY_PLAN: baseline("recency"),
    }
