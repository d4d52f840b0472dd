"""Samples of the features table in memory, bounded, chosen by hash: for training and for watching drift."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from features.common.errors import StaleInputError
from features.common.times import as_of_label, parse_as_of
from features.spec import FeatureSpec
from jobs.ground.settings.tree import TrainingSettings
from jobs.ground.store.keys import Key
from jobs.ground.store.tables import Partition, Snapshot, read_partitions
from models.learning.frame import sampled

SPARE = 1.5
"""Reserve, because there may be more candidates at some decision times than at others."""


def sample_share(training: TrainingSettings, *, candidates: int, moments: int) -> float:
    """Share of the candidates to sample, 0 to 1, so that `moments` decision times give `max_rows` rows."""
    return min(1.0, SPARE * training.max_rows / max(1, candidates * moments))


def training_sample(
    features: Snapshot, labels: Snapshot, *, spec: FeatureSpec, region: str, max_rows: int, until_s: int
) -> pd.DataFrame:
    """At most about `max_rows` rows of features ⋈ labels, as_of by as_of, with dataset, and as_of in seconds.

    Features are float32; only the sample and one as_of are in memory at the same time. Raises StaleInputError
    if no label of the shortest horizon has matured by `until_s`.
    """
    soonest = min(spec.horizons_s)
    chosen = {
        key: part
        for key, part in sorted(features.partitions.items())
        if key[2] == region and key in labels.partitions and parse_as_of(key[1]) + soonest <= until_s
    }
    n_rows = sum(part.n_rows for part in chosen.values())
    if not n_rows:
        raise StaleInputError(
            f"no features with labels matured by {as_of_label(until_s)}; "
            "run `cachecast features` for more days"
        )
    pieces = []
    for key, part in chosen.items():
        left = feature_sample(features, key, part, spec=spec, share=max_rows / n_rows)
        targets = ["did", *spec.label_columns]
        right = read_partitions(labels, {key: labels.partitions[key]}, targets)
        frame: pd.DataFrame = left.to_pandas()
        frame = frame.merge(right.to_pandas(), how="inner", on="did", validate="one_to_one")
        frame = frame.astype(dict.fromkeys(spec.numeric_columns, np.float32)).sort_values("did")
        pieces.append(frame.assign(as_of_s=parse_as_of(key[1])))
    return pd.concat(pieces, ignore_index=True)


def feature_sample(
    features: Snapshot, key: Key, part: Partition, *, spec: FeatureSpec, share: float
) -> pa.Table:
    """About a `share` of one as_of's rows: did, dataset, and every model input."""
    inputs = dict.fromkeys(["did", "dataset", *spec.numeric_columns, *spec.categorical_columns])
    rows = read_partitions(features, {key: part}, list(inputs))
    return rows.filter(pa.array(sampled(rows["did"].to_pylist(), key[1], share)))
