"""The scores of a walk, on disk by decision time and scorer, and as they stand at any of them."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import Float32Array, Ids, IntArray
from features.common.errors import StaleInputError
from features.common.times import DAY_S, as_of_label
from features.spec import FeatureSpec
from features.stream.names import numbers, whole
from models.serving.bundle import ROWS_AT_A_TIME, RegionModels
from prefetch.plan.forecasts import best_rate
from prefetch.plan.scores import NEVER_S, UNKNOWN, Scores

ROWS = "rows"
MOST_LOOKS, IDLE_S = 12, DAY_S
"""So many looks at earlier decision times does a reader keep, to go on from; none that its plans have not
asked for during `IDLE_S`.

Of each horizon that caches in step plan by, there are up to three, one, two and three horizons ago."""

_FAR_S = np.iinfo(np.uint32).max
_Column = Callable[[int], IntArray]
"""Reads the column of a number."""


class _Standing:
    """The scores by one scorer of all files, as of the last decision time taken.

    A look, at one horizon, keeps the chances within that (of a scorer without it, within the
    shortest), and neither sizes nor rates. Its files all have a place: those that are no candidates were
    never read and have no chance.
    """

    scores: Scores
    asked_s = 0
    """The time of the whole scores when a look was last asked for; not set where nobody asks for these."""

    def __init__(
        self, within_s: int | None, as_of_s: int, horizons_s: tuple[int, ...], every: tuple[IntArray, Ids]
    ) -> None:
        """`within_s`: the horizon of a look; `every`: the numbers of all files, as items and as places."""
        self.within_s, self.as_of_s = within_s, as_of_s
        self.is_whole = within_s is None
        self._horizons = [k for k, h in enumerate(horizons_s) if within_s in {None, h}] or [0]
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
        order = np.argsort(ids, kind="stable")  # a reader puts them in their places: neighbours are faster
        np.take([ids, size, last_read_s, until_s], order, axis=1).tofile(self._path(ROWS, as_of_s))
        for name, probability in _probabilities(rows, models).items():
            horizons_s = tuple(model.horizon_s for model, _ in models[name].fitted)
            raised = np.maximum.accumulate(probability, axis=0)
            rate = best_rate(raised, horizons_s).astype(np.float32)
            np.take(np.vstack([raised, rate]), order, axis=1).tofile(self._path(name, as_of_s))
            self.horizons_s[name, as_of_s] = horizons_s

    def standing(
        self, name: str, as_of_s: int, within_s: int | None, earlier: Iterable[_Standing]
    ) -> _Standing:
        """The scores by the scorer `name` at a decision time, after all have been made.

        It is the newest of `earlier` that can go on to it, else a new one. `within_s`: a look, which has only
        the chances within it. Raises StaleInputError if there are none.
        """
        horizons_s = self.horizons_s.get((name, as_of_s))
        if horizons_s is None:
            raise StaleInputError(f"{name} made no predictions at {as_of_label(as_of_s)}")
        first_s, step_s = max(at for at in self.whole if at <= as_of_s), self.spec.cycle_s
        fitting = [of for of in earlier if of.within_s == within_s and first_s <= of.as_of_s <= as_of_s]
        newest = max(fitting, key=lambda of: of.as_of_s, default=None)
        standing = newest or _Standing(within_s, first_s - 1, horizons_s, self._every)
        for at in range(standing.as_of_s // step_s * step_s + step_s, as_of_s + 1, step_s):
            if (name, at) in self.horizons_s:
                self._take(name, standing, at)
        if standing.as_of_s < as_of_s:  # else all that was worked out of these scores still holds
            standing.reach(as_of_s)
        return standing

    def _take(self, name: str, standing: _Standing, at_s: int) -> None:
        rows, scores = self._path(ROWS, at_s), self._path(name, at_s)
        n = Path(rows).stat().st_size // (4 * 8)
        standing.take(
            lambda k: np.fromfile(rows, np.int64, n, offset=8 * n * k),
            lambda k: np.fromfile(scores, np.float32, n, offset=4 * n * k),
        )

    def _path(self, part: str, as_of_s: int) -> str:
        return f"{self.folder}/{part}-{as_of_s}"


class Reader:
    """The latest scores by scorer `name`, made every `every_s`, and looks at earlier ones, of one horizon.

    The arrays are the reader's, which changes them when it is asked for a later time: plans that share it
    ask for one time together, and for looks at one horizon one after the other.
    """

    def __init__(self, store: ScoreStore, name: str, every_s: int) -> None:
        self._store, self._name, self._every_s = store, name, every_s
        self._lock, self._locks = threading.Lock(), dict[int | None, threading.Lock]()
        self._whole: list[_Standing] = []
        self._looks: list[_Standing] = []

    def __call__(self, as_of_s: int, within_s: int | None = None, /) -> Scores:
        """The scores; `within_s`: of a look. Raises StaleInputError if there are none."""
        at_s = as_of_s - as_of_s % self._every_s
        with self._locks.setdefault(within_s, threading.Lock()):
            if within_s is None:
                self._whole = [self._store.standing(self._name, at_s, None, self._whole)]
                return self._whole[0].scores
            # A plan looks at what was predicted one horizon ago, two, and so on, and its horizon may change:
            # each goes on in its own.
            look = self._store.standing(self._name, at_s, within_s, self._looks)
            with self._lock:  # of looks at other horizons
                others = [of for of in self._looks if of is not look]
                for whole in self._whole:  # none where plans read the whole scores by another reader
                    look.asked_s = whole.as_of_s
                    others = [of for of in others if whole.as_of_s - of.asked_s <= max(IDLE_S, self._every_s)]
                self._looks = [*others[1 - MOST_LOOKS :], look]
            return look.scores

    def forget(self) -> None:
        """Keep nothing to go on from: what is asked next begins anew."""
        self._whole, self._looks = [], []


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
