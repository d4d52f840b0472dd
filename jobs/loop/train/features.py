"""Step `features`: features at given as_ofs, the labels of their rows, and samples of both in memory."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from features.common.errors import StaleInputError
from features.common.times import DAY_S, as_of_label, day_label, parse_as_of
from features.schema import ACCESSES
from features.spec import FeatureSpec
from jobs.ground.settings.tree import Settings, TrainingSettings
from jobs.ground.store.commits import Key
from jobs.ground.store.tables import Snapshot
from jobs.loop.train.engines import FeatureWork, LabelWork, RegionData, Written, check_on_grid, written
from jobs.loop.train.states import States
from models.learning.frame import sampled


def run(settings: Settings, *, as_ofs: Sequence[int], sample_share: float = 1.0) -> Written:
    """Compute the features at `as_ofs`, of all candidates or of a sample; raises as `compute`."""
    return written(compute(RegionData.of(settings, sample_share=sample_share), as_ofs), as_ofs)


def compute(data: RegionData, as_ofs: Sequence[int]) -> Snapshot:
    """Replace the features of every as_of (seconds since 1970); an as_of without a candidate becomes empty.

    A single as_of of all candidates is computed from the last state (`train.states`), and its own is written
    if it is worth it. Several, or samples, are computed in one pass over the accesses, without a state.
    Both give identical rows. A second run changes nothing. The catalogue is used if there is one. Raises
    InputError if an as_of is off the grid, StaleInputError without accesses, ConflictError if another run
    wrote the same as_ofs.
    """
    tables, spec, instants = data.tables, data.spec, sorted(set(as_ofs))
    check_on_grid(instants, spec.cycle_s)
    base = tables.head(spec.features_table)
    states = States(tables, spec, data.region, data.demand_sources, data.engine)
    work = _feature_work(data, instants)
    if len(instants) == 1 and spec.sample_share == 1:
        source = states.source(work.accesses, instants[0])
        work = dataclasses.replace(work, source=source, days=source.days)
    if work.state_windows:
        states.begin(instants[-1])
    done = data.engine(work.days).write_features(tables, work, base=base)
    if work.state_windows:
        states.conclude(work)
    return done


def streamed(
    data: RegionData, as_ofs: Sequence[int], before_s: Sequence[int | None] = ()
) -> Iterator[pa.Table]:
    """Features at each of `as_ofs`, ascending, as `compute` makes them, but not written to the table.

    `before_s`: of `FeatureWork`.
    """
    work = dataclasses.replace(_feature_work(data, as_ofs), before_s=before_s)
    return data.engine(work.days).features(data.tables, work)


def _feature_work(data: RegionData, as_ofs: Sequence[int]) -> FeatureWork:
    """Features from all accesses that may be known at the last of `as_ofs`, without a state."""
    accesses = data.tables.snapshot(ACCESSES)
    return FeatureWork(
        spec=data.spec,
        region=data.region,
        as_ofs=as_ofs,
        demand_sources=data.demand_sources,
        accesses=accesses,
        days=accesses.select(until=day_label(as_ofs[-1] + DAY_S)),
        source=None,
    )


def label(data: RegionData, *, until_s: int, as_ofs: Sequence[int] | None = None) -> Snapshot:
    """Replace the labels of every row of the features table, from what was known before `until_s`.

    `as_ofs`: only of rows at these times (seconds since 1970); None: of all rows. Labels whose horizon
    ends after `until_s` are null; run again later. Raises StaleInputError if there are no accesses or no
    features, ConflictError if another run wrote the same partitions.
    """
    tables, spec = data.tables, data.spec
    base = tables.head(spec.labels_table)
    features, accesses = tables.snapshot(spec.features_table), tables.snapshot(ACCESSES)
    times = None if as_ofs is None else {as_of_label(a) for a in as_ofs}
    partitions = {key: part for key, part in features.partitions.items() if times is None or key[1] in times}
    since = min((key[0] for key in partitions), default=None)
    work = LabelWork(
        spec=spec,
        until_s=until_s,
        demand_sources=data.demand_sources,
        accesses=accesses,
        days=accesses.select(since=since),
        features=features,
        partitions=partitions,
    )
    return data.engine(work.days).write_labels(tables, work, base=base)


SPARE = 1.5
"""Reserve, because there may be more candidates at some decision times than at others."""


def sample_share(training: TrainingSettings, *, candidates: int, moments: int) -> float:
    """Share of the candidates to sample, 0 to 1, so that `moments` decision times give `max_rows` rows."""
    return min(1.0, SPARE * training.max_rows / max(1, candidates * moments))


def training_sample(
    data: RegionData, features: Snapshot, labels: Snapshot, *, max_rows: int, until_s: int
) -> pd.DataFrame:
    """At most about `max_rows` rows of features ⋈ labels, as_of by as_of, with dataset, and as_of in seconds.

    Features are float32; only the sample and one as_of are in memory at the same time. Raises StaleInputError
    if no label of the shortest horizon has matured by `until_s`.
    """
    spec = data.spec
    soonest = min(spec.horizons_s)
    learned_from = [
        key
        for key in sorted(features.partitions)
        if key[2] == data.region and key in labels.partitions and parse_as_of(key[1]) + soonest <= until_s
    ]
    n_rows = sum(features.partitions[key].n_rows for key in learned_from)
    if not n_rows:
        raise StaleInputError(
            f"no features with labels matured by {as_of_label(until_s)}; "
            "run `cachecast features` for more days; without earlier records, wait for some days of them"
        )
    pieces = []
    for key in learned_from:
        inputs = feature_sample(features, key, spec=spec, share=max_rows / n_rows)
        targets = labels.rows_of([key], ["did", *spec.label_columns])
        frame: pd.DataFrame = inputs.to_pandas()
        frame = frame.merge(targets.to_pandas(), how="inner", on="did", validate="one_to_one")
        frame = frame.astype(dict.fromkeys(spec.numeric_columns, np.float32)).sort_values("did")
        pieces.append(frame.assign(as_of_s=parse_as_of(key[1])))
    return pd.concat(pieces, ignore_index=True)


def feature_sample(features: Snapshot, key: Key, *, spec: FeatureSpec, share: float) -> pa.Table:
    """About a `share` of one as_of's rows: did, dataset, and every model input."""
    inputs = dict.fromkeys(["did", "dataset", *spec.numeric_columns, *spec.categorical_columns])
    rows = features.rows_of([key], list(inputs))
    return rows.filter(pa.array(sampled(rows["did"].to_pylist(), key[1], share)))
