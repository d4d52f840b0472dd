"""Walk-forward evaluation: features at every decision time, a training per week, scores at every boundary.

A training at T learns, like `cachecast train` at T, from samples of features before T and from labels of what
was known before T. Its models score the plan boundaries of the following week. Only samples and scores are
written; the features at boundaries are scored as they are computed. A file is scored anew when its features
have changed (`features.stream.region`), so that most scores stay; what changes is kept on disk.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import Float32Array, Ids, IntArray
from features.common.errors import StaleInputError
from features.common.progress import Advance
from features.common.times import DAY_S, as_of_label
from features.results import CHALLENGER_PLAN, CHAMPION_PLAN, S3FIFO_PLAN
from features.spec import FeatureSpec
from features.stream.names import numbers, whole
from jobs.ground.settings.tree import TrainingSettings
from jobs.loop.train import features as feature_job
from jobs.loop.train.engines import RegionData
from jobs.loop.train.features import sample_share
from models.learning.baselines import baselines
from models.learning.learners import Learner, LightGBM
from models.parallel import run_bounded
from models.serving.bundle import ROWS_AT_A_TIME, RegionModels
from models.training.training import fit_in_memory
from prefetch.plan.scores import NEVER_S, UNKNOWN, Scores
from prefetch.plan.value import best_rate

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


@dataclasses.dataclass(frozen=True)
class Walk:
    """The input of a walk-forward evaluation; `candidates`: their approximate number at one decision time."""

    data: RegionData
    training: TrainingSettings
    candidates: int

    def sampled(self, walked: Sequence[Week]) -> RegionData:
        """The data with samples that are large enough for each training."""
        fewest = min(len(week.learned_s) for week in walked)
        share = sample_share(self.training, candidates=self.candidates, moments=fewest)
        return dataclasses.replace(self.data, spec=dataclasses.replace(self.data.spec, sample_share=share))


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
    walk: Walk,
    walked: Sequence[Week],
    store: ScoreStore,
    *,
    champion: RegionModels | None,
    on_progress: Advance,
) -> tuple[str, ...]:
    """Write the scores of every scorer at every boundary into `store`; returns notes on dropped horizons.

    The scorers are the challenger, its equally calibrated rivals without learning, and `champion`. Raises
    StaleInputError if there is nothing to train on before the first boundary.
    """
    learning = walk.sampled(walked)
    on_progress(0, len(walked) + 1, "features to learn from")
    feature_job.compute(learning, [at for week in walked for at in week.learned_s])
    trained: dict[int, Mapping[str, RegionModels]] = {}

    def rows_of_weeks() -> Iterator[tuple[Week, pd.DataFrame]]:
        for done, week in enumerate(walked, start=1):
            on_progress(done, len(walked) + 1, f"training at {as_of_label(week.trained_s)}")
            yield week, _to_learn_from(learning, walk.training, week)

    def train(week_with_rows: tuple[Week, pd.DataFrame]) -> None:
        week, rows = week_with_rows
        fitted = fit_in_memory(
            rows,
            spec=learning.spec,
            region=learning.region,
            until_s=week.trained_s,
            learners=learners(learning.spec, walk.training),
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
    rows = store.numbered(feature_job.streamed(walk.data, moments, before_s))
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


ROWS = "rows"
MOST_LOOKS = 12
"""So many more looks at earlier decision times does a thread keep to go on from than the one at hand."""

_FAR_S = np.iinfo(np.uint32).max
_Column = Callable[[int], IntArray]
"""Reads the column of a number."""
_Key = tuple[str, int | None]
"""A scorer, and the one horizon (s) that is looked at; None: all of them."""


class _Standing:
    """The scores by one scorer of all files, as of the last decision time taken.

    A look, with a horizon in its key, keeps the chances within that (of a scorer without it, within the
    shortest), and neither sizes nor rates. Its files all have a place: those that are no candidates were
    never read and have no chance.
    """

    scores: Scores

    def __init__(
        self, key: _Key, as_of_s: int, horizons_s: tuple[int, ...], every: tuple[IntArray, Ids]
    ) -> None:
        """`every`: the numbers of all files, once as `Scores.item` has them and once as places."""
        self.key, self.as_of_s = key, as_of_s
        self.is_whole = key[1] is None
        self._horizons = [k for k, h in enumerate(horizons_s) if key[1] in {None, h}] or [0]
        self.horizons_s = tuple(horizons_s[k] for k in self._horizons)
        self._item, self._place = every
        n_files = self._item.size
        self._until_s, self._last_read_s = np.full(n_files, _FAR_S, np.uint32), np.full(n_files, NEVER_S)
        self._probability = np.zeros((len(self._horizons), n_files), np.float32)
        n_whole = n_files if self.is_whole else 0
        self._size_bytes, self._rate = np.zeros(n_whole, np.int64), np.zeros(n_whole, np.float32)
        if self.is_whole:
            self._place = np.full(n_files, UNKNOWN, np.int32)

    def take(self, row: _Column, scored: Callable[[int], Float32Array]) -> None:
        """Take what a decision time scored, by columns: those of ROWS; the chances and then the rate."""
        item = row(0)
        self._last_read_s[item], self._until_s[item] = row(2), np.clip(row(3), 0, _FAR_S)
        for mine, k in zip(self._probability, self._horizons, strict=True):
            mine[item] = scored(k)
        if self.is_whole:
            self._size_bytes[item], self._place[item] = row(1), item
            self._rate[item] = scored(len(self._horizons))

    def reach(self, as_of_s: int) -> None:
        """Leave out the files that are no candidates any more: all until `as_of_s` is taken."""
        self.as_of_s = as_of_s
        gone = np.flatnonzero(self._until_s < as_of_s)
        self._until_s[gone], self._last_read_s[gone], self._probability[:, gone] = _FAR_S, NEVER_S, 0
        if self.is_whole:
            self._size_bytes[gone], self._rate[gone], self._place[gone] = 0, 0, UNKNOWN
        self.scores = Scores(
            as_of_s,
            self._item,
            self._size_bytes,
            self.horizons_s,
            self._probability,
            self._last_read_s,
            rate=self._rate if self.is_whole else None,
            place=self._place,
            rises=True,
        )


class Reader(Protocol):
    """Asks `ScoreStore.at` for one scorer."""

    def __call__(self, as_of_s: int, within_s: int | None = None, /) -> Scores: ...


@dataclasses.dataclass(frozen=True)
class ScoreStore:
    """Scores under `folder`, of files numbered by their index in `dids`, which are candidates by `spec`.

    `whole`: decision times at which all candidates are scored; at others those whose features have changed
    since the one before. `horizons_s`: of the scorers at the decision times that were scored.
    """

    folder: Path
    dids: pa.Array
    spec: FeatureSpec
    whole: set[int] = dataclasses.field(default_factory=set)
    horizons_s: dict[tuple[str, int], tuple[int, ...]] = dataclasses.field(default_factory=dict)
    _of_thread: threading.local = dataclasses.field(default_factory=threading.local)

    @functools.cached_property
    def _every(self) -> tuple[IntArray, Ids]:
        return np.arange(len(self.dids)), np.arange(len(self.dids), dtype=np.int32)

    def numbered(self, pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The rows of each table of features whose file has a number, `item`, and a size."""
        dids, number = pa.array([], pa.string()), np.empty(0, np.int32)
        for rows in pieces:
            did = pc.dictionary_encode(whole(rows["did"]))
            if not did.dictionary.equals(dids):  # as a rule it is the one before, of all files
                dids, number = did.dictionary, numbers(did.dictionary, self.dids)
            item = number[did.indices.to_numpy()]
            usable = pc.and_(pa.array(item >= 0), whole(rows["size_bytes"]).is_valid())
            numbered = rows.append_column("item", pa.array(item)).drop_columns(["did", "dataset"])
            yield numbered if pc.all(usable, min_count=0).as_py() else numbered.filter(usable)

    def score(self, rows: pa.Table, models: Mapping[str, RegionModels], as_of_s: int) -> None:
        """Write the scores of `numbered` features at one as_of by each of `models`, by name."""
        ids = rows["item"].to_numpy().astype(np.int64)
        size = rows["size_bytes"].to_numpy().astype(np.int64)
        recency_s, of_dataset_s = (
            pc.round(rows[name]).cast(pa.int64()) for name in ("recency_s", "dataset_recency_s")
        )
        last_read_s = pc.subtract(as_of_s, recency_s).fill_null(NEVER_S).to_numpy()
        ends_s = pc.subtract(as_of_s + self.spec.active_dataset_s, of_dataset_s).fill_null(NEVER_S).to_numpy()
        until_s = np.maximum(last_read_s + self.spec.candidate_s, ends_s)
        np.array([ids, size, last_read_s, until_s]).tofile(self._path(ROWS, as_of_s))
        for name, probability in _probabilities(rows, models).items():
            horizons_s = tuple(model.horizon_s for model, _ in models[name].fitted)
            raised = np.maximum.accumulate(probability, axis=0)
            rate = best_rate(raised, horizons_s).astype(np.float32)
            np.vstack([raised, rate]).tofile(self._path(name, as_of_s))
            self.horizons_s[name, as_of_s] = horizons_s

    def at(self, name: str, as_of_s: int, within_s: int | None = None) -> Scores:
        """The scores by the scorer `name` at a decision time, after all have been made.

        `within_s`: a look, which has only the chances within it; within the shortest horizon of a scorer
        without it. The arrays are those of the thread, which changes them when it asks for a later decision
        time. Raises StaleInputError if there are none.
        """
        horizons_s = self.horizons_s.get((name, as_of_s))
        if horizons_s is None:
            raise StaleInputError(f"{name} made no predictions at {as_of_label(as_of_s)}")
        first_s, key = max(at for at in self.whole if at <= as_of_s), (name, within_s)
        known: list[_Standing] = [of for of in getattr(self._of_thread, "standing", ()) if of.key[0] == name]
        earlier = (of for of in known if of.key == key and first_s <= of.as_of_s <= as_of_s)
        newest = max(earlier, key=lambda standing: standing.as_of_s, default=None)
        standing = newest or _Standing(key, first_s - 1, horizons_s, self._every)
        step_s = self.spec.cycle_s
        for at in range(standing.as_of_s // step_s * step_s + step_s, as_of_s + 1, step_s):
            if (name, at) in self.horizons_s:
                self._take(standing, at)
        if standing.as_of_s < as_of_s:  # else all that was worked out of these scores still holds
            standing.reach(as_of_s)
        # A plan also looks at what was predicted one horizon ago, two, and so on, and its horizon may change:
        # each goes on in its own. Of what is predicted now there is one.
        others = [of for of in known if of is not standing]
        whole = [of for of in others if of.is_whole and not standing.is_whole]
        self._of_thread.standing = [*whole, *[of for of in others if not of.is_whole][-MOST_LOOKS:], standing]
        return standing.scores

    def _take(self, standing: _Standing, at_s: int) -> None:
        rows, scores = self._path(ROWS, at_s), self._path(standing.key[0], at_s)
        n = Path(rows).stat().st_size // (4 * 8)
        standing.take(
            lambda k: np.fromfile(rows, np.int64, n, offset=8 * n * k),
            lambda k: np.fromfile(scores, np.float32, n, offset=4 * n * k),
        )

    def reader(self, name: str, *, every_s: int) -> Reader:
        """A reader of the latest scores by one scorer, made every `every_s`."""
        return lambda as_of_s, within_s=None: self.at(name, as_of_s - as_of_s % every_s, within_s)

    def _path(self, part: str, as_of_s: int) -> str:
        return f"{self.folder}/{part}-{as_of_s}"


def _probabilities(rows: pa.Table, models: Mapping[str, RegionModels]) -> dict[str, Float32Array]:
    """float32[k, n] by name: per horizon, the probability of every row. Models of equal inputs share them."""
    pieces = {name: [np.zeros((len(loaded.fitted), 0), np.float32)] for name, loaded in models.items()}
    inputs = {name: loaded.bundle.inputs for name, loaded in models.items()}
    distinct = {inputs[name]: loaded for name, loaded in models.items()}
    for batch in filter(len, rows.combine_chunks().to_batches(max_chunksize=ROWS_AT_A_TIME)):
        matrices = {taken: loaded.matrix(batch) for taken, loaded in distinct.items()}
        for name, loaded in models.items():
            by_horizon = [column for _, column in loaded.probabilities(matrices[inputs[name]])]
            pieces[name].append(np.array(by_horizon, np.float32))
    return {name: np.concatenate(parts, axis=1) for name, parts in pieces.items()}
