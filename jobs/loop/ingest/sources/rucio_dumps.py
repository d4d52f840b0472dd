"""Rucio's daily dumps in Avro: the folder of a date with `replicas`, `contents`, `rses` and perhaps `dids`.

Written by sqoop: upper-case columns, RSE ids as bytes, times in ms, numbers as longs or strings. Spark's pip
package holds its Avro reader but does not register its short name, so it is asked for by its class.
"""

import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from features.common.errors import InputError, SchemaError
from features.common.names import literal, name_parts, part
from features.schema import FILES
from jobs.loop.ingest.sources import Source, sql

_AVRO = "org.apache.spark.sql.avro.AvroFileFormat"
_DATE = re.compile(r"(?<![^/=])\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?![^/])")
_KEY = ("SCOPE", "NAME")
_AVAILABLE = "A"
_CHILD = ("CHILD_SCOPE", "CHILD_NAME", "CHILD_TYPE")
_OF_REPLICAS = ("STATE", "ADLER32", "CREATED_AT", "LOCK_CNT")


def read(spark: SparkSession, path: str, *, day: str) -> tuple[DataFrame, sql.Query]:
    """Files with a replica, in the dump at `path`: one row a file, and one a refused replica.

    `origins` are the RSEs with an available replica, but for volatile ones, which are caches; `locked` those
    where a rule keeps it, if the dump has LOCK_CNT. A replica of an RSE that `rses` lacks is refused; its
    file stays. `dataset` is the one the file was attached to first; of
    a CMS block, the CMS dataset. `created_at` is from dids, else the first replica's. `known_at` is when the
    file was there and attached: Rucio had it from then on. `updated_at` is the dump's date (that of the last
    folder of `path` that has one, else `day`), never before known_at. A tier that the file's name does not
    tell is the dataset's. Raises InputError if a part is not there, SchemaError if it lacks columns.
    """
    replicas = _with_verdict(_table(spark, path, "replicas", [*_KEY, "RSE_ID", "BYTES"], _OF_REPLICAS))
    is_cache = F.lower(F.col("VOLATILE").cast("string")).isin("1", "true")
    listed = _table(spark, path, "rses", ["ID", "RSE"], ("VOLATILE",))
    rses = listed.groupBy(_hex(F.col("ID")).alias("rse_id")).agg(
        F.max("RSE").alias("rse"), F.coalesce(F.max(is_cache), F.lit(False)).alias("is_cache")
    )
    good = replicas.filter(F.col("reason").isNull()).join(F.broadcast(rses), "rse_id", how="left")
    files = _files(good).join(
        _parents(_table(spark, path, "contents", [*_KEY, *_CHILD], ("DID_TYPE", "CREATED_AT"))),
        ["SCOPE", "NAME"],
        how="left",
    )
    dids = _dids(spark, path)
    if dids is None:
        files = files.withColumn("did_created", F.lit(None).cast("long"))
    else:
        files = files.join(dids, ["SCOPE", "NAME"], how="left")
    sample = F.to_json(F.struct("file", *_KEY, "BYTES", "CREATED_AT"))
    strange = good.filter(F.col("rse").isNull()).withColumn("reason", F.lit("an RSE that rses does not list"))
    bad = replicas.filter(F.col("reason").isNotNull()).unionByName(strange, allowMissingColumns=True)
    refused = bad.select("reason", sample.alias("stated"))
    rows = files.unionByName(refused, allowMissingColumns=True).withColumn("input", F.lit(path))
    # The last date (`2026-03-01`) that a folder of `path` is called.
    return rows.withColumnRenamed("reason", "refused"), _query([day, *_DATE.findall(path)][-1])


def _table(
    spark: SparkSession, path: str, name: str, needed: Sequence[str], useful: Sequence[str]
) -> DataFrame:
    """Columns `needed` and `useful` of one dumped table, null where not there, and the `file` they are in."""
    files = f"{path.rstrip('/')}/{name}/part*.avro"
    try:
        table = spark.read.format(_AVRO).load(files)
    except AnalysisException as error:
        raise InputError(
            f"cannot read {files}: {error.getCondition() or 'unusable'}; --input is the folder of a date"
        ) from None
    columns = set(table.columns)
    if missing := sorted(set(needed) - columns):
        raise SchemaError(f"{files}: columns {missing} are missing; there are {sorted(columns)}")
    selected = {n: F.col(n) if n in columns else F.lit(None).cast("string") for n in (*needed, *useful)}
    base_name = F.substring_index(F.col("_metadata.file_path"), "/", -1).alias("file")
    return table.select(*(column.alias(n) for n, column in selected.items()), base_name)


def _with_verdict(replicas: DataFrame) -> DataFrame:
    """`replicas` with size, created (µs since 1970), rse (hex digits) and `reason`, null if there is none."""
    size, created = F.col("BYTES").cast("string").try_cast("long"), _moment(F.col("CREATED_AT"))
    raw = replicas.withColumns({"size": size, "created": created, "rse_id": _hex(F.col("RSE_ID"))})
    reason = sql.first_reason(
        *((f"{name} IS NULL", f"missing field: {name}") for name in (*_KEY, "RSE_ID", "BYTES")),
        ("size IS NULL", "unparsable size"),
        ("size < 0", "negative size"),
        (f"size > {sql.MOST_BYTES}", "impossible size_bytes"),
        ("CREATED_AT IS NOT NULL AND created IS NULL", "unparsable time: CREATED_AT"),
        ("created IS NULL", "missing field: CREATED_AT"),
    )
    return raw.withColumn("reason", F.expr(reason))


def _files(replicas: DataFrame) -> DataFrame:
    is_origin = F.coalesce(F.col("STATE") == _AVAILABLE, F.lit(True)) & ~F.col("is_cache")
    locks = F.col("LOCK_CNT").cast("string").try_cast("long")
    locked = F.sort_array(F.collect_set(F.when(is_origin & (locks > 0), F.col("rse"))))
    return replicas.groupBy(*_KEY).agg(
        F.max("size").alias("size"),
        F.max(F.lower("ADLER32")).alias("checksum"),
        F.min("created").alias("created"),
        F.sort_array(F.collect_set(F.when(is_origin, F.col("rse")))).alias("origins"),
        # Of one replica without a count it is unknown whether a rule keeps it.
        F.when(F.count(locks) == F.count(F.lit(1)), locked).alias("locked"),
    )


def _parents(contents: DataFrame) -> DataFrame:
    """The dataset that each file was attached to first: SCOPE, NAME of the file, parent and attached."""
    parent = F.struct(_moment(F.col("CREATED_AT")).alias("at"), F.col("SCOPE"), F.col("NAME"))
    datasets = F.coalesce(F.col("DID_TYPE") == "D", F.lit(True)) & (F.col("CHILD_TYPE") == "F")
    first = (
        contents.filter(datasets)
        .groupBy(F.col("CHILD_SCOPE").alias("SCOPE"), F.col("CHILD_NAME").alias("NAME"))
        .agg(F.min(parent).alias("parent"))
    )
    return first.select(
        "SCOPE",
        "NAME",
        F.col("parent.SCOPE").alias("parent_scope"),
        # In Rucio a CMS block (`/A/B/C#id`) is the parent; popularity is known by the dataset it belongs to.
        F.regexp_replace("parent.NAME", "#.*$", "").alias("parent_name"),
        F.col("parent.at").alias("attached"),
    )


def _dids(spark: SparkSession, path: str) -> DataFrame | None:
    """SCOPE, NAME and did_created of the files in dids; None where the dump has no dids."""
    try:
        dids = _table(spark, path, "dids", [*_KEY, "DID_TYPE"], ("CREATED_AT",))
    except InputError:
        return None
    files = dids.filter(F.col("DID_TYPE") == "F")
    return files.groupBy(*_KEY).agg(F.min(_moment(F.col("CREATED_AT"))).alias("did_created"))


def _query(dumped_on: str) -> sql.Query:
    named = sql.named('"NAME"', '"SCOPE"')
    created, known = sql.timestamp("coalesce(did_created, created)"), "known_us"
    columns = named | {
        "dataset": f"coalesce(parent_scope || ':' || parent_name, {named['dataset']})",
        **{n: f"coalesce({part('parts', n)}, {part('of_dataset', n)})" for n in ("tier", "campaign")},
        "size_bytes": "size",
        "adler32": "CASE WHEN regexp_full_match(checksum, '[0-9a-f]{8}') THEN checksum END",
        "created_at": created,
        "origins": "origins",
        "locked": "locked",
        "known_at": sql.timestamp(known),
        "updated_at": f"greatest(try_cast({literal(dumped_on)} AS TIMESTAMP), {sql.timestamp(known)})",
    }
    steps = [
        {"known_us": "greatest(coalesce(did_created, created), attached)"},
        *sql.with_parts('"NAME"', '"SCOPE"'),
        {"of_dataset": name_parts("parent_name")},
    ]
    return sql.Query(FILES, steps, columns, reason="refused", sample='coalesce(stated, "NAME")')


def _hex(rse_id: Column) -> Column:
    """Lower-case hex digits of an RSE's id, which some dumps hold as bytes and some as text."""
    return F.lower(F.hex(rse_id.cast("binary")))


def _moment(ms: Column) -> Column:
    """µs since 1970 of milliseconds, a number or text; null if it is none, or seconds or µs."""
    value = ms.try_cast("double")
    in_range = (value >= sql.EARLIEST_MS) & (value < sql.LATEST_S * 1000)
    return F.when(in_range, F.rint(value * 1000).cast("long"))


SOURCE = Source(read=read, table=FILES, is_whole=True)
