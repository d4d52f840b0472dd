"""Model matrices, samples and splits in time, made of feature and label rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, Float32Array, FloatArray, IntArray
from features.common.errors import ModelError, SchemaError
from features.common.units import duration_label
from features.spec import FeatureSpec


class Split(NamedTuple):
    """Two sets of as_ofs, each in order: all labels of `before` are known when `after` begins."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def time_split(as_ofs: Sequence[int], *, horizon_s: int, share: float) -> Split:
    """Split off the last `share` of the as_ofs; `before` ends at least one horizon before they begin.

    Raises ModelError if either part is empty.
    """
    known = sorted(set(as_ofs))
    n_after = min(max(1, round(len(known) * share)), len(known))
    after = known[len(known) - n_after :]
    before = [a for a in known if after and a + horizon_s <= after[0]]
    if not before or not after:
        raise ModelError(
            f"{len(known)} decision times are too few: tests must be a horizon, {duration_label(horizon_s)}, "
            "later than what is learned; run `cachecast features` for more days, or choose shorter horizons"
        )
    return Split(tuple(before), tuple(after))


Vocabulary = Mapping[str, Sequence[str]]
MAX_WORDS = 200


@dataclasses.dataclass(frozen=True)
class Sample:
    """Rows to fit or test on; all fields have one entry per row, in the same order.

    `x`: model matrix; `reads`: reads within the horizon; `as_of`: seconds since 1970; `dataset`: a number per
    dataset, and one of its own for each file without a dataset; None if it is not needed.
    """

    x: pd.DataFrame
    reads: FloatArray
    as_of: IntArray
    dataset: IntArray | None = None

    @property
    def y(self) -> FloatArray:
        """1 if there was a read within the horizon, else 0."""
        return (self.reads > 0).astype(np.float64)

    def where(self, keep: BoolArray) -> Sample:
        """The rows where `keep` holds."""
        dataset = None if self.dataset is None else self.dataset[keep]
        return Sample(self.x[keep].reset_index(drop=True), self.reads[keep], self.as_of[keep], dataset)

    def __len__(self) -> int:
        return len(self.reads)


def learn_vocabulary(rows: pd.DataFrame, spec: FeatureSpec) -> dict[str, list[str]]:
    """The most frequent words of each categorical column, at most 200, the most frequent first."""
    words = {}
    for name in spec.categorical_columns:
        counts = rows[name].dropna().astype(str).value_counts()
        ordered = sorted(counts.items(), key=lambda item: (-int(item[1]), str(item[0])))
        words[name] = [str(word) for word, _ in ordered[:MAX_WORDS]]
    return words


def model_matrix(rows: pd.DataFrame, spec: FeatureSpec, vocabulary: Vocabulary) -> pd.DataFrame:
    """The model inputs of `spec` as float32, one row per row of `rows`; NaN for null.

    A categorical column holds the number of its word in `vocabulary`; NaN for an unknown word. Raises
    SchemaError if a column is missing.
    """
    names = [*spec.numeric_columns, *spec.categorical_columns]
    _refuse_missing(names, list(rows.columns))
    matrix = np.empty((len(rows), len(names)), dtype=np.float32)  # row-major, as scoring needs it
    for i, name in enumerate(names):
        column = rows[name]
        words = vocabulary.get(name)
        if words is None:
            matrix[:, i] = column.to_numpy(dtype=np.float32, na_value=np.nan)
        else:
            texts = pa.array(column.astype(object), type=pa.string(), from_pandas=True)
            matrix[:, i] = _coded(texts, words)
    return pd.DataFrame(matrix, columns=names, copy=False)


def arrow_matrix(rows: pa.RecordBatch, vocabulary: Vocabulary, columns: Sequence[str]) -> Float32Array:
    """As `model_matrix`, but from Arrow rows and as a plain array: float32[n, len(columns)]."""
    _refuse_missing(columns, rows.schema.names)
    matrix = np.empty((rows.num_rows, len(columns)), dtype=np.float32)
    for i, name in enumerate(columns):
        column = rows.column(name)
        words = vocabulary.get(name)
        matrix[:, i] = column.to_numpy(zero_copy_only=False) if words is None else _coded(column, words)
    return matrix


def _refuse_missing(needed: Sequence[str], present: Sequence[str]) -> None:
    if missing := sorted(set(needed) - set(present)):
        raise SchemaError(
            f"the features have no columns {missing}, which the model needs; compute the features again"
        )


@dataclasses.dataclass(frozen=True)
class Known:
    """Rows to fit a horizon's model on; no label ends after `until_s`. `vocabulary` codes their words."""

    horizon_s: int
    sample: Sample
    vocabulary: dict[str, list[str]]
    until_s: int


@dataclasses.dataclass(frozen=True)
class HorizonParts:
    """One horizon's rows: learners are compared on `train` and the later `test`, then fitted on `everything`.

    `everything` includes the rows of both. `test` uses the vocabulary of `train`; `everything` uses the one
    that all horizons share.
    """

    train: Known
    test: Sample
    everything: Known


def horizon_parts(
    rows: pd.DataFrame, spec: FeatureSpec, everything: Known, *, share: float, until_s: int
) -> HorizonParts:
    """The rows of one horizon, split in time: the last `share` of the matured as_ofs is the test.

    `rows`: features ⋈ labels with as_of_s, and dataset if known; `everything`: `known_by` of them. Raises
    ModelError if there are too few as_ofs.
    """
    horizon_s = everything.horizon_s
    label, matured = _matured(rows, horizon_s, until_s)
    split = time_split(matured["as_of_s"].unique().tolist(), horizon_s=horizon_s, share=share)
    before = matured[matured["as_of_s"].isin(split.before)]
    train = _known(before, spec, label, horizon_s, learn_vocabulary(before, spec))
    after = matured[matured["as_of_s"].isin(split.after)]
    return HorizonParts(train, _sample(after, spec, label, train.vocabulary), everything)


def known_by(
    rows: pd.DataFrame, spec: FeatureSpec, *, horizon_s: int, until_s: int, vocabulary: dict[str, list[str]]
) -> Known:
    """All rows whose labels of one horizon have matured by `until_s`. Raises ModelError without any."""
    label, matured = _matured(rows, horizon_s, until_s)
    if matured.empty:
        raise ModelError(f"no label within {duration_label(horizon_s)} has matured; compute more days")
    return _known(matured, spec, label, horizon_s, vocabulary)


def _matured(rows: pd.DataFrame, horizon_s: int, until_s: int) -> tuple[str, pd.DataFrame]:
    label = f"n_access_within_{duration_label(horizon_s)}"
    return label, rows[rows[label].notna() & (rows["as_of_s"] + horizon_s <= until_s)]


def _known(
    rows: pd.DataFrame, spec: FeatureSpec, label: str, horizon_s: int, vocabulary: dict[str, list[str]]
) -> Known:
    sample = _sample(rows, spec, label, vocabulary)
    return Known(horizon_s, sample, vocabulary, int(sample.as_of.max()) + horizon_s)


def _sample(rows: pd.DataFrame, spec: FeatureSpec, label: str, vocabulary: Vocabulary) -> Sample:
    rows = rows.reset_index(drop=True)
    return Sample(
        model_matrix(rows, spec, vocabulary),
        rows[label].to_numpy(dtype=np.float64),
        rows["as_of_s"].to_numpy(dtype=np.int64),
        _groups(rows) if "dataset" in rows.columns else None,
    )


def _groups(rows: pd.DataFrame) -> IntArray:
    names = rows["dataset"].astype(object)
    if "did" in rows.columns:
        names = names.where(names.notna(), rows["did"])
    codes = pd.factorize(names)[0].astype(np.int64)
    alone = codes < 0
    codes[alone] = codes.max(initial=-1) + 1 + np.arange(int(alone.sum()))
    return np.asarray(codes, dtype=np.int64)


def sampled(dids: Sequence[str], as_of: str, share: float) -> BoolArray:
    """Whether each row is in a sample of `share`, by a hash of did and as_of: the same in every run."""
    if share >= 1:
        return np.ones(len(dids), dtype=bool)
    words = np.array([f"{did}\n{as_of}" for did in dids], dtype=object)
    hashes = np.asarray(pd.util.hash_array(words, categorize=False), dtype=np.uint64)
    return hashes < np.uint64(max(share, 0.0) * 2.0**64)


def _coded(column: pa.Array, words: Sequence[str]) -> Float32Array:
    if pa.types.is_dictionary(column.type):
        of_entries = np.append(_coded(column.dictionary, words), np.float32(np.nan))
        return np.asarray(of_entries[column.indices.fill_null(len(column.dictionary)).to_numpy()], np.float32)
    numbers = pc.index_in(column, value_set=pa.array(words, pa.string())).cast(pa.float32())
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float32)
