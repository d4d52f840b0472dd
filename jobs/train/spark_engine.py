"""Features and labels with Spark, for more than fits into memory: parts of the data, each as in one process.

All that is known of a dataset is in one part, for features; of a file, for labels. A part is a group of
Spark, whose rows a worker receives and returns as Arrow batches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from features import labels
from features.schema import ACCESSES, FILES, STATES, Table, arrow_schema
from features.spark.demand import demand
from features.spark.grid import next_boundary
from features.spark.schema import struct_type
from features.spec import FeatureSpec
from features.stream import events, facts
from features.stream.region import Region
from features.stream.stored import ALONE, FILE, Stored
from features.times import parse_as_of
from jobs.spark.table_io import read, read_partitions, replace
from jobs.store.keys import Key, MomentKey
from jobs.store.tables import Partition, Snapshot, Tables
from jobs.train.work import FeatureWork, LabelWork, placed

ROWS_PER_PART = 1_000_000
"""Reads, about, that a worker has in memory at a time."""
_KEEP = StorageLevel.DISK_ONLY  # in memory, millions of rows of a few partitions exceed the heap

_READ, _LISTED, _STATE, _PAIR, _HIT = range(5)
"""Kinds of rows in a part: reads, files of the catalogue, states, features to be labelled, and hits."""
_OF_STATE = "state_"
"""Prefix of a state's columns among those of features."""

Batches = Iterator[pa.RecordBatch]


class SparkEngine:
    """Spark; see `jobs.train.work.Engine`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def write_features(self, tables: Tables, work: FeatureWork, *, base: Snapshot) -> Snapshot:
        states = tables.head(STATES)
        n_parts = _n_parts(work.days)
        found = (
            self._parts(tables, states, work, n_parts)
            .groupBy("part")
            .applyInArrow(_features_of(work), _features_type(work.spec))
        )
        if not work.keeps_state:
            return replace(found, tables, work.spec.features_table, cover=work.keys, base=base)
        found = found.persist(_KEEP)
        try:
            done = replace(
                found.where(F.col("did").isNotNull()),
                tables,
                work.spec.features_table,
                cover=work.keys,
                base=base,
                gather=False,
            )
            kept = found.where(F.col(f"{_OF_STATE}kind").isNotNull()).select(
                *(F.col(f"{_OF_STATE}{name}").alias(name) for name in STATES.column_names), *STATES.partition
            )
            key = work.keys[-1]
            replace(kept, tables, STATES, cover=[key], base=states, drop=work.older, gather=False)
            return done
        finally:
            found.unpersist()

    def write_labels(self, tables: Tables, work: LabelWork, *, base: Snapshot) -> Snapshot:
        reads = demand(read_partitions(self._spark, work.accesses, work.days), work.demand_sources)
        pairs = read_partitions(self._spark, work.features, work.wanted).select("did", "as_of", "region")
        kinds = [(_READ, reads.select(*labels.COLUMNS)), (_PAIR, pairs)]
        if work.hits is not None:
            kinds.append((_HIT, self._spark.createDataFrame(work.hits)))
        rows = _together([frame.withColumn("row", F.lit(kind)) for kind, frame in kinds])
        parts = rows.withColumn("part", _part(F.col("did"), _n_parts(work.days)))
        table = work.spec.labels_table
        found = parts.groupBy("part").applyInArrow(_labels_of(work), struct_type(table, with_partition=True))
        return replace(found, tables, table, cover=work.wanted, base=base)

    def _parts(self, tables: Tables, states: Snapshot, work: FeatureWork, n_parts: int) -> DataFrame:
        """Reads, files and states, each with the part of its dataset."""
        reads, files, stored = self._reads(work), self._files(tables), self._stored(states, work)
        homes = _homes(reads, files, stored, cycle_s=work.spec.cycle_s)
        of_state = F.when(F.col("kind") == FILE, F.col("dataset")).otherwise(F.col("entity"))
        kinds = [
            reads.join(homes, "did").withColumn("row", F.lit(_READ)),
            files.join(homes, "did").withColumn("row", F.lit(_LISTED)),
            stored.withColumn("home", of_state).withColumn("row", F.lit(_STATE)),
        ]
        return _together(kinds).withColumn("part", _part(F.col("home"), n_parts)).drop("home")

    def _reads(self, work: FeatureWork) -> DataFrame:
        """The reads that the state has not counted yet."""
        rows = demand(read_partitions(self._spark, work.accesses, work.days), work.demand_sources)
        usable_s = _usable_from("accessed_at", "known_at", cycle_s=work.spec.cycle_s)
        rows = rows.select(*events.COLUMNS).withColumn("usable_s", usable_s)
        return rows if work.since is None else rows.where(F.col("usable_s") > parse_as_of(work.since.as_of))

    def _files(self, tables: Tables) -> DataFrame:
        if not tables.exists(FILES):
            return self._spark.createDataFrame([], struct_type(FILES)).select(*facts.CATALOGUE)
        return read(self._spark, tables, FILES).select(*facts.CATALOGUE)

    def _stored(self, states: Snapshot, work: FeatureWork) -> DataFrame:
        chosen: Mapping[Key, Partition] = {}
        if work.since is not None:
            chosen = {work.since: states.partitions[work.since]}
        rows = read_partitions(self._spark, states, chosen)
        return rows.select(*STATES.column_names)


def _homes(reads: DataFrame, files: DataFrame, stored: DataFrame, *, cycle_s: int) -> DataFrame:
    """did (unique), home: the dataset that a file is counted in, by the rule of `features.stream.region`."""
    named = F.when(F.col("dataset").isNotNull(), F.struct("usable_s", "dataset"))
    by_reads = reads.groupBy("did").agg(F.min("usable_s").alias("first_s"), F.min(named).alias("named"))
    listed = files.where(F.col("dataset").isNotNull()).select(
        "did", F.col("dataset").alias("listed"), _usable_from("known_at", cycle_s=cycle_s).alias("listed_s")
    )
    counted = stored.where(F.col("kind") == FILE).select(
        F.col("entity").alias("did"), F.col("dataset").alias("counted")
    )
    in_time = F.col("first_s").isNull() | (F.col("listed_s") <= F.col("first_s"))
    home = F.coalesce(
        "counted",
        F.when(in_time, F.col("listed")),
        F.when(F.col("named.usable_s") == F.col("first_s"), F.col("named.dataset")),
        F.when(F.col("first_s").isNotNull(), F.concat("did", F.lit(ALONE))),
    )
    both = by_reads.join(listed, "did", how="full_outer").join(counted, "did", how="full_outer")
    return both.select("did", home.alias("home")).where(F.col("home").isNotNull())


def _usable_from(*times: str, cycle_s: int) -> Column:
    found = [next_boundary(F.col(name), cycle_s) for name in times]
    return found[0] if len(found) == 1 else F.greatest(*found)


def _n_parts(days: Mapping[Key, Partition]) -> int:
    return 1 + sum(part.n_rows for part in days.values()) // ROWS_PER_PART


def _part(entity: Column, n_parts: int) -> Column:
    return F.pmod(F.xxhash64(entity), F.lit(n_parts)).cast("int")


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    return functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _features_type(spec: FeatureSpec) -> StructType:
    of_features = struct_type(spec.features_table, with_partition=True)
    of_states = [
        StructField(f"{_OF_STATE}{field.name}", field.dataType) for field in struct_type(STATES).fields
    ]
    return StructType([*of_features.fields, *of_states])


def _features_of(work: FeatureWork) -> Callable[[Batches], Batches]:
    """The worker: features, and the state if it is kept, of one part."""
    spec, region, as_ofs, keeps_state = work.spec, work.region, tuple(work.as_ofs), work.keeps_state
    columns = [*spec.features_table.column_names, *spec.features_table.partition]
    state_columns = [f"{_OF_STATE}{name}" for name in STATES.column_names]

    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches)
        known = Region(
            _of_kind(rows, _READ, events.COLUMNS, ACCESSES),
            _of_kind(rows, _LISTED, facts.CATALOGUE, FILES),
            Stored(_of_kind(rows, _STATE, STATES.column_names, STATES)),
            spec,
        )
        schema = _arrow_type(spec)
        for as_of_s in as_ofs:
            key = MomentKey.at(as_of_s, region)
            yield from _filled(placed(known.features(as_of_s), spec.features_table, key), columns, schema)
        if keeps_state:
            key = MomentKey.at(as_ofs[-1], region)
            kept = known.stored(as_ofs[-1]).rows.rename_columns(state_columns)
            yield from _filled(placed(kept, STATES, key), [*state_columns, *STATES.partition], schema)

    return compute


def _labels_of(work: LabelWork) -> Callable[[Batches], Batches]:
    """The worker: the labels of one part."""
    spec, until_s, has_hits = work.spec, work.until_s, work.hits is not None

    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches)
        hits = labels.hits_of(_rows(rows, _HIT, ("did", "at"))) if has_hits else None
        reads = labels.Reads(_of_kind(rows, _READ, labels.COLUMNS, ACCESSES), until_s=until_s, hits=hits)
        pairs = _rows(rows, _PAIR, ("did", "as_of", "region"))
        table = spec.labels_table
        for moment in pairs.group_by(["as_of", "region"]).aggregate([]).to_pylist():
            as_of_s = parse_as_of(moment["as_of"])
            same = pc.and_(
                pc.equal(pairs["as_of"], moment["as_of"]), pc.equal(pairs["region"], moment["region"])
            )
            dids = pairs.filter(same)["did"].combine_chunks().sort()
            found = reads.labels(dids, as_of_s, spec)
            yield from placed(found, table, MomentKey.at(as_of_s, moment["region"])).to_batches()

    return compute


def _rows(rows: pa.Table, kind: int, columns: Sequence[str]) -> pa.Table:
    return rows.filter(pc.equal(rows["row"], kind)).select(list(columns))


def _of_kind(rows: pa.Table, kind: int, columns: Sequence[str], table: Table) -> pa.Table:
    """`columns` of the rows of one kind, in the table's types."""
    chosen, types = _rows(rows, kind, columns), arrow_schema(table)
    return pa.table({name: chosen[name].cast(types.field(name).type) for name in columns})


def _arrow_type(spec: FeatureSpec) -> pa.Schema:
    table = spec.features_table
    of_features = [(field.name, field.type) for field in arrow_schema(table)]
    of_partition = [(name, pa.string()) for name in table.partition]
    of_states = [(f"{_OF_STATE}{field.name}", field.type) for field in arrow_schema(STATES)]
    return pa.schema([*of_features, *of_partition, *of_states])


def _filled(rows: pa.Table, columns: Sequence[str], schema: pa.Schema) -> Batches:
    """Batches of `columns` of `rows`, with null in all others of `schema`."""
    n = rows.num_rows
    there = set(columns)
    arrays = [rows[f.name].cast(f.type) if f.name in there else pa.nulls(n, f.type) for f in schema]
    yield from pa.table(arrays, schema=schema).to_batches()
