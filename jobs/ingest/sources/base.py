"""What every reader shares: lines and CSV in, checked rows of a table out, and a reason for each refusal.

A reader makes one frame of everything it read, with the table's columns plus `reason` (null: accepted),
`sample` and `input`. So a row is accepted or refused, never lost, and the input is parsed once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from features.errors import InputError, SchemaError
from features.schema import ACCESSES, FILES, Table
from features.spark.names import name_parts, part
from features.spark.schema import struct_type

SAMPLE_CHARS = 200
OURS = "our own prefetch or touch"
# No record tells of 32 PiB or 16 million reads; of a few that did, sums (2^32 a read) would not fit.
MOST_BYTES = 2**55
MOST_READS = 2**24
_MOST = dict.fromkeys(("size_bytes", "read_bytes", "bytes_hit", "bytes_missed"), MOST_BYTES)
_MOST["n_reads"] = MOST_READS
# Seconds since 1970 that a record can have: up to the year 2100. Milliseconds fall outside, and are refused.
LATEST_S = 4102444800
_US = 1_000_000
# Milliseconds start in September 2001: seconds of our days would be January 1970.
_EARLIEST_MS = 10**12
# Fields of JSON records that name a person, with their value.
_PERSON = '"((?:data[.])?(?:usr|usrdn|account|user_dn|username|app_info))"[ ]*:[ ]*"(?:[^"\\\\]|\\\\.)*("|$)'
_BROKEN = re.compile("(?:FAILED_READ_FILE.*? file|Could not read file:) ([^ \n]+?)[.]?(?: |\n|$)")
_ATLAS_SCOPE = "^(data|mc|valid|hi)[0-9]{1,2}_"
_EXPERIMENTS = ("cms", "atlas", "lhcb", "osdf")


@dataclasses.dataclass(frozen=True)
class Pulled:
    """One input, read. `parsed` holds every row read: persist it, all else derives from it.

    `accesses` and `files` have their table's columns (accesses also `day`), or are None. `rejects`:
    source, input, reason, n_rows, sample. `n_lost`: records the source itself says are missing.
    """

    parsed: DataFrame
    accesses: DataFrame | None
    files: DataFrame | None
    rejects: DataFrame
    n_lost: int = 0


def pulled(parsed: DataFrame, table: Table, source: str, n_lost: int = 0) -> Pulled:
    """`parsed` (columns of `table`, `reason`, `sample`, `input`) split in accepted and refused rows."""
    rejects = (
        parsed.filter(F.col("reason").isNotNull())
        .groupBy(F.lit(source).alias("source"), "input", "reason")
        .agg(F.count("*").alias("n_rows"), F.min("sample").alias("sample"))
    )
    return Pulled(
        parsed=parsed,
        accesses=accesses_of(parsed) if table is ACCESSES else None,
        files=_accepted(parsed, FILES) if table is FILES else None,
        rejects=rejects,
        n_lost=n_lost,
    )


def accesses_of(parsed: DataFrame) -> DataFrame:
    """The accepted rows of `parsed` as ACCESSES has them, with their day."""
    return _accepted(parsed, ACCESSES).withColumn("day", F.date_format("accessed_at", "yyyy-MM-dd"))


def _accepted(parsed: DataFrame, table: Table) -> DataFrame:
    return parsed.filter(F.col("reason").isNull()).select(*table.column_names)


def parsed_rows(
    raw: DataFrame, table: Table, columns: Mapping[str, Column], *, reason: Column, sample: Column
) -> DataFrame:
    """`raw` (with `input`) as rows of `table`: `columns` by name, null for the others, and the verdict.

    A refused row keeps only its verdict, so that what is kept in memory is small.
    """
    columns = _in_order(columns)
    impossible = [
        (columns[name] > most, f"impossible {name}") for name, most in _MOST.items() if name in columns
    ]
    verdict = raw.withColumn("reason", F.coalesce(reason, first_reason(*impossible)))
    accepted = F.col("reason").isNull()
    fields = [
        F.when(accepted, columns.get(field.name, F.lit(None))).cast(field.dataType).alias(field.name)
        for field in struct_type(table)
    ]
    cut = F.when(~accepted, F.substring(sample, 1, SAMPLE_CHARS)).alias("sample")
    return verdict.select(*fields, "reason", cut, "input")


def _in_order(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Clocks differ: an access is not known before it began, and an end before the start is no end."""
    if "accessed_at" not in columns:
        return dict(columns)
    start = columns["accessed_at"]
    ordered = {"known_at": F.greatest(columns["known_at"], start)}
    if "closed_at" in columns:
        ordered["closed_at"] = F.when(columns["closed_at"] >= start, columns["closed_at"])
    if "wall_s" in columns:
        ordered["wall_s"] = F.when(columns["wall_s"] >= 0, columns["wall_s"])
    return {**columns, **ordered}


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Raises InputError for a file that Spark finds broken while the block runs, as a gz cut short."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        broken = _BROKEN.search(str(error))
        if broken is None:
            raise
        raise InputError(f"cannot read {broken[1]} of {path}: it is broken, or still being written") from None


def read_lines(spark: SparkSession, path: str) -> DataFrame:
    """Every line that is not blank, as `value`, with the file it came from as `input`.

    gz, bz2 and zst by their suffix; `path` may be a folder or a glob. Raises InputError if nothing is there.
    """
    try:
        lines = spark.read.text(path)
    except AnalysisException as error:
        raise InputError(
            f"cannot read {path}: {error.getCondition() or 'unusable'}; is the path right?"
        ) from None
    return lines.select("value", F.col("_metadata.file_path").alias("input")).filter(F.trim("value") != "")


def read_csv(spark: SparkSession, path: str, *needs: Sequence[str]) -> DataFrame:
    """Every record of CSV files with a header, as strings; `corrupt` holds a line that does not fit it.

    Columns: the header's, `corrupt`, `input`. `needs`: sets of columns, one of which must be there.
    Raises InputError if nothing is there, SchemaError naming the missing columns.
    """
    try:
        header = spark.read.option("header", True).csv(path).columns
    except AnalysisException as error:
        raise InputError(
            f"cannot read {path}: {error.getCondition() or 'unusable'}; is the path right?"
        ) from None
    if header and not any(set(need) <= set(header) for need in needs):
        missing = " or ".join(str(sorted(set(need) - set(header))) for need in needs)
        raise SchemaError(f"{path}: columns {missing} are missing; there are {header}")
    names = header or list(needs[0])
    schema = ",".join(f"`{name}` string" for name in [*names, "corrupt"])
    options = {"header": "true", "escape": '"', "columnNameOfCorruptRecord": "corrupt"}
    rows = spark.read.options(**options).schema(schema).csv(path)
    return rows.select(
        *(F.col(f"`{name}`") for name in [*names, "corrupt"]), F.col("_metadata.file_path").alias("input")
    )


def json_fields(
    lines: DataFrame, names: Sequence[str], *, times: Sequence[str] = (), counts: Sequence[str] = ()
) -> DataFrame:
    """`lines` (value, input) with each of `names` as a string column; null where absent, null or empty.

    A name `data.size` is the field `size` of the object `data`, or the field of that whole name; its column
    is `size`. `times` (seconds) are columns of µs since 1970, `counts` of whole numbers; `unparsable` is the
    first of them that is told, as a number or as text, but is none or out of range. `malformed` tells lines
    that are not one JSON object. Other fields are ignored.
    """
    kinds = dict.fromkeys(times, "double") | dict.fromkeys(counts, "bigint")
    # Numbers are taken as such, which is fast; a line in which one is not is read again, for its text.
    json = _from_json(dict.fromkeys(names, "string") | kinds)
    again = F.when(F.col("json.corrupt").isNotNull(), _from_json(dict.fromkeys(kinds, "string")))
    fields = lines.withColumn("json", json).withColumn("again", again)
    numbers = {name: _number(name, kind) for name, kind in kinds.items()}
    useful = numbers | {name: micros(numbers[name]) for name in times}
    wrong = [(_is_told(name) & value.isNull(), name) for name, value in useful.items()]
    return fields.select(
        "input",
        "value",
        (~F.ltrim("value").startswith("{") | F.coalesce(_is_broken(kinds), F.lit(False))).alias("malformed"),
        first_reason(*wrong).alias("unparsable"),
        *(_text(_member(name)).alias(name.split(".")[-1]) for name in names),
        *(value.alias(name) for name, value in useful.items()),
    )


def _from_json(types: Mapping[str, str]) -> Column:
    """`value` as a struct of fields with their types; `corrupt` is set where it is not that."""
    members: dict[str, list[str]] = {}
    for name in types:
        outer, dot, inner = name.partition(".")
        if dot:
            members.setdefault(outer, []).append(f"`{inner}`:string")
    objects = [f"`{outer}` struct<{','.join(inner)}>" for outer, inner in members.items()]
    schema = ",".join([*objects, *(f"`{name}` {kind}" for name, kind in types.items()), "corrupt string"])
    return F.from_json("value", schema, {"columnNameOfCorruptRecord": "corrupt"})


def _is_broken(kinds: Mapping[str, str]) -> Column:
    return F.col("again.corrupt" if kinds else "json.corrupt").isNotNull() | F.col("json").isNull()


def _member(name: str) -> Column:
    json, (outer, dot, inner) = F.col("json"), name.partition(".")
    return F.coalesce(json[outer][inner], json[name]) if dot else json[name]


def _number(name: str, kind: str) -> Column:
    again = F.col("again")
    return F.when(again.isNull(), F.col("json")[name]).otherwise(again[name].try_cast(kind))


def _is_told(name: str) -> Column:
    again = F.col("again")
    return F.when(again.isNull(), F.col("json")[name].isNotNull()).otherwise(F.trim(again[name]) != "")


def _text(field: Column) -> Column:
    # Not `nullif`, which costs a copy of the row.
    return F.when(F.trim(field) != "", F.trim(field))


def first_reason(*checks: tuple[Column, str | Column]) -> Column:
    """The words of the first check that holds (a null check does not), or null."""
    reason = F.lit(None).cast("string")
    for check, words in reversed(checks):
        reason = F.when(check, F.lit(words) if isinstance(words, str) else words).otherwise(reason)
    return reason


def micros(seconds: Column) -> Column:
    """µs since 1970 of a number of seconds, or text of one; null if it is none or out of range."""
    value = seconds.try_cast("double")
    return F.when((value >= 0) & (value < LATEST_S), F.rint(value * _US).cast("long"))


def micros_of_ms(milliseconds: Column) -> Column:
    """µs since 1970 of a number of milliseconds, or text of one; null if it is none, or seconds or µs."""
    value = milliseconds.try_cast("double")
    in_range = (value >= _EARLIEST_MS) & (value < LATEST_S * 1000)
    return F.when(in_range, F.rint(value * 1000).cast("long"))


def timestamp(us: Column) -> Column:
    """Timestamp of µs since 1970."""
    return F.timestamp_micros(us)


def seconds_text(us: Column) -> Column:
    """`1772323200.250000` of µs since 1970, as ids of events hold it."""
    whole = F.call_function("div", us, F.lit(_US)).cast("string")
    return F.concat(whole, F.lit("."), F.substring((us % _US + _US).cast("string"), 2, 6))


def count(text: Column) -> Column:
    """A whole number, or null; `1.5` is none."""
    return text.try_cast("long")


def hashed(*parts: Column) -> Column:
    """32 hex digits of the sha256 of `parts`; a null part counts as absent."""
    texts = [F.coalesce(part.cast("string"), F.lit("\x00")) for part in parts]
    return F.substring(F.sha2(F.concat_ws("\x1f", *texts), 256), 1, 32)


def hashed_user(user: Column, salt: str) -> Column:
    """16 hex digits that stand for `user`; null without a salt, as a bare hash could be looked up."""
    if not salt:
        return F.lit(None).cast("string")
    return F.when(
        user.isNotNull(), F.substring(F.sha2(F.concat(F.lit(salt), F.lit("\x1f"), user), 256), 1, 16)
    )


def without_users(line: Column) -> Column:
    """A JSON line as a sample of it may be kept: the values of fields that name a person are blotted out."""
    return F.regexp_replace(line, _PERSON, '"$1":"*"')


def named(name: Column, scope: Column | None = None) -> dict[str, Column]:
    """Columns did, scope, name, dataset, tier, campaign, experiment of a file (or dataset) called `name`.

    Without `scope` it is the experiment, or `unknown`. Add column `parts` (see `with_parts`) before.
    """
    parts = F.col("parts")
    by_scope = F.when(scope.isin(*_EXPERIMENTS), scope) if scope is not None else F.lit(None)
    experiment = F.coalesce(part(parts, "experiment"), by_scope)
    owner = scope if scope is not None else F.coalesce(experiment, F.lit("unknown"))
    return {
        "did": F.concat(owner, F.lit(":"), name),
        "scope": owner,
        "name": name,
        "dataset": F.concat(owner, F.lit(":"), part(parts, "dataset")),
        "tier": part(parts, "tier"),
        "campaign": part(parts, "campaign"),
        "experiment": experiment,
    }


def with_parts(raw: DataFrame, name: Column, scope: Column | None = None) -> DataFrame:
    """`raw` with `parts`, what `name` tells; an ATLAS scope helps to know the file."""
    full = name
    if scope is not None:
        full = F.when(scope.rlike(_ATLAS_SCOPE), F.concat(scope, F.lit(":"), name)).otherwise(name)
    # A column of its own: within the expression it would be put together again for every rule.
    return raw.withColumn("full_name", full).withColumn("parts", name_parts(F.col("full_name")))
