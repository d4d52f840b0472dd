"""Step `features`: the features table at given as_ofs, and the labels of all it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from features.errors import StaleInputError
from features.schema import ACCESSES, FILES
from features.spark.demand import demand
from features.spark.features import features_of_cells, needed_cells
from features.spark.grid import checked_as_ofs, instant_of_text
from features.spark.labels import labels
from features.spec import FeatureSpec
from features.times import as_of_label, day_label
from jobs.spark_io import read, replace
from jobs.tables import Snapshot, Tables


def run(
    spark: SparkSession,
    tables: Tables,
    *,
    spec: FeatureSpec,
    region: str,
    as_ofs: Sequence[int],
    demand_sources: Mapping[str, str] | None = None,
) -> Snapshot:
    """Replace the features of every as_of (seconds since 1970); an as_of without a candidate becomes empty.

    `demand_sources`: as `features.spark.demand` takes them; all accesses count without.
    A second run changes nothing. The catalogue is used where there is one. Raises ValueError if an as_of is
    off the grid, StaleInputError without accesses, ConflictError if another run wrote the same as_ofs.
    """
    instants = checked_as_ofs(as_ofs, spec.cycle_s)
    table = spec.features_table
    base = tables.head(table)
    since, until = day_label(instants[0] - spec.history_s), day_label(instants[-1])
    accesses = _accesses(spark, tables, demand_sources, since=since, until=until)
    files = read(spark, tables, FILES) if tables.exists(FILES) else None
    cover = [(day_label(a), as_of_label(a), region) for a in instants]
    cells = needed_cells(accesses, instants, spec=spec).persist()
    try:
        rows = features_of_cells(cells, files, instants, spec=spec, region=region)
        return replace(rows, tables, table, cover=cover, base=base)
    finally:
        cells.unpersist()


def run_labels(
    spark: SparkSession,
    tables: Tables,
    *,
    spec: FeatureSpec,
    until_s: int,
    demand_sources: Mapping[str, str] | None = None,
) -> Snapshot:
    """Replace the labels of every row of the features table, from what was known before `until_s`.

    `demand_sources`: the same as of the features.

    Labels whose horizon ends after `until_s` are null; run again later. Raises StaleInputError if there are
    no accesses or no features, ConflictError if another run wrote the same partitions.
    """
    table = spec.labels_table
    base = tables.head(table)
    wanted = tables.snapshot(spec.features_table)
    pairs = read(spark, tables, spec.features_table).select(
        "did", "region", instant_of_text(F.col("as_of")).alias("as_of")
    )
    since = min((key[0] for key in wanted.partitions), default=None)
    accesses = _accesses(spark, tables, demand_sources, since=since)
    rows = labels(accesses, pairs, spec=spec, until_s=until_s)
    return replace(rows, tables, table, cover=list(wanted.partitions), base=base)


def _accesses(
    spark: SparkSession,
    tables: Tables,
    sources: Mapping[str, str] | None,
    *,
    since: str | None,
    until: str | None = None,
) -> DataFrame:
    """The reads that count, of these days. Raises StaleInputError if there are some, and none counts."""
    told = read(spark, tables, ACCESSES, since=since, until=until)
    rows = demand(told, sources or {})
    if sources and rows.isEmpty() and not told.isEmpty():
        others = sorted(row["source"] for row in told.select("source").distinct().toLocalIterator())
        raise StaleInputError(
            f"no access since {since} is of a demand source ({', '.join(sorted(set(sources.values())))}); "
            f"there are accesses of {', '.join(others)}: name the one that counts in [sources] demand"
        )
    return rows
