"""Step `features`: the features at given as_ofs, and the labels of the rows of the features table."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.errors import StaleInputError
from features.schema import ACCESSES, FILES
from features.spark.demand import demand
from features.spark.features import features_of_histories, rebuild
from features.spark.grid import checked_as_ofs, instant_of_text
from features.spark.labels import labels
from features.spec import FeatureSpec
from features.times import DAY_S, as_of_label, day_label
from jobs.settings.tree import Settings
from jobs.spark.session import spark_session
from jobs.spark.table_io import read, read_partitions, replace
from jobs.store.keys import MomentKey
from jobs.store.tables import Snapshot, Tables
from jobs.train.clairvoyant_hits import clairvoyant_hits
from jobs.train.feature_state import Histories
from jobs.train.written import Written, check_on_grid, written

_KEEP = StorageLevel.DISK_ONLY  # in memory, millions of rows of a few partitions exceed the heap


def run(settings: Settings, *, as_ofs: Sequence[int], sample_share: float = 1.0) -> Written:
    """Compute the features at `as_ofs`, of all candidates or of a sample; raises as `compute`."""
    spec = dataclasses.replace(settings.features.spec, sample_share=sample_share)
    check_on_grid(as_ofs, spec.cycle_s)
    snapshot = compute(
        spark_session(settings.spark),
        Tables(settings.tables.root),
        spec=spec,
        region=settings.region.name,
        as_ofs=as_ofs,
        demand_sources=settings.sources.demand,
    )
    return written(snapshot, as_ofs)


def compute(
    spark: SparkSession,
    tables: Tables,
    *,
    spec: FeatureSpec,
    region: str,
    as_ofs: Sequence[int],
    demand_sources: Mapping[str, str] | None = None,
) -> Snapshot:
    """Replace the features of every as_of (seconds since 1970); an as_of without a candidate becomes empty.

    A single as_of is computed from the state of the last one (`jobs.train.feature_state`), and writes its
    own. Several are computed in one pass over the accesses, without writing a state. Both give identical
    rows. `demand_sources`: see `features.spark.demand`; None: all accesses count. A second run changes
    nothing. The catalogue is used if there is one. Raises ValueError if an as_of is off the grid,
    StaleInputError without accesses, ConflictError if another run wrote the same as_ofs.
    """
    instants = checked_as_ofs(as_ofs, spec.cycle_s)
    table = spec.features_table
    base = tables.head(table)
    since, until = day_label(instants[0] - spec.history_s), day_label(instants[-1] + DAY_S)
    accesses = _accesses(spark, tables, demand_sources, since=since, until=until)
    files = read(spark, tables, FILES) if tables.exists(FILES) else None
    is_one = len(instants) == 1
    if is_one:
        state = Histories(spark, tables, spec, region, demand_sources or {}).at(instants[0]).histories
    else:
        state = rebuild(accesses, files, instants, spec=spec).persist(_KEEP)
    cover = [MomentKey.at(a, region) for a in instants]
    try:
        rows = features_of_histories(state, files, instants, spec=spec, region=region)
        return replace(rows, tables, table, cover=cover, base=base, gather=not is_one)
    finally:
        state.unpersist()


def label(
    spark: SparkSession,
    tables: Tables,
    *,
    spec: FeatureSpec,
    until_s: int,
    as_ofs: Sequence[int] | None = None,
    demand_sources: Mapping[str, str] | None = None,
    kept_at: float = 0.0,
) -> Snapshot:
    """Replace the labels of every row of the features table, from what was known before `until_s`.

    `as_ofs`: only of rows at these times (seconds since 1970); None: of all rows. `demand_sources`: the same
    as for the features. `kept_at`: capacity of the clairvoyant of the label `kept`, as a share of the bytes
    read; 0: no such label. Labels whose horizon ends after `until_s` are null; run again later. Raises
    StaleInputError if there are no accesses or no features, ConflictError if another run wrote the same
    partitions.
    """
    table = spec.labels_table
    base = tables.head(table)
    features = tables.snapshot(spec.features_table)
    times = None if as_ofs is None else {as_of_label(a) for a in as_ofs}
    wanted = {key: part for key, part in features.partitions.items() if times is None or key[1] in times}
    pairs = read_partitions(spark, features, wanted).select(
        "did", "region", instant_of_text(F.col("as_of")).alias("as_of")
    )
    since = min((key[0] for key in wanted), default=None)
    accesses = _accesses(spark, tables, demand_sources, since=since)
    hits = None
    if kept_at and since is not None:
        first_s = int(dt.datetime.fromisoformat(f"{since}T00:00:00+00:00").timestamp())
        hits = spark.createDataFrame(
            clairvoyant_hits(
                tables, since_s=first_s, until_s=until_s, share=kept_at, demand_sources=demand_sources or {}
            )
        )
    rows = labels(accesses, pairs, spec=spec, until_s=until_s, clairvoyant_hits=hits)
    return replace(rows, tables, table, cover=list(wanted), base=base)


def _accesses(
    spark: SparkSession,
    tables: Tables,
    sources: Mapping[str, str] | None,
    *,
    since: str | None,
    until: str | None = None,
) -> DataFrame:
    """The reads of these days that count as demand. Raises StaleInputError if none of the reads counts."""
    accesses = read(spark, tables, ACCESSES, since=since, until=until)
    rows = demand(accesses, sources or {})
    if sources and rows.isEmpty() and not accesses.isEmpty():
        others = sorted(row["source"] for row in accesses.select("source").distinct().toLocalIterator())
        raise StaleInputError(
            f"no access since {since} is of a demand source ({', '.join(sorted(set(sources.values())))}); "
            f"there are accesses of {', '.join(others)}: name the one that counts in [sources] demand"
        )
    return rows
