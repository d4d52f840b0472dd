"""Conversion of rows to the columns, types and partition values of a table.

Errors for missing tables and days: they name those that exist, and the command that writes others.
"""

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import SchemaError, StaleInputError, bounded
from features.common.times import day_label
from features.common.units import duration_label
from features.schema import Table, arrow_schema
from jobs.ground.store.commits import Key, Snapshot, checked_key
from jobs.ground.text import day_ranges


def conform(table: Table, data: pa.Table) -> pa.Table:
    """`data` with the table's columns and types; other columns are dropped.

    Integers and floats widen, timestamps become microseconds. Raises SchemaError naming the column.
    """
    return _fitted(table, data, arrow_schema(table))


def _fitted(table: Table, data: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        if field.name not in data.column_names:
            known = bounded(str(data.column_names), 300)
            raise SchemaError(f"table {table.name}: column {field.name!r} is missing; there are {known}")
        column = data.column(field.name)
        if not _fits(column.type, field.type):
            raise SchemaError(f"table {table.name}: column {field.name!r} is {column.type}, not {field.type}")
        if column.null_count and not field.nullable:
            raise SchemaError(f"table {table.name}: column {field.name!r} holds {column.null_count} nulls")
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise SchemaError(f"table {table.name}: column {field.name!r}: {error}") from None
    return pa.table(columns, schema=schema)


def partition_groups(table: Table, data: pa.Table) -> Iterator[tuple[Key, pa.Table]]:
    """Each partition of `data`, in order of the keys, with its rows; rows keep their order.

    `data` has the table's partition columns as strings. Raises SchemaError naming the column.
    """
    names = list(table.partition)
    if not names:
        yield (), data
        return
    keys = _fitted(table, data, pa.schema([pa.field(name, pa.string(), nullable=False) for name in names]))
    start, order = 0, [(name, "ascending") for name in names]
    counts = keys.group_by(names).aggregate([([], "count_all")]).sort_by(order)
    if counts.num_rows > 1:
        data = data.take(pc.sort_indices(keys, order))
    for row in counts.to_pylist():
        yield tuple(row[name] for name in names), data.slice(start, row["count_all"])
        start += row["count_all"]


def partition_path(table: Table, key: Key) -> str:
    """The folder of a partition below its data folder, named as by Spark; empty without partition columns."""
    names = zip(table.partition, checked_key(table, key), strict=True)
    return "/".join(f"{name}={value.replace(':', '%3A')}" for name, value in names)


def _fits(kind: pa.DataType, needed: pa.DataType) -> bool:
    """Whether a cast from `kind` to `needed` keeps all values: it widens, or only changes the encoding."""
    if pa.types.is_dictionary(kind):
        return _fits(kind.value_type, needed)
    if pa.types.is_null(kind) or kind == needed:
        return True
    if pa.types.is_list(needed):
        return isinstance(kind, pa.ListType | pa.LargeListType) and _fits(kind.value_type, pa.string())
    integer, floating = bool(pa.types.is_integer(kind)), bool(pa.types.is_floating(kind))
    return bool(
        (pa.types.is_timestamp(needed) and pa.types.is_timestamp(kind) and kind.tz is not None)
        or (pa.types.is_string(needed) and (pa.types.is_large_string(kind) or pa.types.is_string_view(kind)))
        or (pa.types.is_integer(needed) and integer)
        or (pa.types.is_floating(needed) and (floating or integer))
    )


WRITTEN_BY: Mapping[str, str] = {
    **dict.fromkeys(("accesses", "files", "unpaired", "job_records", "pulls", "rejects"), "pull"),
    **dict.fromkeys(("features", "states", "dormant", "consumed"), "features"),
    **dict.fromkeys(("features_sample", "labels_sample"), "cycle --train"),
    **dict.fromkeys(("labels", "model_metrics", "reliability"), "train"),
    "arrivals": "arrivals",
    "trainings": "train",
    **dict.fromkeys(("predictions", "drift"), "predict"),
    **dict.fromkeys(("contents", "plans"), "plan"),
    **dict.fromkeys(("replays", "replay_days", "replay_fills"), "replay"),
    **dict.fromkeys(("outcomes", "worth"), "outcomes"),
    "receipts": "push",
    "steward_days": "steward",
    **dict.fromkeys(("queue", "announced"), "queue"),
    "evaluations": "evaluate",
    "promotions": "promote",
}
"""The command that writes each table."""

_MOST_SPANS = 4


def no_table(name: str, root: str, *, others: Collection[str]) -> StaleInputError:
    """The error that there is no table `name` at `root`, but `others`."""
    if not others:
        return StaleInputError(
            f"there is no table {name} at {root}, and no other table: run `cachecast pull` first, or name "
            "the root of your tables by --tables or [tables] root"
        )
    return StaleInputError(f"there is no table {name} at {root}; run `cachecast {WRITTEN_BY[name]}` first")


def no_access(accesses: Snapshot, *, first_s: int, last_s: int, before_s: int = 0) -> StaleInputError:
    """The error that no access is on the days `first_s` to `last_s`, nor `before_s` before, but on others."""
    first, last = day_label(first_s), day_label(last_s)
    days = f"on {first}" if first == last else f"from {first} to {last}"
    before = f", nor in the {duration_label(before_s)} before" if before_s else ""
    return StaleInputError(
        f"there is no access {days}{before}; {days_there(accesses)}: choose from them, or pull more first"
    )


def days_there(accesses: Snapshot) -> str:
    days = sorted({key[0] for key, part in accesses.partitions.items() if part.n_rows})
    if not days:
        return "there is none on any day"
    spans = day_ranges(days)
    if len(spans) > _MOST_SPANS:
        spans = [*spans[: _MOST_SPANS - 1], f"further days until {days[-1]}"]
    return f"there are accesses of {', '.join(map(str, spans))}"
