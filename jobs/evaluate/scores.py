"""The scores at plan boundaries, on disk: for each decision time a file of its rows, and one per scorer."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import StaleInputError
from features.common.times import as_of_label
from models.serving.scoring import ROWS_AT_A_TIME, RegionModels
from prefetch.plan import Scores
from prefetch.plan.scores import NEVER_S

ROWS = "rows"


@dataclasses.dataclass(frozen=True)
class ScoreStore:
    """Scores under `folder`, of files numbered by their index in `dids`."""

    folder: Path
    dids: pa.Array

    def score(self, rows: pa.Table, models: Mapping[str, RegionModels], as_of_s: int) -> None:
        """Write the scores of the features rows at one as_of by each of `models`, by name."""
        item = pc.index_in(rows["did"], value_set=self.dids)
        usable = pc.and_(pc.is_valid(item), pc.is_valid(rows["size_bytes"]))
        rows = rows.append_column("item", item).filter(usable)
        ids = rows["item"].to_numpy().astype(np.int64)
        size = rows["size_bytes"].to_numpy().astype(np.int64)
        recency_s = pc.round(rows["recency_s"]).cast(pa.int64())
        last_read_s = pc.subtract(as_of_s, recency_s).fill_null(NEVER_S).to_numpy()
        np.savez(self._path(ROWS, as_of_s), item=ids, size_bytes=size, last_read_s=last_read_s)
        for name, loaded in models.items():
            np.savez(
                self._path(name, as_of_s),
                horizons_s=np.array([model.horizon_s for model, _ in loaded.fitted]),
                probability=_probabilities(rows, loaded),
            )

    def at(self, name: str, as_of_s: int) -> Scores:
        """The scores by the scorer `name` at a decision time. Raises StaleInputError if there are none."""
        path = self._path(name, as_of_s)
        if not path.is_file():
            raise StaleInputError(f"{name} made no predictions at {as_of_label(as_of_s)}")
        with np.load(self._path(ROWS, as_of_s)) as rows, np.load(path) as kept:
            return Scores(
                as_of_s,
                rows["item"],
                rows["size_bytes"],
                tuple(kept["horizons_s"].tolist()),
                kept["probability"].astype(np.float64),
                rows["last_read_s"],
            )

    def reader(self, name: str, *, every_s: int) -> Callable[[int], Scores]:
        """A reader of the latest scores by one scorer, made every `every_s`; the last ones stay in memory."""
        kept = functools.lru_cache(maxsize=1)(functools.partial(self.at, name))
        return lambda as_of_s: kept(as_of_s - as_of_s % every_s)

    def _path(self, name: str, as_of_s: int) -> Path:
        return self.folder / f"{name}-{as_of_s}.npz"


def _probabilities(rows: pa.Table, loaded: RegionModels) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """float32[k, n]: per horizon, the probability of every row."""
    pieces = [np.zeros((len(loaded.fitted), 0), np.float32)]
    for batch in rows.combine_chunks().to_batches(max_chunksize=ROWS_AT_A_TIME):
        if batch.num_rows:
            found = [probability for _, probability, _ in loaded.probabilities(loaded.matrix(batch))]
            pieces.append(np.array(found, np.float32))
    return np.concatenate(pieces, axis=1)
